"""The layout of LMDB's file, for kernels that read its pages where they lie: an index in pages (pbtree) and the check
of a whole file (segments.lmdb_check). LMDB itself writes them; nothing here does.

A file is pages of one size; page 0 and 1 are meta pages, of which the one with the higher transaction number counts.
Kernels take the file twice: as uint16 `u2` and uint64 `u8`. All of it is even; heads of pages are multiples of 8.

    page     number u64, pad u16 (size of a LEAF2 entry), flags u16, then
             lower u16, upper u16: where the free space is;  or, of an OVERFLOW page: how many pages u32
             then, unless it is OVERFLOW or LEAF2: (lower - 16) / 2 offsets u16 of nodes, in the order of their keys
    node     low u16, high u16, flags u16, key size u16, then the key, then (of a leaf) the data
             leaf: low | high << 16 is the size of the data; BIGDATA: the data is the number of an overflow page;
             SUBDATA: it is a tree (48 bytes, below); DUPDATA without SUBDATA: it is a page within the page
             branch: low | high << 16 | flags << 32 is the child; the first key is not there (its size is 0)
    LEAF2    keys of one size, one after the other, from byte 16
    tree     pad u32, flags u16, depth u16, branch pages, leaf pages, overflow pages, entries, root page (u64 each)
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import lmdb
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

HEAD = 16  # bytes of a page before its offsets
NODE = 8  # bytes of a node before its key
BRANCH, LEAF, OVERFLOW, META, LEAF2, SUBPAGE = 0x01, 0x02, 0x04, 0x08, 0x20, 0x40  # flags of a page
BIGDATA, SUBDATA, DUPDATA = 0x01, 0x02, 0x04  # flags of a node
NO_PAGE = 2**64 - 1  # the root of an empty tree
MAGIC, LAYOUT = 0xBEEFC0DE, 1
# To lmdb.open: this layout (that of LMDB 0.9), whatever others the package brings and the environment prefers.
OLD_LAYOUT: dict[str, Any] = {"lib_version": 0} if hasattr(lmdb.Environment, "lib_version") else {}


class Tree(NamedTuple):
    pad: int  # of the tree of free pages: the size of a page; of duplicates of one size: that size
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


TREE = struct.Struct("<IHHQQQQQ")  # 48 bytes


class Meta(NamedTuple):
    magic: int
    layout: int
    map_size: int
    free: Tree  # by transaction: the pages it no longer needs
    main: Tree
    last_page: int
    transaction: int


def meta(page: bytes) -> Meta:
    """What a meta page says."""
    magic, layout, _, size = struct.unpack_from("<IIQQ", page, HEAD)
    free, main = (Tree(*TREE.unpack_from(page, HEAD + 24 + TREE.size * i)) for i in (0, 1))
    last, transaction = struct.unpack_from("<QQ", page, HEAD + 24 + 2 * TREE.size)
    return Meta(magic, layout, size, free, main, last, transaction)


@njit(cache=True, nogil=True, inline="always")
def u32(u2, at):  # type: ignore[no-untyped-def]
    """The 32 bits at byte `at`."""
    i = at >> 1
    return np.int64(u2[i]) | np.int64(u2[i + 1]) << 16


@njit(cache=True, nogil=True, inline="always")
def u48(u2, at):  # type: ignore[no-untyped-def]
    """A page number: 48 bits at byte `at` (the upper 16 are 0 in any file of less than 2 ** 60 bytes)."""
    i = at >> 1
    return np.int64(u2[i]) | np.int64(u2[i + 1]) << 16 | np.int64(u2[i + 2]) << 32


@njit(cache=True, nogil=True, inline="always")
def flags(u2, page):  # type: ignore[no-untyped-def]
    """The flags of the page that begins at byte `page`."""
    return np.int64(u2[(page + 10) >> 1])


@njit(cache=True, nogil=True, inline="always")
def count(u2, page):  # type: ignore[no-untyped-def]
    """How many nodes (or LEAF2 entries) the page has."""
    return (np.int64(u2[(page + 12) >> 1]) - HEAD) >> 1


@njit(cache=True, nogil=True, inline="always")
def node(u2, page, i):  # type: ignore[no-untyped-def]
    """Where node i begins."""
    return page + np.int64(u2[(page + HEAD + 2 * i) >> 1])


@njit(cache=True, nogil=True, inline="always")
def key_size(u2, at):  # type: ignore[no-untyped-def]
    """The size of the key of the node that begins at byte `at`; the key is NODE further."""
    return np.int64(u2[(at + 6) >> 1])


# The same by addresses instead of arrays, for kernels that go from page to page: what is passed on is a number, nothing
# is counted as a reference (which took half of the time of a search), and one load gets what arrays of 16 bits get in
# four. The caller keeps the memory. `page` and `at` are addresses of a page and of a node.


def _loaded(bits: int) -> Any:
    @intrinsic
    def load(typingctx, address):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            found = builder.load(pointer, align=1)
            return found if bits == 64 else builder.zext(found, ir.IntType(64))

        return types.int64(types.int64), code

    return load


load16, load32, load64 = (_loaded(bits) for bits in (16, 32, 64))


@njit(cache=True, nogil=True)
def flags_at(page):  # type: ignore[no-untyped-def]
    return load16(page + 10)


@njit(cache=True, nogil=True)
def count_at(page):  # type: ignore[no-untyped-def]
    return (load16(page + 12) - HEAD) >> 1


@njit(cache=True, nogil=True)
def node_at(page, i):  # type: ignore[no-untyped-def]
    return page + load16(page + HEAD + 2 * i)


@njit(cache=True, nogil=True)
def child_at(at):  # type: ignore[no-untyped-def]
    """The number of the page below a node of a branch page."""
    return load32(at) | load16(at + 4) << 32
