"""Three plain matchers to measure against: what a good engineer would write in an afternoon for integers only.

They take the arrays of `dibs.papers.workloads.boolean` as they are: no coding, no updates, one closed interval for each
predicate, one value for each attribute of an event. They see the events beforehand, so their order of predicates is
the best one that the frequencies of attributes can give. That is an advantage over Dibs, on purpose.

    AccessLists   subscriptions in lists by their most selective predicate, sorted by its lower end; an event walks
                  the lists of its attributes and checks the other predicates one by one
    BitSlices     256 events at once: for each attribute and value the mask of the events at or below it; a predicate
                  is two loads and an and-not, a subscription stops when its mask is empty
    Counting      NumPy only: count the predicates that hold, compare with how many a subscription has
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dibs.papers.workloads.boolean import Workload

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]  # event, subscription
FULL = -1  # a kernel's answer when the room for pairs is used up
LANES = 4  # words of 64 events


def _most_selective_first(w: Workload) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(attribute, low, high) with each subscription's predicates in order of the events they let through, estimated
    as frequency of the attribute x width of the interval."""
    frequency = np.bincount(w.event_attribute.ravel(), minlength=w.shape.attributes)
    estimate = frequency[w.attribute] * (w.high - w.low + 1.0)
    subscription = np.repeat(np.arange(w.subscriptions), np.diff(w.offsets))
    order = np.lexsort((estimate, subscription))
    return w.attribute[order], w.low[order], w.high[order]


def _runs(starts: NDArray[Any], sizes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places starts[i] .. starts[i] + sizes[i] - 1 of all i one after the other, and where each run begins."""
    begins = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=begins[1:])
    return np.arange(begins[-1]) + np.repeat(starts - begins[:-1], sizes), begins


class _WithRoom:
    """Room for pairs that grows until everything fits, then stays: a measured call allocates nothing."""

    def __init__(self) -> None:
        self._room: Pairs = (np.empty(1 << 16, np.int32), np.empty(1 << 16, np.int32))

    def match(self, attribute: NDArray[np.int32], value: NDArray[np.int32]) -> Pairs:
        """The pairs of the events whose attributes and values are given, a row each; valid until the next call."""
        while (found := self._fill(attribute, value, *self._room)) == FULL:
            size = 4 * len(self._room[0])
            self._room = (np.zeros(size, np.int32), np.zeros(size, np.int32))
        return self._room[0][:found], self._room[1][:found]

    def _fill(self, attribute: Any, value: Any, out_event: Any, out_subscription: Any) -> int:
        raise NotImplementedError


class AccessLists(_WithRoom):
    name: ClassVar[str] = "access lists"

    def __init__(self, w: Workload):
        super().__init__()
        attribute, low, high = _most_selective_first(w)
        access = w.offsets[:-1]
        order = np.lexsort((low[access], attribute[access]))
        rest, begins = _runs(access[order] + 1, np.diff(w.offsets)[order] - 1)
        lists = np.zeros(w.shape.attributes + 1, np.int32)
        np.cumsum(np.bincount(attribute[access], minlength=w.shape.attributes), out=lists[1:])
        self._arrays = (
            lists,
            low[access][order].astype(np.int16),
            high[access][order].astype(np.int16),
            order.astype(np.int32),
            begins.astype(np.int32),
            attribute[rest],
            low[rest].astype(np.int16),
            high[rest].astype(np.int16),
        )

    def _fill(self, attribute: Any, value: Any, out_event: Any, out_subscription: Any) -> int:
        return int(_walk_lists(*self._arrays, attribute, value, out_event, out_subscription))


@njit(cache=True, nogil=True)
def _walk_lists(  # type: ignore[no-untyped-def]
    lists,
    access_low,
    access_high,
    subscription,
    begins,
    rest_attribute,
    rest_low,
    rest_high,
    event_attribute,
    event_value,
    out_event,
    out_subscription,
):
    events, width = event_attribute.shape
    current = np.full(len(lists) - 1, -1, np.int16)  # the event's value of each attribute; -1: none
    found, room = 0, len(out_event)
    for event in range(events):
        for k in range(width):
            current[event_attribute[event, k]] = event_value[event, k]
        for k in range(width):
            a, v = event_attribute[event, k], event_value[event, k]
            for entry in range(lists[a], lists[a + 1]):
                if access_low[entry] > v:
                    break  # and so are all that follow
                if access_high[entry] < v:
                    continue
                holds = True
                for p in range(begins[entry], begins[entry + 1]):
                    x = current[rest_attribute[p]]
                    if x < rest_low[p] or x > rest_high[p]:
                        holds = False
                        break
                if holds:
                    if found == room:
                        return FULL
                    out_event[found] = event
                    out_subscription[found] = subscription[entry]
                    found += 1
        for k in range(width):
            current[event_attribute[event, k]] = -1
    return found


class BitSlices(_WithRoom):
    name: ClassVar[str] = "bit slices"

    def __init__(self, w: Workload):
        super().__init__()
        attribute, low, high = _most_selective_first(w)
        self._stride = w.shape.cardinality + 1  # of an attribute: mask 0 is empty, mask v + 1 has the values up to v
        upper = ((attribute.astype(np.int64) * self._stride + high + 1) * LANES).astype(np.uint32)
        lower = ((attribute.astype(np.int64) * self._stride + low) * LANES).astype(np.uint32)
        first = w.offsets[:-1]
        second = np.minimum(first + 1, w.offsets[1:] - 1)
        # Equal first predicates stand together and share one mask; equal second ones are warm in the cache.
        order = np.lexsort((lower[second], upper[second], lower[first], upper[first]))
        predicate, begins = _runs(first[order], np.diff(w.offsets)[order])
        self._masks = np.zeros(w.shape.attributes * self._stride * LANES, np.uint64)
        self._arrays = begins.astype(np.uint32), upper[predicate], lower[predicate], order.astype(np.int32)

    def _fill(self, attribute: Any, value: Any, out_event: Any, out_subscription: Any) -> int:
        found, block = 0, 64 * LANES
        for base in range(0, len(attribute), block):
            _fill_masks(self._masks, self._stride, attribute[base : base + block], value[base : base + block])
            found = _and_masks(self._masks, *self._arrays, base, out_event, out_subscription, found)
            if found == FULL:
                break
        return found


@intrinsic
def _lowest_bit(typingctx, word):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), code


@njit(cache=True, nogil=True)
def _fill_masks(masks, stride, event_attribute, event_value):  # type: ignore[no-untyped-def]
    masks[:] = 0
    events, width = event_attribute.shape
    for event in range(events):
        lane, bit = event >> 6, np.uint64(1) << np.uint64(event & 63)
        for k in range(width):
            masks[(event_attribute[event, k] * stride + event_value[event, k] + 1) * LANES + lane] |= bit
    for first in range(0, len(masks), stride * LANES):
        for i in range(first + LANES, first + stride * LANES):
            masks[i] |= masks[i - LANES]


@njit(cache=True, nogil=True)
def _write(word, event, subscription, out_event, out_subscription, found):  # type: ignore[no-untyped-def]
    while word != 0:
        out_event[found] = event + _lowest_bit(word)
        out_subscription[found] = subscription
        found += 1
        word &= word - np.uint64(1)
    return found


@njit(cache=True, nogil=True)
def _and_masks(masks, begins, upper, lower, subscription, base, out_event, out_subscription, found):  # type: ignore[no-untyped-def]
    one, two, three = np.uint32(1), np.uint32(2), np.uint32(3)
    shared_upper = shared_lower = np.uint32(0xFFFFFFFF)
    s0 = s1 = s2 = s3 = np.uint64(0)
    room = len(out_event) - 64 * LANES
    for i in range(len(subscription)):
        p, end = begins[i], begins[i + 1]
        u, w = upper[p], lower[p]
        if u != shared_upper or w != shared_lower:
            s0 = masks[u] & ~masks[w]
            s1 = masks[u + one] & ~masks[w + one]
            s2 = masks[u + two] & ~masks[w + two]
            s3 = masks[u + three] & ~masks[w + three]
            shared_upper, shared_lower = u, w
        m0, m1, m2, m3 = s0, s1, s2, s3
        p += one
        while p < end and (m0 | m1 | m2 | m3) != 0:
            u, w = upper[p], lower[p]
            m0 &= masks[u] & ~masks[w]
            m1 &= masks[u + one] & ~masks[w + one]
            m2 &= masks[u + two] & ~masks[w + two]
            m3 &= masks[u + three] & ~masks[w + three]
            p += one
        if (m0 | m1 | m2 | m3) != 0:
            if found > room:
                return FULL
            s = subscription[i]
            found = _write(m0, base, s, out_event, out_subscription, found)
            found = _write(m1, base + 64, s, out_event, out_subscription, found)
            found = _write(m2, base + 128, s, out_event, out_subscription, found)
            found = _write(m3, base + 192, s, out_event, out_subscription, found)
    return found


class Counting:
    name: ClassVar[str] = "NumPy counting"

    def __init__(self, w: Workload):
        order = np.lexsort((w.low, w.attribute))
        subscription = np.repeat(np.arange(w.subscriptions, dtype=np.int32), np.diff(w.offsets))
        self._low, self._high, self._subscription = w.low[order], w.high[order], subscription[order]
        self._starts = np.searchsorted(w.attribute[order], np.arange(w.shape.attributes + 1))
        self._size = np.diff(w.offsets).astype(np.uint8)
        self._count = np.zeros(w.subscriptions, np.uint8)

    def match(self, attribute: NDArray[np.int32], value: NDArray[np.int32]) -> Pairs:
        found = [self._one(a, v) for a, v in zip(attribute.tolist(), value.tolist())]
        event = np.repeat(np.arange(len(found), dtype=np.int32), [len(f) for f in found])
        return event, np.concatenate([np.empty(0, np.int32), *found])

    def _one(self, attributes: list[int], values: list[int]) -> NDArray[np.int32]:
        touched, complete = [], []
        for a, v in zip(attributes, values):
            first = self._starts[a]
            last = first + np.searchsorted(self._low[first : self._starts[a + 1]], v, side="right")
            hit = self._subscription[first:last][self._high[first:last] >= v]
            self._count[hit] += 1  # a subscription has an attribute once, so no place stands here twice
            complete.append(hit[self._count[hit] == self._size[hit]])
            touched.append(hit)
        for hit in touched:
            self._count[hit] = 0
        return np.concatenate(complete)
