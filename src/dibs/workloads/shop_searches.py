"""The saved searches of the shop's customers: SQL texts about products of the catalogue."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.workloads.shop_catalogue import Catalogue

SIZES = [0.10, 0.25, 0.30, 0.20, 0.10, 0.05]  # share of the subscriptions with 1, 2, ... predicates
OFF_THE_PRODUCT = 0.12  # share of the predicates whose value is not the product's
TITLE_WEIGHT = 0.1  # every product has a title, but few searches look into it

# The forms of a predicate. Its text is: before, name, operator, first value, further values, after.
EQUAL, NOT_EQUAL, NOT, IN, NOT_IN, PREFIX, AT_MOST, AT_LEAST, BETWEEN, IS_NOT_NULL, LIKE_WORD, CONTAINS = range(12)
BEFORE = ["", "", "NOT ", "", "", "", "", "", "", "", "", "CONTAINS("]
OPERATOR = [" = ", " <> ", " = ", " IN (", " NOT IN (", " LIKE ", " <= ", " >= ", " BETWEEN ", " IS NOT NULL"]
OPERATOR += [" LIKE ", ", "]
AFTER = ["", "", "", ")", ")", "", "", "", "", "", "", ")"]

# Which predicates are asked of which values, and how often.
FORMS = {
    "text": {EQUAL: 0.62, IN: 0.16, PREFIX: 0.10, NOT_EQUAL: 0.05, NOT_IN: 0.02, NOT: 0.03, IS_NOT_NULL: 0.02},
    "category": {EQUAL: 0.80, IN: 0.15, PREFIX: 0.05},
    "number": {AT_MOST: 0.46, AT_LEAST: 0.18, BETWEEN: 0.30, EQUAL: 0.06},
    "flag": {EQUAL: 0.85, NOT: 0.15},
    "list": {EQUAL: 0.95, IS_NOT_NULL: 0.05},
    "title": {LIKE_WORD: 0.6, CONTAINS: 0.4},
}

# How the predicates of a search with enough of them are put together, and how often:
#   a AND b AND (c OR d);  a AND b AND NOT (c OR d);  (a AND b) OR (c AND d);  else all of them with AND.
LAST_TWO, NOT_LAST_TWO, TWO_PAIRS = 0.08, 0.02, 0.02


def expressions(random: np.random.Generator, catalogue: Catalogue, count: int) -> pa.StringArray:
    """`count` searches."""
    rows, size = _choose_rows(random, catalogue, count)
    starts = np.concatenate([[0], np.cumsum(size)])
    attribute = catalogue.attribute[rows]
    form = _choose_forms(random, catalogue, attribute)
    first, further = _value_texts(random, catalogue, rows, form)
    lead, opening, closing = _structure(random, starts, size)
    predicates = pc.binary_join_element_wise(
        pa.array(["", " AND ", " OR "]).take(pa.array(lead)),
        pa.array(["", "(", "NOT ("]).take(pa.array(opening)),
        pa.array(BEFORE).take(pa.array(form)),
        pa.array(catalogue.names).take(pa.array(attribute)),
        pa.array(OPERATOR).take(pa.array(form)),
        first,
        *further,
        pa.array(AFTER).take(pa.array(form)),
        pa.array(["", ")"]).take(pa.array(closing)),
        "",
    )
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), predicates), "")


def _choose_rows(
    random: np.random.Generator, catalogue: Catalogue, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each search the rows of one product that it speaks about, and how many they are."""
    weight = np.log(np.maximum(catalogue.frequency, 1))
    weight[catalogue.names.index("title")] *= TITLE_WEIGHT
    starts, rows_of_attribute = catalogue.by_attribute
    attribute = random.choice(len(weight), count, p=weight / weight.sum())
    anchor = rows_of_attribute[starts[attribute] + (random.random(count) * catalogue.frequency[attribute]).astype(int)]

    product = catalogue.product[anchor]
    start, available = catalogue.starts[product], np.diff(catalogue.starts)[product]
    size = np.minimum(1 + random.choice(len(SIZES), count, p=SIZES), available)
    # The largest keys of log(weight) + Gumbel noise are a weighted draw without replacement.
    place = np.arange(available.max(initial=1))
    row = np.minimum(start[:, None] + place, len(catalogue.attribute) - 1)
    with np.errstate(divide="ignore"):
        key = np.log(weight)[catalogue.attribute[row]] + random.gumbel(size=row.shape)
    key[place >= available[:, None]] = -np.inf
    key[row == anchor[:, None]] = np.inf
    best = np.argsort(-key, axis=1, kind="stable")[:, : len(SIZES)]
    wanted = np.arange(best.shape[1]) < size[:, None]
    # In the order of the attributes, with the price at the end, as people would write it.
    is_price = catalogue.attribute[np.take_along_axis(row, best, axis=1)] == catalogue.names.index("price")
    order = np.argsort(np.where(wanted, best + is_price * len(place), 2 * len(place)), axis=1, kind="stable")
    chosen = np.take_along_axis(row, np.take_along_axis(best, order, axis=1), axis=1)
    return chosen[wanted], size


def _choose_forms(random: np.random.Generator, catalogue: Catalogue, attribute: NDArray[np.int32]) -> NDArray[np.int8]:
    kind = np.array([list(FORMS).index(values.form) for values in catalogue.values])[attribute]
    form = np.empty(len(attribute), np.int8)
    for k, shares in enumerate(FORMS.values()):
        drawn = random.choice(list(shares), len(attribute), p=list(shares.values()))
        form[kind == k] = drawn[kind == k]
    return form


def _value_texts(
    random: np.random.Generator, catalogue: Catalogue, rows: NDArray[np.int64], form: NDArray[np.int8]
) -> tuple[pa.StringArray, list[pa.StringArray]]:
    """The first value's text and those of up to three more, with what stands before them; empty where not wanted."""
    attribute = catalogue.attribute[rows]
    first = np.array([values.first for values in catalogue.values])[attribute]
    count = np.array([values.size for values in catalogue.values])[attribute]
    u, v, w, x = random.random((4, len(rows)))
    place = catalogue.value[rows] - first
    loose = np.array([values.form not in ("title", "category") for values in catalogue.values])[attribute]
    place = np.where(loose & (w < OFF_THE_PRODUCT), (x * count).astype(np.int64), place)

    # Bounds lie one to many places away from the value, up to a quarter of the list, near ones more often.
    low = np.maximum(place - 1 - (u**3 * count / 4).astype(np.int64), 0)
    high = np.minimum(place + 1 + (v**3 * count / 4).astype(np.int64), count - 1)
    place = np.select([form == AT_MOST, (form == AT_LEAST) | (form == BETWEEN)], [high, low], place)
    # Texts of all values: plain; as a prefix; as a word in a pattern; and one empty text.
    plain, total = catalogue.sql_texts, len(catalogue.sql_texts)
    inner = pc.utf8_slice_codeunits(plain, 1, -1)
    prefix = pc.binary_join_element_wise("'", pc.utf8_slice_codeunits(inner, 0, 3), "%'", "")
    word = pc.binary_join_element_wise("'%", inner, "%'", "")
    texts = pa.concat_arrays([plain, prefix, word, pa.array([""])])
    table = np.select([form == PREFIX, form == LIKE_WORD, form == IS_NOT_NULL], [1, 2, 3], 0)
    first_text = texts.take(pa.array(np.where(table == 3, 3 * total, table * total + first + place)))

    # The others of an IN list come from three different thirds of the list behind the first: none is twice.
    third = np.maximum((count - 1) // 3, 1)
    in_list = (form == IN) | (form == NOT_IN)
    others = random.random((3, len(rows)))
    listed = 1 + (random.random(len(rows)) * 3).astype(np.int64)
    comma = pa.concat_arrays([pc.binary_join_element_wise(", ", plain, ""), pa.array([""])])
    other_texts = []
    for turn in range(3):
        step = 1 + turn * third + (others[turn] * third).astype(np.int64)
        code = np.where(in_list & (turn < listed), first + (place + step) % count, total)
        other_texts.append(comma.take(pa.array(code)))
    upper = pa.concat_arrays([pc.binary_join_element_wise(" AND ", plain, ""), pa.array([""])])
    other_texts.append(upper.take(pa.array(np.where(form == BETWEEN, first + high, total))))
    return first_text, other_texts


def _structure(
    random: np.random.Generator, starts: NDArray[np.int64], size: NDArray[np.int64]
) -> tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.int8]]:
    """For each predicate what joins it to the one before (nothing, AND, OR), what it opens (nothing, a parenthesis,
    NOT with a parenthesis) and whether it closes one."""
    lead = np.ones(starts[-1], np.int8)
    opening, closing = np.zeros_like(lead), np.zeros_like(lead)
    lead[starts[:-1]] = 0
    u = random.random(len(size))
    last = starts[1:] - 1
    either = (size >= 3) & (u < LAST_TWO + NOT_LAST_TWO)
    lead[last[either]] = 2
    opening[last[either] - 1] = np.where(u[either] < LAST_TWO, 1, 2)
    closing[last[either]] = 1
    pairs = (size == 4) & (u > 1 - TWO_PAIRS)
    begin = starts[:-1][pairs]
    lead[begin + 2] = 2
    opening[begin] = opening[begin + 2] = 1
    closing[begin + 1] = closing[begin + 3] = 1
    return lead, opening, closing
