"""Machine operations that Numba has no name for: vectors of mask words, bit counts (and prefetching).

LLVM does not find the vectors by itself: a kernel that writes one array while it reads another must expect them to
overlap. `lanes` is a tuple whose length is the number of 64-bit words of a mask; indexes count words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from dibs.jit.operations import check_place, operation
from dibs.jit.prefetching import place_of
from dibs.jit.prefetching import prefetch as prefetch

WORD_TYPE = ir.IntType(64)


def _words(masks: Any, at: Any, width: int) -> Any:
    """The words themselves, not a copy."""
    check_place(masks, int(at), width)
    return np.asarray(masks)[int(at) : int(at) + width]


def _filled(held: Any) -> Any:
    return np.uint64(sum(1 << i for i, word in enumerate(held.tolist()) if word))


def _vector(context: Any, builder: Any, kind: Any, array: Any, at: Any, width: int) -> Any:
    """A pointer to `width` words from array[at] on."""
    place = place_of(context, builder, kind, array, at, width)
    return builder.bitcast(place, ir.VectorType(WORD_TYPE, width).as_pointer())


def _some(builder: Any, vector: Any, width: int) -> Any:
    """The OR of all words of a vector."""
    name = f"llvm.vector.reduce.or.v{width}i64"
    kind = ir.FunctionType(WORD_TYPE, [ir.VectorType(WORD_TYPE, width)])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])


def _plain_and_two(lanes, masks, a, b, out, to):
    n = len(lanes)
    both = _words(masks, a, n) & _words(masks, b, n)
    _words(out, to, n)[:] = both
    return np.bitwise_or.reduce(both)


@operation(_plain_and_two)
def and_two(typingctx, lanes, masks, a, b, out, to):
    """out[to:] = masks[a:] & masks[b:]; returns the OR of the words: 0 when the mask is empty."""

    def code(context, builder, signature, args):
        width, kinds = len(signature.args[0]), signature.args
        x, y = (
            builder.load(_vector(context, builder, kinds[1], args[1], at, width), align=8) for at in (args[2], args[3])
        )
        target = _vector(context, builder, kinds[4], args[4], args[5], width)
        both = builder.and_(x, y)
        builder.store(both, target, align=8)
        return _some(builder, both, width)

    return types.uint64(lanes, masks, a, b, out, to), code


def _plain_and_not(lanes, masks, a, b, out, to):
    n = len(lanes)
    _words(out, to, n)[:] = _words(masks, a, n) & ~_words(masks, b, n)


@operation(_plain_and_not)
def and_not(typingctx, lanes, masks, a, b, out, to):
    """out[to:] = masks[a:] & ~masks[b:]."""

    def code(context, builder, signature, args):
        width, kinds = len(signature.args[0]), signature.args
        x, y = (
            builder.load(_vector(context, builder, kinds[1], args[1], at, width), align=8) for at in (args[2], args[3])
        )
        target = _vector(context, builder, kinds[4], args[4], args[5], width)
        builder.store(builder.and_(x, builder.not_(y)), target, align=8)
        return context.get_dummy_value()

    return types.void(lanes, masks, a, b, out, to), code


def _plain_or_and_not(lanes, masks, a, b, out, to):
    n = len(lanes)
    _words(out, to, n)[:] |= _words(masks, a, n) & ~_words(masks, b, n)


@operation(_plain_or_and_not)
def or_and_not(typingctx, lanes, masks, a, b, out, to):
    """out[to:] |= masks[a:] & ~masks[b:]."""

    def code(context, builder, signature, args):
        width, kinds = len(signature.args[0]), signature.args
        place = _vector(context, builder, kinds[4], args[4], args[5], width)
        x, y = (
            builder.load(_vector(context, builder, kinds[1], args[1], at, width), align=8) for at in (args[2], args[3])
        )
        more = builder.and_(x, builder.not_(y))
        builder.store(builder.or_(builder.load(place, align=8), more), place, align=8)
        return context.get_dummy_value()

    return types.void(lanes, masks, a, b, out, to), code


def _plain_and_run(lanes, masks, numbers, first, last, out, to):
    n = len(lanes)
    held = _words(out, to, n)
    for number in numbers[first:last]:
        held &= _words(masks, n * int(number), n)
    return _filled(held)


@operation(_plain_and_run)
def and_run(typingctx, lanes, masks, numbers, first, last, out, to):
    """out[to:] &= masks[width * n:] for each n of numbers[first:last]; returns a bit for each word: not 0."""

    def code(context, builder, signature, args):
        width, kinds = len(signature.args[0]), signature.args
        place = _vector(context, builder, kinds[5], args[5], args[6], width)
        held = cgutils.alloca_once_value(builder, builder.load(place, align=8))
        with cgutils.for_range_slice(builder, args[3], args[4], ir.Constant(WORD_TYPE, 1), WORD_TYPE) as (at, _):
            number = builder.zext(builder.load(place_of(context, builder, kinds[2], args[2], at)), WORD_TYPE)
            start = builder.mul(number, ir.Constant(WORD_TYPE, width))
            mask = builder.load(_vector(context, builder, kinds[1], args[1], start, width), align=8)
            builder.store(builder.and_(builder.load(held), mask), held)
        result = builder.load(held)
        builder.store(result, place, align=8)
        zero = ir.Constant(ir.VectorType(WORD_TYPE, width), [0] * width)
        filled = builder.icmp_unsigned("!=", result, zero)
        return builder.zext(builder.bitcast(filled, ir.IntType(width)), WORD_TYPE)

    return types.uint64(lanes, masks, numbers, types.int64, types.int64, out, to), code


def _plain_and_lines(lanes, masks, starts, line, first, last, out):
    n = len(lanes)
    held = _words(out, 0, n)
    held[:] = np.uint64(0xFFFFFFFFFFFFFFFF)
    for start in starts[first:last]:
        held &= _words(masks, n * (int(start) + int(line)), n)
    return _filled(held)


@operation(_plain_and_lines)
def and_lines(typingctx, lanes, masks, starts, line, first, last, out):
    """out[:] = the AND of masks[width * (n + line):] for each n of starts[first:last]; returns a bit for each word: not
    0. Of none, all bits."""

    def code(context, builder, signature, args):
        width, kinds = len(signature.args[0]), signature.args
        everything = ir.Constant(ir.VectorType(WORD_TYPE, width), [-1] * width)
        held = cgutils.alloca_once_value(builder, everything)
        with cgutils.for_range_slice(builder, args[4], args[5], ir.Constant(WORD_TYPE, 1), WORD_TYPE) as (at, _):
            number = builder.add(builder.load(place_of(context, builder, kinds[2], args[2], at)), args[3])
            start = builder.mul(number, ir.Constant(WORD_TYPE, width))
            mask = builder.load(_vector(context, builder, kinds[1], args[1], start, width), align=8)
            builder.store(builder.and_(builder.load(held), mask), held)
        result = builder.load(held)
        builder.store(result, _vector(context, builder, kinds[6], args[6], ir.Constant(WORD_TYPE, 0), width), align=8)
        zero = ir.Constant(ir.VectorType(WORD_TYPE, width), [0] * width)
        filled = builder.icmp_unsigned("!=", result, zero)
        return builder.zext(builder.bitcast(filled, ir.IntType(width)), WORD_TYPE)

    return types.uint64(lanes, masks, starts, types.int64, types.int64, types.int64, out), code


def _plain_split(lanes, masks, mask, reach, step, yes, no):
    n = len(lanes)
    held, here = _words(masks, mask, n), _words(reach, step, n)
    moved = here.copy()
    here[:] = 0
    _words(reach, yes, n)[:] |= moved & held
    _words(reach, no, n)[:] |= moved & ~held


@operation(_plain_split)
def split(typingctx, lanes, masks, mask, reach, step, yes, no):
    """Moves the events at reach[step:] on: those in masks[mask:] join reach[yes:], the others reach[no:]."""

    def code(context, builder, signature, args):
        width, kinds = len(signature.args[0]), signature.args
        held = _vector(context, builder, kinds[1], args[1], args[2], width)
        here, there, away = (_vector(context, builder, kinds[3], args[3], args[i], width) for i in (4, 5, 6))
        x, m = builder.load(here, align=8), builder.load(held, align=8)
        builder.store(ir.Constant(ir.VectorType(WORD_TYPE, width), [0] * width), here, align=8)
        for place, part in ((there, builder.and_(x, m)), (away, builder.and_(x, builder.not_(m)))):
            builder.store(builder.or_(builder.load(place, align=8), part), place, align=8)
        return context.get_dummy_value()

    return types.void(lanes, masks, mask, reach, step, yes, no), code


def _plain_clear(lanes, masks, at):
    _words(masks, at, len(lanes))[:] = 0


@operation(_plain_clear)
def clear(typingctx, lanes, masks, at):
    """masks[at:] = 0."""

    def code(context, builder, signature, args):
        width = len(signature.args[0])
        place = _vector(context, builder, signature.args[1], args[1], args[2], width)
        builder.store(ir.Constant(ir.VectorType(WORD_TYPE, width), [0] * width), place, align=8)
        return context.get_dummy_value()

    return types.void(lanes, masks, at), code


def _plain_is_empty(lanes, masks, at):
    return not _words(masks, at, len(lanes)).any()


@operation(_plain_is_empty)
def is_empty(typingctx, lanes, masks, at):
    """Whether the mask at masks[at:] is empty."""

    def code(context, builder, signature, args):
        width = len(signature.args[0])
        vector = builder.load(_vector(context, builder, signature.args[1], args[1], args[2], width), align=8)
        return builder.icmp_unsigned("==", _some(builder, vector, width), ir.Constant(WORD_TYPE, 0))

    return types.boolean(lanes, masks, at), code


def _plain_lowest_bit(x):
    return np.int64((int(x) & -int(x)).bit_length() - 1)


@operation(_plain_lowest_bit)
def lowest_bit(typingctx, x):
    """The number of the lowest set bit of a word that is not 0."""

    def code(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), code


def _plain_count_bits(x):
    return np.int64(int(x).bit_count())


@operation(_plain_count_bits)
def count_bits(typingctx, x):
    """How many bits of a word are set."""

    def code(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), code
