"""Texts to tables of predicates: by the templates of their shapes (language.reading), by the grammar where there is
none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arrays import from_numpy
from dibs.errors import ExpressionError, Problem
from dibs.language.expression import Expression
from dibs.language.flatten import conjunction_table, is_conjunction, program_table
from dibs.language.joins import joins_in
from dibs.language.normal_form import normal_form
from dibs.language.reading import is_typed, read
from dibs.language.rows import Row, fill_rows, read_row
from dibs.language.sql import parse, parse_kept
from dibs.language.table import PredicateTable, concatenate
from dibs.language.types import NO_TYPES, Domain, Types

Form = Union[Expression, Row]  # what a text says, once it has been read


@dataclass
class Compiled:
    """The rows of `table` are the texts at `order`; `errors` holds the texts that cannot be accepted."""

    table: PredicateTable
    order: NDArray[np.int64]
    errors: dict[int, ExpressionError]
    # Of the texts that the grammar has read, if they were asked for. Templates read the others again in no time.
    forms: dict[int, Expression] = field(default_factory=dict)
    domains: Mapping[str, Domain] = field(default_factory=dict)  # of integers, where they are declared


def compile_texts(
    texts: pa.Array,
    progress: Callable[[int], None] | None = None,
    keep_forms: bool = False,
    no_joins: str = "",
    types: Types = NO_TYPES,
    are_kept: bool = False,
) -> Compiled:
    """Compiles a string array; `progress` is called with how many more texts are done. no_joins: see `tree_of`. types:
    of attributes, where they are declared. are_kept: an earlier version may have accepted them (sql.parse_kept)."""
    bulk = read(texts, progress, types)
    forms: dict[int, Expression] = {}
    errors: dict[int, ExpressionError] = {}
    for i in np.flatnonzero(~bulk.taken).tolist():
        try:
            text = texts[i].as_py()
            forms[i] = normal_form(parse_kept(text, types)) if are_kept else tree_of(text, no_joins, types)
        except ExpressionError as e:
            errors[i] = e
        if progress:
            progress(1)
    table, order = _join([(bulk.table, bulk.order), *_general(forms)])
    return Compiled(table, order, errors, forms if keep_forms else {}, types.domains)


TableOfTexts = tuple[PredicateTable, NDArray[np.int64]]  # rows, and which texts they are


def _join(parts: Sequence[TableOfTexts]) -> TableOfTexts:
    tables = [table for table, _ in parts]
    order = [own[: table.conjunctions] for table, own in parts] + [own[table.conjunctions :] for table, own in parts]
    return concatenate(tables), np.concatenate(order)


def compile_forms(forms: list[Expression]) -> Compiled:
    """Compiles normal forms."""
    return Compiled(*_join(_general(dict(enumerate(forms)))), {})


def compile_mixed(texts: pa.Array, forms: Sequence[Form | None], types: Types = NO_TYPES) -> Compiled:
    """Compiles texts that are known to be good, as large strings. A form is what `form_of` made of the text, or None:
    where all texts have one, none is read again."""
    trees = {i: form for i, form in enumerate(forms) if form is not None and not isinstance(form, Row)}
    rest = np.array([i for i in range(len(forms)) if i not in trees], np.int64) if trees else np.arange(len(forms))
    own = texts.take(from_numpy(rest)) if trees else texts
    rows = [form for form in forms if isinstance(form, Row)]
    if rows and len(rows) == len(rest):
        table, order = fill_rows(rows, own)
    else:  # to read all at once takes no longer than to look at what was read of each
        bulk = read(own, types=types)
        table, order = bulk.table, bulk.order
        for i in rest[~bulk.taken].tolist():
            trees[i] = normal_form(parse_kept(texts[i].as_py(), types))
    part = table, rest[order]
    joined = _join([part, *_general(dict(sorted(trees.items())))]) if trees else part
    return Compiled(*joined, {}, domains=types.domains)


def _general(forms: dict[int, Expression]) -> list[TableOfTexts]:
    """Normal forms: conjunctions, and others."""
    plain = {i: form for i, form in forms.items() if is_conjunction(form)}
    other = {i: form for i, form in forms.items() if i not in plain}
    return [
        (conjunction_table(plain.values()), np.array([*plain], np.int64)),
        (program_table(other.values()), np.array([*other], np.int64)),
    ]


def kept_form(text: str, types: Types = NO_TYPES) -> Form:
    """The same of a text that is in a matcher already."""
    try:
        return form_of(text, types=types)
    except ExpressionError:
        return normal_form(parse_kept(text, types))


def form_of(text: str, no_joins: str = "", types: Types = NO_TYPES) -> Form:
    """What a text says: by its templates, or its normal form. Raises ExpressionError. no_joins, types: see
    `compile_texts`."""
    try:
        row = read_row(text)
    except (AttributeError, UnicodeEncodeError):  # no string, or no Unicode: parse says so
        row = None
    if row is not None and types and any(is_typed(name, types) for name in row.names):
        row = None
    return tree_of(text, no_joins, types) if row is None else row


def tree_of(text: str, no_joins: str = "", types: Types = NO_TYPES) -> Expression:
    """The normal form of a text. no_joins: where a text with joins over history is not taken, and why."""
    form = normal_form(parse(text, types))
    if no_joins and next(joins_in(form), None) is not None:
        advice = "compile with shards=1, or leave EXISTS, FORALL and (SELECT ...) out"
        raise ExpressionError(
            [Problem(f"joins over history are not supported {no_joins}", advice, 0, len(text), text=text)]
        )
    return form
