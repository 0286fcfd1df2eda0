"""Expression trees to rows of a PredicateTable: the general lane behind sql.parse and normal_form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dibs.jit.undisturbed import bring
from dibs.language.expression import (
    FALSE,
    TRUE,
    And,
    Between,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Kind,
    Literal,
    Not,
    Or,
    PairCompare,
    Predicate,
    RLike,
    StringTest,
    Truth,
    is_timed,
    microseconds,
    number_key,
)
from dibs.language.regex import like_regex
from dibs.language.table import ACCEPT, REJECT, Attribute, Facet, Op, PredicateTable, after_prefix

COMPARISONS = {"=": Op.EQ, "<>": Op.NE, "<": Op.LT, "<=": Op.LE, ">": Op.GT, ">=": Op.GE}
NO_ATTRIBUTE: Attribute = ("", Facet.VALUE)  # bears the predicate that never holds; no expression can name it

Test = tuple[Attribute, Op, Sequence[Literal | bytes]]  # bytes: a string literal in its stored form


def is_conjunction(expression: Expression) -> bool:
    """Whether a normal form is a plain conjunction of predicates (TRUE and FALSE count as one)."""
    return not isinstance(expression, (Or, Truth)) and not (
        isinstance(expression, And) and any(isinstance(c, (And, Or, Truth)) for c in expression.children)
    )


def test_of(predicate: Predicate) -> Test:
    """The test behind a predicate of a normal form, in which a list is all times or has none."""
    name = predicate.attribute
    value: Attribute = (name, Facet.TIME if is_timed(predicate) else Facet.VALUE)
    if isinstance(predicate, Compare):
        return value, COMPARISONS[predicate.operator], (predicate.literal,)
    if isinstance(predicate, In):
        if predicate.negated and (predicate.null or len({x.kind for x in predicate.literals}) > 1):
            return NO_ATTRIBUTE, Op.NEVER, ()
        return value, Op.NOT_IN if predicate.negated else Op.IN, predicate.literals
    if isinstance(predicate, Between):
        return value, Op.NOT_BETWEEN if predicate.negated else Op.BETWEEN, (predicate.low, predicate.high)
    if isinstance(predicate, IsNull):
        return value, Op.NOT_NULL if predicate.negated else Op.IS_NULL, ()
    if isinstance(predicate, StringTest):
        return _string_test(predicate)
    assert not isinstance(predicate, PairCompare), "these stand inside joins, which are attributes by now"
    pattern = predicate.pattern if isinstance(predicate, RLike) else like_regex(predicate.pattern, predicate.escape)
    return (name, Facet.NO_PATTERN if predicate.negated else Facet.PATTERN), Op.PATTERN, (pattern.encode(),)


def _string_test(predicate: StringTest) -> Test:
    name, function, text, negated = predicate
    if text == "":  # every string starts with it, ends with it and contains it
        return (NO_ATTRIBUTE, Op.NEVER, ()) if negated else ((name, Facet.VALUE), Op.STRING, ())
    data = text.encode()
    if function == "CONTAINS":
        re2 = bring("re2")
        return (name, Facet.NO_PATTERN if negated else Facet.PATTERN), Op.PATTERN, (re2.escape(text).encode(),)
    facet = Facet.VALUE
    if function == "ENDSWITH":
        facet, data = Facet.REVERSED, data[::-1]
    return (name, facet), Op.NOT_WITHIN if negated else Op.WITHIN, (data, after_prefix(data))


class _TableColumns:
    def __init__(self) -> None:
        self.offsets, self.literal_offsets = [0], [0]
        self.attribute: list[int] = []
        self.operator: list[int] = []
        self.kind: list[int] = []
        self.number: list[float] = []
        self.integer: list[int] = []
        self.on_true: list[int] = []
        self.on_false: list[int] = []
        self.attributes: dict[Attribute, int] = {}
        self.texts: dict[bytes, int] = {}

    def add(self, predicate: Predicate | None) -> None:
        attribute, operator, literals = (NO_ATTRIBUTE, Op.NEVER, ()) if predicate is None else test_of(predicate)
        self.attribute.append(self.attributes.setdefault(attribute, len(self.attributes)))
        self.operator.append(operator)
        for item in literals:
            kind, number, integer = self._literal(item)
            self.kind.append(kind)
            self.number.append(number)
            self.integer.append(integer)
        self.literal_offsets.append(len(self.kind))

    def _literal(self, item: Literal | bytes) -> tuple[int, float, int]:
        if isinstance(item, bytes):
            return Kind.STRING, 0.0, self.texts.setdefault(item, len(self.texts))
        kind, value = item
        if kind == Kind.STRING:
            return kind, 0.0, self.texts.setdefault(value.encode(), len(self.texts))
        if kind == Kind.NUMBER:
            return kind, *number_key(value)
        if kind == Kind.TIME:
            return kind, 0.0, microseconds(value)
        return kind, 0.0, int(value)

    def table(self, conjunctions: bool) -> PredicateTable:
        return PredicateTable(
            offsets=np.array(self.offsets, np.int64),
            attribute=np.array(self.attribute, np.int32),
            operator=np.array(self.operator, np.uint8),
            literal_offsets=np.array(self.literal_offsets, np.int64),
            kind=np.array(self.kind, np.uint8),
            number=np.array(self.number, np.float64),
            integer=np.array(self.integer, np.int64),
            attributes=list(self.attributes),
            texts=list(self.texts),
            conjunctions=len(self.offsets) - 1 if conjunctions else 0,
            on_true=np.array(self.on_true, np.int32),
            on_false=np.array(self.on_false, np.int32),
        )


def conjunction_table(forms: Iterable[Expression]) -> PredicateTable:
    """The table of normal forms that are plain conjunctions."""
    columns = _TableColumns()
    for form in forms:
        if form == FALSE:
            columns.add(None)
        elif form != TRUE:
            for child in form.children if isinstance(form, And) else (form,):
                columns.add(child)  # type: ignore[arg-type]
        columns.offsets.append(len(columns.attribute))
    return columns.table(conjunctions=True)


def program_table(forms: Iterable[Expression]) -> PredicateTable:
    """The table of normal forms of any shape, as programs of jumps."""
    columns = _TableColumns()
    for form in forms:
        for predicate, on_true, on_false in jumps(form):
            columns.add(predicate)
            columns.on_true.append(on_true)
            columns.on_false.append(on_false)
        columns.offsets.append(len(columns.attribute))
    return columns.table(conjunctions=False)


def jumps(form: Expression) -> list[tuple[Predicate, int, int]]:
    """The program of a normal form: each predicate, and where to go on when it holds and when it does not."""
    steps: list[tuple[Predicate, int, int]] = []  # last predicate first; targets count from the end
    _emit(form, ACCEPT, REJECT, steps)
    last = len(steps) - 1
    return [(predicate, a if a < 0 else last - a, b if b < 0 else last - b) for predicate, a, b in reversed(steps)]


def _emit(node: Expression, on_true: int, on_false: int, steps: list[tuple[Predicate, int, int]]) -> int:
    """Adds the node's steps from the last to the first; returns the step at which the node starts."""
    if isinstance(node, And):
        for child in reversed(node.children):
            on_true = _emit(child, on_true, on_false, steps)
        return on_true
    if isinstance(node, Or):
        for child in reversed(node.children):
            on_false = _emit(child, on_true, on_false, steps)
        return on_false
    if isinstance(node, Truth):  # a complement: a program is two-valued, so only the ways change places
        return _emit(node.child, on_false, on_true, steps)
    assert not isinstance(node, (Not, Constant)), "a normal form holds neither NOT nor constants inside"
    steps.append((node, on_true, on_false))
    return len(steps) - 1
