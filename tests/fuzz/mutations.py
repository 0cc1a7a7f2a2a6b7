"""Changes of bytes that find faults in readers: flips, cuts, repeats, numbers at the edges, splices."""

from __future__ import annotations

from hypothesis import strategies as st

EDGES = [
    b"0", b"-1", b"2147483647", b"2147483648", b"9223372036854775808", b"9" * 30, b"9" * 5000,
    b"1e400", b"NaN",
    b"null", b"true", b"[]", b"{}", b"(", b")" * 60, b"(" * 200, b"[" * 2000,
    b"\x00", b"\xff\xff\xff\xff", b"\xff" * 8,
    b"\x00\x00\x00\x80", b" ", b"\n", b'"', b",", b"~", b".T", b" & ", b" @ ", b" ** 3", b".closure()",
    b"-", b"Full()",
]  # fmt: skip


@st.composite
def changed(draw: st.DrawFn, inputs: list[bytes]) -> bytes:
    """An input of the corpus, changed in up to six places; or any bytes at all."""
    data = bytearray(
        draw(st.sampled_from(inputs)) if inputs and draw(st.integers(0, 9)) else draw(st.binary(max_size=80))
    )
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        upto = min(len(data), at + draw(st.sampled_from([0, 1, 1, 2, 4, 8, 64])))
        way = draw(st.integers(0, 6))
        if way == 0 and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif way == 1:
            data[at:upto] = draw(st.sampled_from(EDGES))
        elif way == 2:
            del data[at:upto]
        elif way == 3:
            data[at:at] = data[at:upto] * draw(st.integers(1, 50))
        elif way == 4:
            del data[at:]
        elif way == 5 and inputs:
            other = draw(st.sampled_from(inputs))
            start = draw(st.integers(0, len(other)))
            data[at:upto] = other[start : start + draw(st.integers(0, 64))]
        else:
            data[at:upto] = draw(st.binary(max_size=8))
        del data[200_000:]
    return bytes(data)
