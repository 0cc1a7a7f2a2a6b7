"""Whatever a file or an expression from outside says, a command answers or refuses it: never a traceback."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from typer.testing import CliRunner

from erlangen.cli import app
from erlangen.commands.guards import time_limit
from erlangen.errors import DataError, ErlangenError, ParameterError
from erlangen.relations import parse
from erlangen.relations import relation_files as files
from erlangen.relations.relation_files import read_relation


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def header(text, version=(1, 0)):
    text = text.encode("latin1") + b"\n"
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text


def claims(shape, descr="'|b1'", data=b"\x01"):
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}") + data


FILES = {
    "far.edges": b"0 2147483640", "farther.txt": b"0 99999999999999999999999999",
    "digits.edges": b"0 " + b"9" * 5000,
    "zeros.edges": b"0 " + b"0" * 5000, "columns.edges": b"1 2 3", "binary.edges": b"\xff\xfe\x00",
    "words.txt": b"a b", "minus.txt": b"0 -1",
    "claims.npy": claims("(10000000, 1000000)"), "square.npy": claims("(3000000, 3000000)"),
    "short.npy": claims("(2, 2)"), "negative.npy": claims("(-1, -1)"), "huge.npy": claims(f"({10**30}, 1)"),
    "flat.npy": claims("(1,)"), "odd.npy": claims("(True, 1)"), "none.npy": claims("None"),
    "deep.npy": header("[" * 9000), "object.npy": claims("(1, 1)", "'|O'", b"\x80\x02."),
    "struct.npy": claims("(1, 1)", "[('a', 'i4')]", b"1234"), "text.npy": claims("(1, 1)", "'<U1'", b"1234"),
    "long.npy": header("{'descr': '|b1', " + " " * 60_000 + "'shape': (1, 1)}", (2, 0)),
    "version.npy": b"\x93NUMPY\x09\x00", "zip.npy": b"PK\x03\x04" + b"\x00" * 40, "empty.npy": b"",
    "two.npy": claims("(1, 1)", "'|i1'", b"\x02"),
    "nan.npy": claims("(1, 1)", "'<f8'", struct.pack("<d", np.nan)),
    "field.csv": b'"' + b"1" * 200_000 + b'"', "open.csv": b'"1,0\n1',
    "null.csv": b"1,\x00", "empty.csv": b"",
    "ragged.csv": b"1,0\n1", "long.csv": b"7" * 10_000,
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", ["classify", "symmetry"])
def test_files_from_outside_are_refused(tmp_path, name, command):
    path = tmp_path / name
    path.write_bytes(FILES[name])
    if name == "zeros.edges":  # the twin: many digits, and yet a position
        assert run(command, path, "--n", 2).exit_code == 0
        return
    result = run(command, path)
    assert result.exit_code == 2
    assert len(result.output) < 2000
    with pytest.raises(DataError):
        read_relation(path)


def test_files_at_the_limits_are_read(tmp_path, monkeypatch):
    good = tmp_path / "a.edges"
    good.write_text(f"0 {files.MAX_POSITIONS - 1}\n")
    assert read_relation(good).edges().tolist() == [[0, files.MAX_POSITIONS - 1]]
    for order in "CF":
        np.save(tmp_path / "mask.npy", np.array(np.tri(3, 4), np.uint8, order=order))
        assert np.array_equal(read_relation(tmp_path / "mask.npy").on(3, 4).dense(), np.tri(3, 4))
    monkeypatch.setattr(files, "MAX_BYTES", 3)
    monkeypatch.setattr(files, "MAX_ENTRIES", 3)
    for path in (good, tmp_path / "mask.npy"):
        with pytest.raises(DataError, match="read"):
            read_relation(path)


EXPRESSIONS = [
    "Graph([(0, 2147483640)])", "Graph([[0, 2147483640]])",
    "Graph(edges=[(2147483640, 0)], nodes=2147483641)",
    "Graph([(0, 1)], nodes=2147483640)", "Bipartite(1000000000, 1000000000)", "Documents([2000000000])",
    "Grid((40000, 40000), 1)", "GridOffset((40000, 40000), (1, 1))", "Lines(ProjectivePlane(1409))",
    "Lines(AffinePlane(1409))", "Window(" + "9" * 5000 + ")", "Window(0x" + "f" * 5000 + ")",
    "~" * 5000 + "Full()",
    "(" * 5000 + "Full()" + ")" * 5000, "Full()" + ".T" * 5000, "Full() ** " + "9" * 5000,
    "Documents([" + "1," * 40_000 + "])", "Batch([" * 60 + "Full()" + "])" * 60,
]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda text: text[:30])
@pytest.mark.parametrize("command", ["classify", "symmetry", "show"])
def test_expressions_from_outside_end(expression, command):
    result = run(command, expression, "--json")
    assert result.exit_code in (0, 2)
    assert result.exit_code == 2 or "Documents" in expression or "Graph" in expression


LARGE = ["Causal()", "Full()", "Dilated(2)", "Random(3, 1)", "Random(100000, 0)", "Ring(1, 1)",
         "Causal() @ Dilated(3)",
         "PerHead([Causal(), Full()])", "ALiBi(1)", "Triangles(Full())", "WindowSquared(3)"]  # fmt: skip


@pytest.mark.parametrize("expression", LARGE)
@pytest.mark.parametrize("n", [2_000_000_000, 10**30, -1])
@pytest.mark.parametrize("command", ["classify", "symmetry", "show"])
def test_sizes_from_outside_are_refused(expression, n, command):
    result = run(command, expression, "--n", n)
    assert result.exit_code == 2 or (command != "show" and "every" in result.output)


def test_the_twins_of_ordinary_size_are_answered():
    for expression in LARGE[:4]:
        for command in ("classify", "symmetry", "show"):
            assert run(command, expression, "--n", 16).exit_code == 0


def test_a_time_limit_ends_what_takes_long():
    result = run("classify", "(Random(40, 1) @ Random(40, 2)) ** 99", "--n", 3000, "--seconds", 0.05)
    assert result.exit_code == 2
    assert "not finished after 0.05 seconds" in result.output
    with time_limit(60):
        assert sum(range(10)) == 45
    for bad in (-1, float("nan"), float("inf")):
        with pytest.raises(ParameterError), time_limit(bad):
            pass


def test_edges_at_the_limit_of_the_parser():
    assert parse.parse(f"Graph([(0, {parse.MAX_POSITIONS - 1})])").edges().tolist() == [[0, 1_999_999]]
    with pytest.raises(ErlangenError, match="at most 2000000 are read from text"):
        parse.parse(f"Graph([(0, {parse.MAX_POSITIONS})])")
