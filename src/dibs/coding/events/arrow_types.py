"""The Arrow types: which kind of value they hold, what is a list, an object, or only another way to write an array; and
whether an array is what its type says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arrays import from_numpy, to_numpy


def _roles() -> dict[int, str]:
    """Type id -> what arrays of this type are read as. Types that are not here hold nothing that can be read."""
    sample = pa.int8()
    types: dict[str, list[pa.DataType]] = {
        "null": [pa.null()],
        "boolean": [pa.bool_()],
        "number": [
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.float16(), pa.float32(), pa.float64()),
            *(pa.decimal128(1), pa.decimal256(1)),
            *(getattr(pa, name)(1) for name in ("decimal32", "decimal64") if hasattr(pa, name)),  # from pyarrow 19 on
        ],
        "text": [pa.string(), pa.large_string(), pa.string_view()],
        "time": [pa.date32(), pa.date64(), pa.timestamp("us")],
        "list": [pa.list_(sample), pa.large_list(sample), pa.list_(sample, 1)],
        "list view": [pa.list_view(sample), pa.large_list_view(sample)],
        "struct": [pa.struct([])],
        "map": [pa.map_(pa.string(), sample)],
        "dictionary": [pa.dictionary(sample, sample)],
        "runs": [pa.run_end_encoded(pa.int16(), sample)],
        "extension": [pa.bool8()],
    }
    return {type_.id: role for role, alike in types.items() for type_ in alike}


ROLE = _roles()
WRAPPERS = ("dictionary", "runs", "extension")  # only another way to write a plain array
LISTS = ("list", "list view")
_FLAT = ("number", "time", "boolean", "null")  # nothing but values of one size


def unwrap(array: pa.Array, keep: NDArray[np.bool_] | None = None) -> pa.Array:
    """The array inside a wrapper. `keep`: the elements that count; others may become anything."""
    role = ROLE[array.type.id]
    if role == "extension":
        # Of all extension types only this one has values that are not those of its storage.
        return array.storage.cast(pa.bool_()) if array.type.extension_name == "arrow.bool8" else array.storage
    if role == "dictionary":
        values, indices = array.dictionary, array.indices
        if keep is not None:  # below a null struct Arrow itself makes indices that point outside the dictionary
            indices = pc.if_else(from_numpy(keep), indices, pa.scalar(None, indices.type))
    else:
        rows = np.arange(array.offset, array.offset + len(array))
        values, indices = array.values, from_numpy(np.searchsorted(to_numpy(array.run_ends), rows, side="right"))
    if ROLE.get(values.type.id) == "text":  # views have no take, and 32-bit offsets may not be enough for the repeats
        values = values.cast(pa.large_string())
    return values.take(indices)


def role_inside(type_: pa.DataType) -> str:
    """The role of what lists and wrappers hold in the end; "" for a type that cannot be read."""
    role = ROLE.get(type_.id, "")
    while role in LISTS or role in WRAPPERS:
        type_ = type_.storage_type if role == "extension" else type_.value_type
        role = ROLE.get(type_.id, "")
    return role


def holds_objects(type_: pa.DataType) -> bool:
    return role_inside(type_) in ("struct", "map")


def check_layout(array: pa.Array) -> None:
    """Raises ArrowInvalid if the array leads out of its buffers, or what is inside of it does: kernels follow offsets
    as they are, and so does much of Arrow. (Its own full check takes fifty times as long, and also refuses strings that
    are not UTF-8, of which we tell the rows, and codes of dictionaries below a null, which `unwrap` leaves out.)"""
    array.validate()  # sizes of buffers and children, first and last offsets
    waiting, below_nulls = [array], False
    while waiting:
        array = waiting.pop()
        role = ROLE.get(array.type.id)
        if role in _FLAT or not len(array):
            continue
        if role == "text" and not pa.types.is_string_view(array.type):
            wide = pa.types.is_large_string(array.type)
            own = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32)[array.offset :]
            data = array.buffers()[2]
            _check_offsets(own[: len(array) + 1], 0 if data is None else data.size, array.type)
        elif role == "text":
            array.view(pa.binary_view()).validate(full=True)
        elif role == "struct":
            below_nulls |= array.null_count > 0
            waiting += (array.field(place) for place in range(array.type.num_fields))
        elif role == "map":
            _check_offsets(to_numpy(array.offsets), len(array.keys), array.type)
            waiting += (array.keys, array.items)
        elif role == "list":
            if not pa.types.is_fixed_size_list(array.type):
                _check_offsets(to_numpy(array.offsets), len(array.values), array.type)
            waiting.append(array.values)
        elif role == "list view":
            first, size = to_numpy(array.offsets).astype(np.int64), to_numpy(array.sizes).astype(np.int64)
            if min(first.min(), size.min()) < 0 or (first + size).max() > len(array.values):
                raise pa.ArrowInvalid(f"lists of an array of type {array.type} are not within its values")
            waiting.append(array.values)
        elif role == "dictionary":
            ends = pc.min_max(array.indices).as_py()
            if (
                not below_nulls
                and ends["max"] is not None
                and not 0 <= ends["min"] <= ends["max"] < len(array.dictionary)
            ):
                raise pa.ArrowInvalid(f"codes of an array of type {array.type} have no value in its dictionary")
            waiting.append(array.dictionary)
        elif role in WRAPPERS:
            waiting.append(array.storage if role == "extension" else array.values)
        elif pa.types.is_union(array.type):
            array.validate(full=True)


def _check_offsets(offsets: NDArray[Any], end: int, type_: pa.DataType) -> None:
    if offsets[0] < 0 or offsets[-1] > end or (offsets[1:] < offsets[:-1]).any():
        raise pa.ArrowInvalid(f"the offsets of an array of type {type_} are out of order")
