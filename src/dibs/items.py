"""The checks on single ids, weights and items before anything is compiled. (Those on tables are in dibs.intake.)"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dibs.arguments import DEFAULT_WEIGHT, Id, is_integer
from dibs.errors import DibsError, ExpressionError, Problem, show
from dibs.language.sql import parse


def check_id(id: Any) -> Id:
    if is_integer(id):
        id = int(id)
        if not -(2**63) <= id < 2**63:
            raise DibsError(f"the id {show(id)} does not fit in a signed integer of 64 bits; use a string")
        return id
    if not isinstance(id, str):
        raise DibsError(f"an id is a string or an integer, not {show(id)}")
    try:
        id.encode()
    except UnicodeEncodeError:
        raise DibsError(f"the id {id!r} is not valid Unicode (lone surrogate)") from None
    return str(id)


def sought_id(id: Any) -> Id | None:
    """The id that is asked for; None if no subscription can have it."""
    try:
        return check_id(id)
    except DibsError:
        return None


def id_order(id: Id) -> tuple[bool, Id]:
    """The order of ids: integers first, then strings by code point."""
    return isinstance(id, str), id


def check_weight(weight: Any) -> float:
    if not is_integer(weight) and not isinstance(weight, (float, np.floating)):
        raise DibsError(f"a weight is an integer or a float, not {show(weight)}; pass float(weight) if it is a number")
    try:
        result = float(weight)
    except OverflowError:
        raise DibsError(f"the weight {show(weight)} does not fit in a float64") from None
    if math.isnan(result):
        raise DibsError("a weight is a number, not NaN")
    return result


def check_item(item: Any) -> tuple[Id, str, float]:
    if not isinstance(item, (tuple, list)) or len(item) not in (2, 3):
        raise DibsError(f"expected (id, expression) or (id, expression, weight), found {show(item)}")
    id, text = check_id(item[0]), item[1]
    if not isinstance(text, str):
        raise ExpressionError([Problem(f"an expression is a string, not {type(text).__name__}")])
    try:
        text.encode()
    except UnicodeEncodeError:
        parse(text)  # says where
    return id, text, check_weight(item[2]) if len(item) == 3 else DEFAULT_WEIGHT
