"""Functions over columns.

What has a program (program.py) is computed by the machine; of other functions some have a form over columns here, and
all else is done row by row, by the plain form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.coding.computed.running import evaluate_vectors
from dibs.coding.computed.vectors import NULL, NUMBER, STRING, Vector, choose, of_plain, of_texts, to_plain
from dibs.language.functions import FUNCTIONS, Function, apply
from dibs.language.functions.plain import Plain, plain_of
from dibs.language.scalars import Call, Field, Interval, Scalar, Value, inputs_of

Done = tuple[Vector, NDArray[np.bool_]]  # a result, and the rows that it has
Form = Callable[..., "Done | None"]
FORMS: dict[str, Form] = {}


def evaluate(scalar: Scalar, fields: Mapping[str, Vector], rows: int) -> Vector:
    """The column of a computed value."""
    if isinstance(scalar, Field):
        return fields[scalar.name]
    if isinstance(scalar, Value):
        return of_plain([plain_of(scalar.literal)])
    if isinstance(scalar, Interval):
        return of_plain([scalar])
    assert isinstance(scalar, Call)  # what sees arrays as they came is computed event by event
    own = {name: fields[name] for name in inputs_of(scalar)}
    found = evaluate_vectors(scalar, own, rows)
    if found is None:
        arguments = [evaluate(argument, fields, rows) for argument in scalar.arguments]
        found = call(FUNCTIONS[scalar.function], arguments, rows)
    return found


def call(function: Function, arguments: list[Vector], rows: int) -> Vector:
    """One function of values that are computed already."""
    names = [str(i) for i in range(len(arguments))]
    scalar = Call(function.name, tuple(map(Field, names)))
    result = evaluate_vectors(scalar, dict(zip(names, arguments)), rows)
    if result is not None:
        return result
    form = FORMS.get(function.name)
    found = form(*arguments) if form is not None else None
    if found is None:
        return _row_by_row(function, arguments, rows)
    result, done = found
    if len(result) == 1 and rows != 1:
        result = result.take(np.zeros(rows, np.int64))
    done = np.broadcast_to(done, rows)
    if done.all():
        return result
    if not function.takes_null:  # NULL for NULL
        for argument in arguments:
            done = done | (argument.kind == NULL)
    left = np.flatnonzero(~done)
    if not len(left):
        return result
    some = _row_by_row(function, [argument.take(left) for argument in arguments], len(left))
    place = np.zeros(rows, np.int64)
    place[left] = np.arange(len(left))
    return choose(done, result, some.take(place))


def _row_by_row(function: Function, arguments: list[Vector], rows: int) -> Vector:
    """By the plain form, once for equal arguments."""
    columns = [to_plain(argument) for argument in arguments]
    columns = [column if len(column) == rows else column * rows for column in columns]
    known: dict[tuple[object, ...], Plain] = {}
    found: list[Plain] = []
    for values in zip(*columns):
        key = tuple((type(value), value) for value in values)
        if key not in known:
            known[key] = apply(function, values)
        found.append(known[key])
    return of_plain(found)


def form(names: str) -> Callable[[Form], Form]:
    def declare(function: Form) -> Form:
        FORMS.update(dict.fromkeys(names.split(), function))
        return function

    return declare


@form("CAST TRY_CAST")
def cast(a: Vector, to: Vector) -> Done | None:
    """Strings and whole numbers to strings."""
    if len(to) != 1 or to.text[0].as_py() != "STRING":
        return None
    strings = a.kind == STRING
    done = strings | ((a.kind == NUMBER) & a.whole)
    numbers = pa.array(a.integer).cast(pa.large_string())
    return of_texts(pc.if_else(pa.array(strings), a.text, numbers), done), done
