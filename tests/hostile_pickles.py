"""Pickles made by hand to harm whoever reads them. Run as a script, it reads each and says what happened."""

from __future__ import annotations

import pickle
import struct
import sys

P2 = b"\x80\x02"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def raw(value: bytes) -> bytes:
    return b"T" + struct.pack("<I", len(value)) + value


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


NONE, TRUE, FALSE, REDUCE, BUILD, SETITEM = b"N", b"\x88", b"\x89", b"R", b"b", b"s"
NDARRAY, DTYPE = name("numpy", "ndarray"), name("numpy", "dtype")
RECONSTRUCT = name("numpy.core.multiarray", "_reconstruct")
ARRAY = RECONSTRUCT + NDARRAY + number(0) + b"\x85" + raw(b"b") + b"\x87" + REDUCE
SPARSE = name("scipy.sparse.csr", "csr_matrix") + b")\x81"


def dtype(code: str, *state: bytes) -> bytes:
    made = DTYPE + text(code) + FALSE + TRUE + b"\x87" + REDUCE
    return made + b"(" + b"".join(state) + b"t" + BUILD if state else made


def plain(code: str, order: str = "<") -> bytes:
    return dtype(code, number(3), text(order), NONE, NONE, NONE, number(-1), number(-1), number(0))


def array(shape: bytes, kind: bytes, data: bytes, fortran: bytes = FALSE) -> bytes:
    return ARRAY + b"(" + number(1) + shape + kind + fortran + data + b"t" + BUILD


def sparse(shape: bytes, indptr: bytes, indices: bytes, data: bytes) -> bytes:
    parts = {"_shape": shape, "indptr": indptr, "indices": indices, "data": data}
    return SPARSE + b"}(" + b"".join(text(k) + v for k, v in parts.items()) + b"u" + BUILD


def vector(*values: int) -> bytes:
    return array(number(len(values)) + b"\x85", plain("i4"), raw(struct.pack(f"<{len(values)}i", *values)))


def narrow(*values: int) -> bytes:
    return array(
        number(len(values)) + b"\x85", plain("i1", "|"), raw(struct.pack(f"{len(values)}b", *values))
    )


def shared(size: int, times: int) -> bytes:
    """Many arrays of the same bytes: each copies them."""
    state = b"(" + number(1) + number(size) + b"\x85h\x01" + FALSE + b"h\x00t" + BUILD
    return raw(bytes(size)) + b"q\x00" + plain("u1", "|") + b"q\x01(" + (ARRAY + state) * times + b"l"


def doubled(empty: bytes, add: bytes, times: int) -> bytes:
    """x = (x, x), again and again: small in memory, endless for whoever walks it."""
    return empty + (b"q\x00h\x00" + add) * times


OBJECTS = dtype("O8", number(3), text("|"), NONE, NONE, NONE, number(-1), number(-1), number(1))
HUGE = b"\x8a\x08" + struct.pack("<q", 2**62)
POINTER = raw(struct.pack("<Q", 0x4141414141414141))

HOSTILE: dict[str, bytes] = {
    # The array of objects whose only entry is an address of the attacker's; SETITEM then writes through it.
    "pointer as an object": P2 + array(number(1) + b"\x85", OBJECTS, POINTER) + b".",
    "write through a pointer": P2
    + array(number(1) + b"\x85", OBJECTS, POINTER) + number(0) + NONE + SETITEM + b".",
    "object flags on a plain type": P2
    + array(number(1) + b"\x85", dtype("i8", number(3), text("|"), NONE, NONE, NONE, number(8), number(1),
                                       number(63)), POINTER) + number(0) + NONE + SETITEM + b".",
    "setitem on an array": P2 + vector(1, 2) + number(0) + number(5) + SETITEM + b".",
    "state for the class dtype": P2 + DTYPE + b"}" + BUILD + b".",
    "state for the class ndarray": P2 + NDARRAY + b"}" + text("shape") + NONE + SETITEM + BUILD + b".",
    "state for a dictionary": P2 + b"}}" + BUILD + b".",
    "fields of a structured type": P2
    + dtype("V8", number(3), text("|"), NONE, text("a"), b"}", number(8), number(1), number(16)) + b".",
    "a type with subtypes": P2
    + dtype("i4", number(3), text("<"), NONE, text("a"), b"}", number(-1), number(-1), number(0)) + b".",
    "dates with metadata": P2 + dtype("M8") + b".",
    "a type by its name": P2 + dtype("object") + b".",
    "an array of no state": P2 + ARRAY + b".",
    "more entries than bytes": P2 + array(number(2**30) + b"\x85", plain("f8"), raw(b"12345678")) + b".",
    "a negative length": P2 + array(number(-1) + b"\x85", plain("u1"), raw(b"")) + b".",
    "many axes": P2 + array(b"(" + number(1) * 70 + b"t", plain("u1"), raw(b"a")) + b".",
    "a length of 2^62": P2 + array(HUGE + b"\x85", plain("u1"), raw(b"")) + b".",
    "an order that is no boolean": P2 + array(number(1) + b"\x85", plain("u1"), raw(b"a"), number(1)) + b".",
    "tuples of tuples as a key": P2 + b"}" + doubled(b")", b"\x86", 60) + NONE + SETITEM + b".",
    "lists of lists compared": P2 + dtype("i4", doubled(b"]", b"\x86", 60), *[NONE] * 7) + b".",
    "a list in itself as a key": P2 + b"}]q\x00h\x00ah\x00" + NONE + SETITEM + b".",
    "gigabytes of arrays from a megabyte": P2 + shared(1_000_000, 3000) + b".",
    **{f"numbers of type {code}": P2 + dtype(code) + b"." for code in ("b2", "b8", "f1", "i3", "u0")},
    "a list in itself as a shape": P2 + array(b"]q\x00h\x00a", plain("u1"), raw(b"")) + b".",
    "steps without end": P2 + b")" + b"\x85" * 2_100_000 + b".",
    "a deep tuple as a key": P2 + b"})" + b"\x85" * 500_000 + NONE + SETITEM + b".",
    "marks without end": P2 + b"(" * 2_100_000,
    "a long integer": P2 + b"\x8b" + struct.pack("<I", 1_000_000) + b"\x7f" * 1_000_000 + b".",
    "digits without end": b"L" + b"9" * 1_000_000 + b"L\n.",
    "a string that claims 4 GB": P2 + b"B\xff\xff\xff\xff" + b"a",
    "bytes that claim 2^63": b"\x80\x04\x8e" + struct.pack("<Q", 2**63) + b"a.",
    "a frame that claims 2^63": b"\x80\x04\x95" + struct.pack("<Q", 2**63 - 1) + b"N",
    "a memo of what was never put": P2 + b"h\x09.",
    "a persistent id": b"Pfile\n.",
    "an extension": P2 + b"\x82\x01.",
    "an instance by its class": b"(ios\nsystem\nS'true'\no.",
    "a call of a list": P2 + b"]" + text("a") + b"\x85" + REDUCE + b".",
    "a defaultdict of a name": P2 + name("collections", "defaultdict") + DTYPE + b"\x85" + REDUCE + b".",
    "os.system": pickle.dumps(print, protocol=2).replace(b"__builtin__\nprint", b"os\nsystem"),
    "stack global": pickle.dumps(print, protocol=4),
    "out of nothing": P2 + b".",
    "two values": P2 + b"NN.",
    "too little": P2 + b"s.",
    "no stop": P2 + b"N",
    "nothing": b"",
    "no instructions": b"\xff\xfe not a pickle",
}  # fmt: skip

BOTH = number(2) + number(2) + b"\x86"
GOOD = [BOTH, vector(0, 1, 2), vector(0, 1), vector(3, 4)]


def spoilt(index: int, value: bytes) -> bytes:
    return P2 + sparse(*[value if at == index else part for at, part in enumerate(GOOD)]) + b"."


# Read by the interpreter, refused as matrices.
SPARSE_LIES: dict[str, bytes] = {
    "a matrix of 10^18 entries": spoilt(0, number(10**9) + number(10**9) + b"\x86"),
    "a shape of one number": spoilt(0, number(4) + b"\x85"),
    "columns beyond the shape": spoilt(2, vector(0, 2)),
    "columns before the shape": spoilt(2, vector(0, -1)),
    "rows that go back": spoilt(1, vector(0, 3, 2)),
    "rows that start late": spoilt(1, vector(1, 1, 2)),
    "rows that end late": spoilt(1, vector(0, 1, 2**30)),
    "narrow rows that go back and wrap": P2
    + sparse(number(3) + number(4) + b"\x86", narrow(0, 127, -2, 1), narrow(2), vector(1))
    + b".",
    "narrow rows that go back and do not add up": P2
    + sparse(number(3) + number(4) + b"\x86", narrow(0, 100, -56, 44), narrow(*[0] * 44), vector(*[0] * 44))
    + b".",
    "too few rows": spoilt(1, vector(0, 2)),
    "too many numbers": spoilt(3, vector(3, 4, 5)),
    "columns that are text": spoilt(2, text("ab")),
    "an array without state": spoilt(3, ARRAY),
    "columns in floats": spoilt(2, array(number(1) + b"\x85", plain("f8"), raw(struct.pack("<d", 0.5)))),
}

if __name__ == "__main__":
    import resource
    import signal

    from erlangen.errors import DataError
    from erlangen.training import plain_pickle

    limit = 8 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for title, pickled in {**HOSTILE, **SPARSE_LIES}.items():
        signal.setitimer(signal.ITIMER_PROF, 20)  # of processor time: machines may be busy
        try:
            value = plain_pickle.read(pickled)
            print(title, "|", value.dense() if isinstance(value, plain_pickle.Sparse) else "read", flush=True)
        except DataError as error:
            print(title, "|", "refused", "|", error, flush=True)
    sys.exit(0)
