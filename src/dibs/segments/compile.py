"""Texts to coded clauses: the fast lane for simple conjunctions, the general lane for everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.errors import ExpressionError
from dibs.language.bulk import is_simple, parse_simple
from dibs.language.expression import Expression
from dibs.language.flatten import conjunction_table, is_conjunction, program_table
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.language.table import PredicateTable, concatenate


@dataclass
class Compiled:
    """The rows of `table` are the texts at `order`; `errors` holds the texts that cannot be accepted."""

    table: PredicateTable
    order: NDArray[np.int64]
    errors: dict[int, ExpressionError]


def compile_texts(texts: pa.Array, progress: Callable[[int], None] | None = None) -> Compiled:
    """Compiles a string array; `progress` is told how many more texts are done."""
    bulk = parse_simple(texts)
    if progress:
        progress(int(bulk.simple.sum()))
    places: tuple[list[int], list[int]] = ([], [])
    forms: tuple[list[Expression], list[Expression]] = ([], [])
    errors: dict[int, ExpressionError] = {}
    for i in np.flatnonzero(~bulk.simple).tolist():
        try:
            form = normal_form(parse(texts[i].as_py()))
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
    return Compiled(table, order, errors)


def compile_forms(forms: list[Expression]) -> Compiled:
    """Compiles normal forms."""
    general = [i for i, f in enumerate(forms) if not is_conjunction(f)]
    plain = [i for i, f in enumerate(forms) if is_conjunction(f)]
    table = concatenate([conjunction_table(forms[i] for i in plain), program_table(forms[i] for i in general)])
    return Compiled(table, np.array(plain + general, np.int64), {})


def compile_mixed(texts: pa.Array, forms: Sequence[Expression | None]) -> Compiled:
    """Compiles texts that are known to be good, and some of which have been read already."""
    if not any(forms):
        return compile_texts(texts)
    bulk = parse_simple(texts.take(pa.array([i for i, form in enumerate(forms) if form is None], pa.int64())))
    simple = np.array([i for i, form in enumerate(forms) if form is None], np.int64)
    others = np.setdiff1d(np.arange(len(forms)), simple[bulk.simple])
    rest = compile_forms([forms[i] or normal_form(parse(texts[i].as_py())) for i in others.tolist()])
    order = np.concatenate([simple[bulk.simple], others[rest.order]])
    return Compiled(concatenate([bulk.table, rest.table]), order, {})


def form_of(text: str) -> Expression | None:
    """The normal form of a text, or None for one that the fast lane reads. Raises ExpressionError."""
    try:
        if is_simple(text):
            return None
    except (AttributeError, UnicodeEncodeError):  # no string, or no Unicode: parse says so
        pass
    return normal_form(parse(text))
