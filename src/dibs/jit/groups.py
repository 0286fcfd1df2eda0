"""Groups of arrays, each declared once: a NamedTuple says what a kernel is handed, and everything else follows from it.

    class Slots(NamedTuple):
        lo: Annotated[NDArray[np.int32], Clean("attributes")]
        more: Annotated[NDArray[np.int64], Columns(2), Clean("attributes")]

    class Space(NamedTuple):
        slots: Slots            # groups may hold groups
        text: Annotated[NDArray[np.uint8], Sized("text")]
        rows: int               # and plain numbers

- `Table` writes the arrays of groups down as addresses and lengths: a call from Python costs one number then, however
  many arrays there are. Each array is checked against its declaration: type, columns, contiguous.
- Kernels take a group, or a part of it, by the address of its table: jit.group_at. The arrays have their true lengths,
  so bounds checks see them.
- `allocate` makes the arrays of a work space.
- `save` and `restore` give arrays the names that they have in files.

To add an array is one line, in its group.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

ENTRY = 16  # bytes of an array in a table (its address and its length), or of a number
Group = TypeVar("Group", bound=tuple[Any, ...])


class Columns(NamedTuple):
    """The array has two dimensions, the second of so many."""

    count: int  # type: ignore[assignment]  # hides tuple.count


class Sized(NamedTuple):
    """How long `allocate` makes an array, of any content: a number, or the name of a size."""

    size: int | str


class Clean(NamedTuple):
    """The same, of zeros: a kernel finds and leaves it like that (jit.pools)."""

    size: int | str


class Saved(NamedTuple):
    """The name of the array in files, if not that of the field. None: it is not saved but made again."""

    name: str | None


class Field(NamedTuple):
    name: str
    kind: Any  # a NumPy type; a group; or int, for a number
    columns: int  # 0: one dimension
    made: Sized | Clean | None
    saved: str | None

    @property
    def is_group(self) -> bool:
        return isinstance(self.kind, type) and issubclass(self.kind, tuple)


@cache
def fields_of(group: type) -> tuple[Field, ...]:
    hints = get_type_hints(group, include_extras=True)
    return tuple(_field(group, name, hints[name]) for name in group._fields)  # type: ignore[attr-defined]


def _field(group: type, name: str, hint: Any) -> Field:
    said: dict[Any, Any] = {}
    if hasattr(hint, "__metadata__"):
        said, hint = {type(word): word for word in hint.__metadata__}, hint.__origin__
    if get_origin(hint) is np.ndarray:
        kind = get_args(get_args(hint)[1])[0]
        if kind is Any:
            raise TypeError(f"{group.__name__}.{name} must say of which type its array is: NDArray[np.int64], say")
        hint = np.dtype(kind)
    elif hint is not int and not (isinstance(hint, type) and issubclass(hint, tuple)):
        raise TypeError(f"{group.__name__}.{name} must be an array (NDArray[np.int64]), a group or an int, not {hint}")
    made = said.get(Clean) or said.get(Sized)
    return Field(name, hint, said.get(Columns, Columns(0)).count, made, said.get(Saved, Saved(name)).name)


# ---- tables ----


@cache
def entries_in(group: type) -> int:
    """How many entries it has in a table."""
    return sum(entries_in(field.kind) if field.is_group else 1 for field in fields_of(group))


def size_of(group: type) -> int:
    """The bytes of its entries in a table."""
    return ENTRY * entries_in(group)


@cache
def find(group: type, path: str) -> tuple[int, Field]:
    """Where the entries of a part begin, and what it is. path: the names that lead there, with dots between."""
    name, _, rest = path.partition(".")
    at = 0
    for field in fields_of(group):
        if field.name == name:
            if not rest:
                return at, field
            further, found = find(field.kind, rest)
            return at + further, found
        at += entries_in(field.kind) if field.is_group else 1
    raise AttributeError(f"{group.__name__} has no part {path}")


def fingerprint(*groups: type) -> int:
    """Another number for groups that are laid out otherwise: by it a kernel knows the tables that it was compiled
    for."""
    return zlib.crc32(repr([_described(group) for group in groups]).encode())


def _described(group: type) -> list[Any]:
    return [
        (field.name, _described(field.kind) if field.is_group else str(field.kind), field.columns)
        for field in fields_of(group)
    ]


def numbers_of(kind: type, group: tuple[Any, ...]) -> list[int]:
    """The entries of a group of a kind: two numbers each."""
    result: list[int] = []
    for field, value in zip(fields_of(kind), group, strict=True):
        result += numbers_of(field.kind, value) if field.is_group else _entry(field, value)
    return result


def _entry(field: Field, value: Any) -> tuple[int, int]:
    if field.kind is int:
        return value, 0
    fits = value.dtype == field.kind and value.flags.c_contiguous
    if not fits or value.shape[1:] != ((field.columns,) if field.columns else ()):
        wanted = f"{field.kind} of {f'n x {field.columns}' if field.columns else 'one dimension'}, contiguous"
        raise TypeError(f"{field.name} must be {wanted}; it is {value.dtype} of {value.shape}, strides {value.strides}")
    return value.__array_interface__["data"][0], len(value)


class Table:
    """The entries of groups, one behind the other, at an address; it holds their arrays."""

    def __init__(self, *groups: tuple[Any, ...]):
        self._take(np.array([n for group in groups for n in numbers_of(type(group), group)], np.int64), list(groups))

    def _take(self, numbers: NDArray[np.int64], held: list[Any]) -> None:
        self._numbers, self._held = numbers, held
        self.address: int = numbers.__array_interface__["data"][0]

    @classmethod
    def joined(cls, tables: list[Table]) -> Table:
        """Copies of several, one behind the other."""
        result = cls.__new__(cls)
        result._take(np.concatenate([table._numbers for table in tables]), [table._held for table in tables])
        return result

    def put(self, group: type, path: str, value: Any, first: int = 0) -> None:
        """Another array, or number, for a part of the group whose entries begin at `first`."""
        at, field = find(group, path)
        at = 2 * (first + at)
        self._numbers[at : at + 2] = _entry(field, value)
        self._held.append(value)


# ---- allocation ----


def allocate(group: type[Group], sizes: Any = None, **given: Any) -> Group:
    """A group of new arrays, as long as its declaration says. sizes: whose attributes are the sizes that it names.
    given: parts that are made otherwise, by name."""
    parts = [given[field.name] if field.name in given else _allocate(group, field, sizes) for field in fields_of(group)]
    return group._make(parts)  # type: ignore[attr-defined]


def _allocate(group: type, field: Field, sizes: Any) -> Any:
    if field.is_group:
        return allocate(field.kind, sizes)
    if field.made is None:
        raise TypeError(f"{group.__name__}.{field.name} does not say how long it is (Sized, Clean): hand it over")
    length = field.made.size if isinstance(field.made.size, int) else getattr(sizes, field.made.size)
    make = np.zeros if isinstance(field.made, Clean) else np.empty
    return make((length, field.columns) if field.columns else length, field.kind)


def empty(group: type[Group]) -> Group:
    """A group of empty arrays, and zeros: of what is not there."""
    parts = []
    for field in fields_of(group):
        if field.is_group:
            parts.append(empty(field.kind))
        else:
            shape = (0, field.columns) if field.columns else 0
            parts.append(0 if field.kind is int else np.empty(shape, field.kind))
    return group._make(parts)  # type: ignore[attr-defined]


# ---- files ----


def saved_names(group: type) -> tuple[str, ...]:
    """The names in files of its arrays that are saved."""
    return tuple(field.saved for field in fields_of(group) if field.saved is not None)


def save(group: tuple[Any, ...]) -> dict[str, NDArray[Any]]:
    """Its arrays by their names in files."""
    fields = fields_of(type(group))
    return {field.saved: value for field, value in zip(fields, group) if field.saved is not None}


def restore(group: type[Group], arrays: Mapping[str, NDArray[Any]], **made: Any) -> Group:
    """The group of these arrays. made: those that are not saved."""
    parts = [made[f.name] if f.saved is None else arrays[f.saved] for f in fields_of(group)]
    return group._make(parts)  # type: ignore[attr-defined]
