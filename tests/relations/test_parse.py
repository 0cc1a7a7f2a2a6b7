"""The expression grammar: it reads back what is printed, and refuses everything else with the place."""

import inspect
import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen.relations as relations
from erlangen.errors import ErlangenError, ExpressionError, ParameterError
from erlangen.relations import (
    Batch,
    Bipartite,
    Blocks,
    Causal,
    Dilated,
    Documents,
    Empty,
    FromMask,
    Full,
    Global,
    Graph,
    Grid,
    GridOffset,
    Identity,
    Nearest,
    Offset,
    Padding,
    PerHead,
    Prefix,
    Random,
    Relation,
    Ring,
    Window,
)
from erlangen.relations.catalogue import kinds
from erlangen.relations.families import Family
from erlangen.relations.parse import MAX_DEPTH, MAX_OPERATORS, parse
from erlangen.testing.strategies import examples

KNOWN = kinds(Relation, Family)
small = st.integers(0, 9)
positive = st.integers(1, 9)
positions = st.one_of(st.lists(small, max_size=4), st.builds(range, small, small, positive))
edges = st.lists(st.tuples(small, small), max_size=6)

LEAVES: dict[type, st.SearchStrategy] = {
    Full: st.just(Full()),
    Empty: st.just(Empty()),
    Identity: st.just(Identity()),
    Causal: st.just(Causal()),
    Prefix: st.builds(Prefix, small),
    Window: st.builds(Window, st.integers(0, 2**70), small),
    Ring: st.builds(Ring, small, small),
    Dilated: st.builds(Dilated, positive),
    Bipartite: st.builds(Bipartite, small, small),
    Documents: st.builds(Documents, st.lists(small, max_size=5)),
    Blocks: st.builds(Blocks, positive),
    Padding: st.builds(Padding, small, st.sampled_from(["left", "right"])),
    Global: st.builds(Global, positions, positions),
    Grid: st.builds(Grid, st.tuples(positive, positive), small),
    Offset: st.builds(Offset, st.integers(-(2**70), 9)),
    GridOffset: st.builds(
        GridOffset, st.tuples(positive, positive), st.tuples(small, st.integers(-9, 9)),
        st.none() | st.tuples(positive, positive),
    ),
    Random: st.builds(Random, small, st.integers(0, 2**70)),
    Graph: st.builds(Graph, edges, st.one_of(st.none(), st.integers(10, 20))),
    FromMask: st.builds(FromMask, st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=4)),
    Nearest: st.builds(Nearest, small),
}  # fmt: skip

for _kind in set(kinds(Relation).values()):  # one that has no strategy here is made as it says
    LEAVES.setdefault(_kind, st.integers(0, 6).flatmap(partial(examples, _kind)))


def _combined(inner: st.SearchStrategy[Relation]) -> st.SearchStrategy[Relation]:
    return st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a @ b, inner, inner),
        st.builds(lambda a: ~a, inner),
        st.builds(lambda a: a.T, inner),
        st.builds(lambda a: a.closure(), inner),
        st.builds(lambda a, p: a**p, inner, st.integers(0, 5)),
        st.builds(lambda a, p: a.reach(p), inner, st.integers(0, 5)),
    )


expressions = st.recursive(st.one_of(*LEAVES.values()), _combined, max_leaves=8)
heads = st.builds(PerHead, st.lists(expressions, min_size=1, max_size=3))
batches = st.builds(Batch, st.lists(st.one_of(expressions, heads), min_size=1, max_size=3))


def test_every_public_relation_is_known_and_tested():
    public = {
        name
        for name in relations.__all__
        if inspect.isclass(thing := getattr(relations, name))
        and issubclass(thing, (Relation, Family))
        and not inspect.isabstract(thing)
    }
    assert public == set(KNOWN)
    assert {kind.__name__ for kind in LEAVES} | {"PerHead", "Batch"} == set(KNOWN)


@given(st.one_of(expressions, heads, batches))
def test_what_is_printed_is_read_back(relation):
    assert parse(repr(relation)) == relation


def test_a_merged_step_merges_with_the_step_before():
    relation = Full() @ Dilated(2) @ Empty()
    assert relation == Empty()
    assert parse(repr(relation)) == relation


@given(expressions)
def test_prefixes_and_white_space_do_not_count(relation):
    text = repr(relation)
    for name in KNOWN:
        text = re.sub(rf"\b{name}\(", f"er.{name}( ", text)
    assert parse(f"\n  {text}\t") == relation


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("Causal()&Window(2,9)|Global(keys=[0])", Window(2) | Global(keys=[0])),
        ("erlangen.Causal() - erlangen.Identity()", Causal() - Identity()),
        ("(Dilated(2) @ Causal()).T", Causal().T @ Dilated(2)),
        ("Window(1).reach(layers=3)", Window(3)),
        ("Window(lookback=1).closure()", Causal()),
        ("~Causal()", ~Causal()),
        ("Window(lookback=0x10)", Window(16)),
        ("Global(range(0, 9, 3), queries=(1, 4))", Global(keys=[0, 3, 6], queries=[1, 4])),
        ("FromMask([[True, False], [True, True]])", FromMask([[True, False], [True, True]])),
        ("Documents(\n  [2,\n   3])", Documents([2, 3])),
    ],
)
def test_the_grammar(text, relation):
    assert parse(text) == relation


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("Causal() & Windw(3)", "did you mean Window", 11),
        ("causal()", "did you mean Causal", 0),
        ("Causal() + Full()", "not one of relations", 9),
        ("(Causal()) << Full()", "not one of relations", 11),
        ("Causal() & 3", "3 is not a relation", 11),
        ("Causal", "write Causal(...)", 0),
        ("Causal().foo", "not .foo", 9),
        ("Causal().on(3)", "not .on", 9),
        ("Window(2.5)", "2.5 is no argument", 7),
        ("Window(None)", "None is no argument", 7),
        ("Window(9**9**9)", "9 is not a relation", 7),
        ("Causal() ** 9**9", "must be an integer, written out", 12),
        ("Window(lookback=1, lookback=2)", "twice", 28),
        ("Window(1, 2, 3)", "too many positional", 0),
        ("Window(steps=2)", "Window(lookback, lookahead=0)", 0),
        ("Window(*[1])", "*[1] is not a relation", 7),
        ("Window(**{})", "write them out", 9),
        ("Global(keys=range(1000000000000))", "longer than", 12),
        ("Global(keys=range(1, 2, 0))", "step 0", 12),
        ("Global(keys=range(True))", "must be an integer", 18),
        ("Global(keys=[i for i in range(3)])", "is not a relation", 12),
        ("Causal() and Full()", "is not a relation", 0),
        ("Causal() if True else Full()", "is not a relation", 0),
        ("Causal() < Full()", "is not a relation", 0),
        ("lambda: Causal()", "is not a relation", 0),
        ("(x := Causal())", "is not a relation", 1),
        ("[Causal()]", "is not a relation", 0),
        ("Causal().T()", "not .T", 9),
        ("Causal().reach()", "takes one integer", 0),
        ("Causal().closure(1)", "takes nothing", 0),
        ("PerHead([Causal()]).closure()", "apply it to its members", 0),
        ("Causal() & Fano()", "& does not combine Causal and Lines", 9),
        ("__import__('os').system('true')", "not .system", 17),
        ("Causal(", "never closed", 6),
        ("é & Causal()", "no relation is called 'é'", 0),
        ("Padding(side='é', length=2.5)", "2.5 is no argument", 25),
    ],
)
def test_everything_else_is_refused_with_the_place(text, message, column):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    first, shown, caret = str(caught.value).split("\n")
    assert message in first
    assert shown == f"  {text}"
    assert caret == " " * (2 + column) + "^"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "\0",
        "\ud800",
        "~" * 3_000 + "Causal()",
        "(" * 3_000 + "Causal()" + ")" * 3_000,
        "[" * 150 + "]" * 150,
        "Global(" + "[" * 150 + "]" * 150 + ")",
        "Causal()" + ".T" * 3_000,
        "Causal()" + "**2" * 3_000,
        "|".join(["Causal()"] * 10_000),
        "|".join(["Causal()"] * (MAX_OPERATORS + 2)),
        "PerHead([" + "Causal()," * 5_000 + "])",
        "Window(" + "9" * 5_000 + ")",
        "Window(0x" + "f" * 5_000 + ")",
        "Documents([" + "1," * 60_000 + "])",
        "Documents(range(1000000000))",
        "~" * (MAX_DEPTH + 1) + "Window(1)",
    ],
)
def test_hostile_texts_are_refused(text):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert len(str(caught.value)) < 500


def test_a_long_line_is_cut_around_the_place():
    with pytest.raises(ExpressionError) as caught:
        parse(" | ".join(["Causal()"] * 20 + ["Windw(1)"] + ["Causal()"] * 20))
    _, shown, caret = str(caught.value).split("\n")
    assert shown.startswith("  ...")
    assert shown.endswith("...")
    assert shown[caret.index("^") :].startswith("Windw(1)")


def test_parameters_outside_their_domain_raise_the_relations_own_error():
    with pytest.raises(ParameterError, match=r"Window\(lookback\) must be an integer >= 0, got -1"):
        parse("Causal() & Window(-1)")
    with pytest.raises(ParameterError, match="exponent"):
        parse("Window(1) ** -1")


def test_only_text_is_read():
    with pytest.raises(ExpressionError, match="from text"):
        parse(Causal())  # pyright: ignore[reportArgumentType]


SYMBOLS = [
    "(",
    ")",
    "()",
    "[",
    "]",
    ",",
    "=",
    "~",
    "&",
    "|",
    "-",
    "@",
    "**",
    ".T",
    ".reach(",
    ".closure()",
    "\n",
]
WORDS = [
    "range(",
    "0",
    "1",
    "-3",
    "10",
    "1e3",
    "'left'",
    "True",
    "er.",
    "keys",
    "lookback",
    " ",
    "é",
    "(0, 1)",
]
pieces = st.sampled_from([*KNOWN, *SYMBOLS, *WORDS])


@given(st.one_of(st.text(max_size=40), st.lists(pieces, max_size=14).map("".join)))
@settings(max_examples=500)
def test_no_text_raises_anything_but_our_errors(text):
    try:
        relation = parse(text)
    except ErlangenError:
        return
    assert isinstance(relation, (Relation, Family))


literals = st.one_of(st.integers(-5, 2**70), st.booleans()).map(str)
arguments = st.recursive(
    st.one_of(literals, st.sampled_from(["'left'", "'x'", "range(3)", "Causal()"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({', '.join(parts)},)"),
    ),
    max_leaves=5,
)


@given(st.sampled_from(sorted(KNOWN)), st.lists(arguments, max_size=3))
@settings(max_examples=500)
def test_no_arguments_raise_anything_but_our_errors(name, given_arguments):
    try:
        relation = parse(f"{name}({', '.join(given_arguments)})")
    except ErlangenError:
        return
    assert isinstance(relation, KNOWN[name])


def test_a_text_that_ends_too_early_is_pointed_at_its_end():
    with pytest.raises(ExpressionError, match="not finished") as caught:
        parse("Causal() &")
    assert str(caught.value).endswith("\n  Causal() &\n            ^")
