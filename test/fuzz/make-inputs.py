#!/usr/bin/env python3
"""Writes the inputs of this folder: the smallest bytecode for each way in which
MLIR's reader goes wrong. Every one is a valid module but for one thing.

    make-inputs.py FOLDER
"""

import pathlib
import sys

HUGE = 1 << 60


def number(value):
    """A number as bytecode has it."""
    for more in range(8):
        if value < 1 << (7 * (more + 1)):
            return ((value << (more + 1)) | (1 << more)).to_bytes(more + 1, "little")
    return b"\0" + value.to_bytes(8, "little")


def numbers(*values):
    return b"".join(map(number, values))


def section(kind, contents):
    return bytes([kind]) + number(len(contents)) + contents


def strings(*texts):
    lengths = b"".join(number(len(text) + 1) for text in reversed(texts))
    return number(len(texts)) + lengths + b"".join(t + b"\0" for t in texts)


UNKNOWN_LOC = number(15)
INTEGER = lambda width: numbers(0, width << 2)
TENSOR = lambda size, element: numbers(13, 1, size << 1, element)
BODY = section(4, numbers(1, 0, 0))  # One region: a block, no values, no ops.


def module(
    string_section=None,
    dialect_section=None,
    attributes=(),
    types=(),
    table=None,
    ir=None,
    dictionary=None,
    extra=b"",
    dialects=(b"builtin",),
    properties=number(0),
    entry_dialect=0,
    type_dialect=0,
):
    """A `builtin.module`. `attributes` come behind the location; `dictionary` is
    the number of the attribute that is the module's dictionary. Types that are
    strings are texts."""
    names = list(dialects) + [b"module", b"op"]
    # Two operations: one that is registered, one that is not.
    dialect_section = dialect_section or (
        number(len(dialects))
        + b"".join(number(i << 1) for i in range(len(dialects)))
        + numbers(2, 0, 2, len(dialects) << 1 | 1, (len(dialects) + 1) << 1)
    )
    entries = [UNKNOWN_LOC, *attributes]
    sizes = lambda part: b"".join(number(len(entry) << 1 | 1) for entry in part)
    type_sizes = b"".join(number(len(t) << 1 | isinstance(t, bytes)) for t in types)
    types = [t if isinstance(t, bytes) else t.encode() for t in types]
    if table is None:
        table = numbers(len(entries), len(types), 0, 1) + sizes(entries[:1])
        if attributes:
            table += numbers(entry_dialect, len(attributes)) + sizes(attributes)
        if types:
            table += numbers(type_dialect, len(types)) + type_sizes
    if ir is None:
        mask = 0x10 | (dictionary is not None)
        ir = number(2) + number(0) + bytes([mask]) + number(0)
        ir += b"" if dictionary is None else number(dictionary)
        ir += number(1 << 1 | 1) + BODY
    return (
        b"ML\xefR"
        + number(6)
        + b"x\0"
        + section(0, string_section or strings(*names))
        + section(1, dialect_section)
        + section(2, b"".join(entries) + b"".join(types))
        + section(3, table)
        + section(4, ir)
        + section(8, properties)
        + extra
    )


def holding(attribute, *types, more=(), **others):
    """The attribute as the location's metadata: the module's location is a fused
    one that has it."""
    fused = numbers(13, 0, 2)
    return module(
        attributes=[fused, attribute, *more],
        types=types,
        ir=number(2) + number(0) + b"\x10" + number(1) + number(3) + BODY,
        **others,
    )


def operation(mask, rest, attributes=(), types=(INTEGER(1),), block=None):
    """A module with one unregistered operation in its body."""
    inner = block or (number(1) + numbers(1, 1 << 1))
    inner += number(1) + bytes([mask]) + number(0) + rest
    body = section(4, inner)
    return module(
        attributes=attributes,
        types=types,
        ir=number(2) + number(0) + b"\x10" + number(0) + number(3) + body,
    )


INPUTS = {
    "valid": module(),
    "valid-metadata": holding(number(7)),
    "valid-operation": operation(0x02, numbers(1, 0)),
    # Counts that are believed before what they count is read.
    "count-of-strings": module(string_section=number(HUGE)),
    "count-of-dialects": module(dialect_section=number(HUGE)),
    "count-of-operation-names": module(dialect_section=numbers(1, 0, HUGE)),
    "count-of-properties": module(properties=number(HUGE)),
    "count-of-attributes": module(table=numbers(HUGE, 0)),
    "count-of-types": module(table=numbers(1, HUGE)),
    "count-of-elements": holding(numbers(0, HUGE)),
    "count-of-words": holding(numbers(8, 0, HUGE), INTEGER(128)),
    "count-of-dense-strings": holding(numbers(19, 1, 0), INTEGER(8), TENSOR(HUGE, 0)),
    "count-of-arguments": operation(0x10, numbers(2, 1, 0, 1) + number(HUGE)),
    "count-of-results": operation(0x02, number(HUGE)),
    "count-of-operands": operation(0x04, number(HUGE)),
    "count-of-successors": operation(0x08, number(HUGE)),
    "count-of-regions": operation(0x10, number(1 << 40)),
    "count-of-blocks": operation(0x10, numbers(2, 1 << 40, 0)),
    "count-of-values": operation(0x10, numbers(2, 1, (1 << 32) - 1)),
    # Tables that are written or read behind their end.
    "string-without-end": module(string_section=numbers(3, 0, 7, 8) + b"builtin\0module\0"),
    "more-attributes-than-claimed": module(table=numbers(1, 0, 0, 3) + numbers(3, 3, 3)),
    "resource-kind": module(
        extra=section(5, b"\1") + section(6, numbers(0, 0, 1, 0, 1) + b"\x77")
    ),
    "resource-alignment": module(
        extra=section(5, numbers((1 << 32) + 1, 1) + b"x")
        + section(6, numbers(0, 0, 1, 0, 7) + b"\0")
    ),
    "arguments-of-the-outermost-block": module(
        types=[INTEGER(1)], ir=numbers(1, 1, 0) + b"\0"
    ),
    "order-of-uses": operation(
        0x22, numbers(1, 0, 2 << 1 | 1, 1 << 20, 0) + number(1) + b"\x04" + numbers(0, 2, 0, 0),
        block=number(1) + numbers(1, 2 << 1),
    ),
    "order-of-no-value": operation(
        0x22, numbers(2, 0, 0, 1, (1 << 32) - 1, 0), block=number(1) + numbers(2, 1 << 1)
    ),
    # Attributes without an end.
    "attribute-in-itself": holding(numbers(0, 1, 2)),
    "debug-type-in-itself": module(
        dialects=(b"builtin", b"llvm"),
        entry_dialect=1,
        # A derived type whose base it is itself.
        attributes=[numbers(3, 1, 0, 1 << 1 | 1, 8, 0, 0, 0, 0)],
        ir=number(2) + number(0) + b"\x10" + number(1) + number(3) + BODY,
    ),
    # Attributes that are not what their type says.
    "float-of-another-type": holding(numbers(9, 0, 0), INTEGER(8)),
    "float-that-ends": holding(numbers(9, 0), number(5)),
    "dense-without-number": holding(numbers(18, 1, 1) + b"x", number(12), TENSOR(2, 0)),
    "dense-too-short": holding(
        numbers(18, 1, 3) + b"xyz", INTEGER(8), TENSOR(1 << 40, 0)
    ),
    "dense-of-nothing": holding(numbers(18, 1, 2) + b"xy", INTEGER(0), TENSOR(2, 0)),
    "dense-of-mixed-bits": holding(
        numbers(18, 1, 1) + b"\3", INTEGER(1), TENSOR(1 << 40, 0)
    ),
    "array-of-another-dialect": holding(
        numbers(17, 0, 1, 8) + b"12345678",
        "!llvm.ptr\0",
        dialects=(b"builtin", b"llvm"),
        type_dialect=1,
    ),
    "array-of-index": holding(numbers(17, 0, 1, 8) + b"12345678", number(1)),
}

folder = pathlib.Path(sys.argv[1])
for name, data in INPUTS.items():
    (folder / f"{name}.mlirbc").write_bytes(data)
