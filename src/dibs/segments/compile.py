"""Texts to coded clauses: the fast lane for simple conjunctions, the general lane for everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Union

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arrays import from_integers
from dibs.errors import ExpressionError, Problem
from dibs.language.bulk import parse_simple
from dibs.language.expression import Expression
from dibs.language.flatten import conjunction_table, is_conjunction, program_table
from dibs.language.joins import joins_in
from dibs.language.normal_form import normal_form
from dibs.language.rows import SimpleRow, read_simple, rows_table
from dibs.language.sql import parse
from dibs.language.table import PredicateTable, concatenate

Form = Union[Expression, SimpleRow]  # what a text says, once it has been read


@dataclass
class Compiled:
    """The rows of `table` are the texts at `order`; `errors` holds the texts that cannot be accepted."""

    table: PredicateTable
    order: NDArray[np.int64]
    errors: dict[int, ExpressionError]
    # Of the texts that the fast lane did not take, if they were asked for. It reads the others again in no time.
    forms: dict[int, Expression] = field(default_factory=dict)


def compile_texts(
    texts: pa.Array,
    progress: Callable[[int], None] | None = None,
    keep_forms: bool = False,
    no_joins: str = "",
) -> Compiled:
    """Compiles a string array; `progress` is called with how many more texts are done. no_joins: see `tree_of`."""
    bulk = parse_simple(texts)
    if progress:
        progress(int(bulk.simple.sum()))
    places: tuple[list[int], list[int]] = ([], [])
    forms: tuple[list[Expression], list[Expression]] = ([], [])
    errors: dict[int, ExpressionError] = {}
    for i in np.flatnonzero(~bulk.simple).tolist():
        try:
            form = tree_of(texts[i].as_py(), no_joins)
        except ExpressionError as e:
            errors[i] = e
        else:
            general = not is_conjunction(form)
            places[general].append(i)
            forms[general].append(form)
        if progress:
            progress(1)
    table = concatenate([bulk.table, conjunction_table(forms[0]), program_table(forms[1])])
    order = np.concatenate([np.flatnonzero(bulk.simple), np.array(places[0] + places[1], np.int64)])
    kept = dict(zip(places[0] + places[1], forms[0] + forms[1])) if keep_forms else {}
    return Compiled(table, order, errors, kept)


def compile_forms(forms: list[Expression]) -> Compiled:
    """Compiles normal forms."""
    tables, order = _general(dict(enumerate(forms)))
    return Compiled(concatenate(tables), np.array(order, np.int64), {})


def compile_mixed(texts: pa.Array, forms: Sequence[Form | None]) -> Compiled:
    """Compiles texts that are known to be good. A form is what `form_of` made of the text; None: it is not read yet."""
    rows: dict[int, SimpleRow] = {}
    trees: dict[int, Expression] = {}
    unread: list[int] = []
    for i, form in enumerate(forms):
        if isinstance(form, SimpleRow):
            rows[i] = form
        elif form is None:
            unread.append(i)
        else:
            trees[i] = form
    if len(unread) == len(forms):
        return compile_texts(texts)
    tables, order = [rows_table(list(rows.values()))] if rows else [], list(rows)
    if unread:
        bulk = parse_simple(texts.take(from_integers(unread)))
        tables.append(bulk.table)
        for i, simple in zip(unread, bulk.simple.tolist()):
            if simple:
                order.append(i)
            else:
                trees[i] = normal_form(parse(texts[i].as_py()))
    if trees:
        general, places = _general(dict(sorted(trees.items())))
        tables += general
        order += places
    return Compiled(concatenate(tables), np.array(order, np.int64), {})


def _general(forms: dict[int, Expression]) -> tuple[list[PredicateTable], list[int]]:
    """Tables of normal forms, conjunctions first, and which of the forms their rows are."""
    plain = {i: form for i, form in forms.items() if is_conjunction(form)}
    other = {i: form for i, form in forms.items() if i not in plain}
    return [conjunction_table(plain.values()), program_table(other.values())], [*plain, *other]


def form_of(text: str, no_joins: str = "") -> Form:
    """What a text says, read by the fast lane or else as its normal form. Raises ExpressionError. no_joins: see
    `tree_of`."""
    try:
        row = read_simple(text)
    except (AttributeError, UnicodeEncodeError):  # no string, or no Unicode: parse says so
        row = None
    return tree_of(text, no_joins) if row is None else row


def tree_of(text: str, no_joins: str = "") -> Expression:
    """The normal form of a text. no_joins: where a text with joins over history is not taken, and why."""
    form = normal_form(parse(text))
    if no_joins and next(joins_in(form), None) is not None:
        advice = "compile with shards=1, or leave EXISTS, FORALL and (SELECT ...) out"
        raise ExpressionError(
            [Problem(f"joins over history are not supported {no_joins}", advice, 0, len(text), text=text)]
        )
    return form
