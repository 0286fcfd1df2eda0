"""Hypothesis strategies for joins over history: conditions on pairs, joins, and subscriptions that mix them with tests
of the event alone."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cases import truth
from dibs.language.expression import And, Compare, Constant, Expression, In, Kind, Not, Or, PairCompare, literal
from dibs.language.joins import (
    COUNT,
    COUNTS,
    ENDS,
    EXISTS,
    EXTREMES,
    TOTALS,
    Join,
    canonical,
    join_of,
    joins_in,
    name_of,
)
from dibs.language.sql import parse
from dibs.language.subqueries import MAX_ALTERNATIVES
from strategies import ATTRIBUTES, OPERATORS, USUAL_KIND, events, expressions, literals, predicates

YES = literal(True)
OFFSETS = [None, None, 0, 1, -1, 43_200_000_000, -86_400_000_000]


@st.composite
def pairs(draw: st.DrawFn) -> PairCompare:
    """A document's attribute against one of the event, mostly of the same kind."""
    name = draw(st.sampled_from(ATTRIBUTES))
    alike = [each for each in ATTRIBUTES if USUAL_KIND[each] == USUAL_KIND[name]]
    other = draw(st.sampled_from([*alike * 4, *ATTRIBUTES]))
    operator = draw(st.sampled_from(["=", "=", "=", *OPERATORS]))
    offset = draw(st.sampled_from(OFFSETS)) if USUAL_KIND[name] == Kind.TIME else None
    return PairCompare(name, operator, other, offset)


# Computed from the document, from the event, or from both.
COMPUTED = [
    "d.a + 1 > a",
    "d.a - a >= 1",
    "abs(d.a - `select`) < 2",
    "lower(d.b) = lower(b)",
    "d.a < d.`select`",
    "d.b || b LIKE '%a%'",
    "d.c.d BETWEEN c.d - INTERVAL 12 HOURS AND c.d",
    "d.a IN (a, `select` + 1)",
    "(d.a * a) IS NOT NULL",
    "d.a <=> `select`",
    "d.c.d - c.d < INTERVAL 1 DAY",
    "hour(d.c.d) = hour(c.d)",
    "d.a NOT BETWEEN a - 1 AND a + 1",
    "d.c.d > date_trunc('DAY', c.d)",
    "coalesce(d.a, a) = 2",
    "d.a <=> 2",
    "d.a - d.`select` > a - `select`",
    "if(d.`x y`, d.a, a) > 1",
    "d.c.d >= c.d - INTERVAL 1 MONTH",
    "d.a = a / 2",
    "size(d.a) = size(a)",
    "size(d.b) > 1 AND d.a = a",
    "exists(d.a, x -> x > 1)",
    "d.c.d < now()",
    "d.c.d + INTERVAL 1 DAY * d.a > now()",
]
# With a join within.
COMPUTED += [
    "d.a = a AND EXISTS e (e.b = d.b AND e.a >= a)", "d.a = a AND NOT EXISTS e (e.a = d.a AND e.c.d > d.c.d)",
    "d.b = b AND EXISTS e (e.a = d.a AND e.c.d BETWEEN d.c.d - INTERVAL 12 HOURS AND c.d)",
    "FORALL e (e.b <> d.b OR e.a <= d.a)", "d.a < (SELECT MAX(e.`select`) FROM history e WHERE e.b = d.b)",
    "d.a >= a AND (SELECT COUNT(*) FROM history e WHERE e.a = d.a AND e.b <> b) >= 1",
    "EXISTS e (e.a = d.a AND EXISTS f (f.b = e.b AND f.a <> d.a AND f.a <= a))",
    "(SELECT MAX_BY(e.b, e.a) FROM history e WHERE e.a = d.a) > 'a'",
    "EXISTS e (lower(e.b) = lower(d.b) AND e.a + d.a > a)",
    "d.a IN (1, 2) OR EXISTS e (e.`select` = d.a AND e.c.d < now())",
    "(SELECT SUM(e.a) FROM history e WHERE e.b = d.b) IS NULL",
    "(SELECT MIN(e.a) FROM history e WHERE e.b = d.b AND e.a > a) IS NOT NULL",
]  # fmt: skip


def computed() -> st.SearchStrategy[Expression]:
    """Conditions on what is computed, as the grammar makes them."""
    return st.sampled_from(COMPUTED).map(lambda text: join_of(next(joins_in(parse(f"EXISTS d ({text})")))).condition)


def conditions(max_leaves: int = 5) -> st.SearchStrategy[Expression]:
    leaf: st.SearchStrategy[Expression] = st.one_of(
        pairs(),
        pairs(),
        pairs(),
        computed(),
        predicates(extremes=True),
        st.sampled_from([Constant(True), Constant(None)]),
    )
    several = st.lists(pairs(), min_size=1, max_size=3).map(lambda found: And(tuple(found)))
    tree = st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda children: And(tuple(children))),
            st.lists(inner, min_size=2, max_size=3).map(lambda children: Or(tuple(children))),
            inner.map(Not),
        ),
        max_leaves=max_leaves,
    )
    # Many conjunctions: 27, or 81, which is more than kernels take and left to the reference.
    wide = (
        st.lists(st.lists(leaf, min_size=3, max_size=3).map(tuple).map(Or), min_size=3, max_size=4).map(tuple).map(And)
    )
    return st.one_of(several, several, several, several, tree, tree, tree, tree, wide)


def _is_narrow(condition: Expression) -> bool:
    """Whether joins may stand within it."""
    join = Join(EXISTS, condition)
    return not join.joins_within or join.alternatives <= MAX_ALTERNATIVES


@st.composite
def join_predicates(draw: st.DrawFn) -> Expression:
    """A predicate on a join, as parse gives them."""
    condition = draw(conditions().map(canonical).filter(_is_narrow))
    function = draw(st.sampled_from([EXISTS, EXISTS, EXISTS, *COUNTS, *ENDS, *EXTREMES, *TOTALS]))
    negated = draw(st.booleans())
    if function == EXISTS:
        return Compare(name_of(Join(EXISTS, condition)), "<>" if negated else "=", YES)
    attribute = draw(st.sampled_from(ATTRIBUTES)) if function != COUNT else None
    by = draw(st.sampled_from(ATTRIBUTES)) if function in ENDS else None
    if draw(st.booleans()):
        other, operator = draw(st.sampled_from(ATTRIBUTES)), draw(st.sampled_from(OPERATORS))
        factor = draw(st.sampled_from([None, None, 0.9, 1.1, -2.0, 0.0, 1e300]))
        join = Join(function, condition, attribute, by, other, operator, factor)
        return Compare(name_of(join), "<>" if negated else "=", YES)
    name = name_of(Join(function, condition, attribute, by))
    is_number = attribute is None or function in (*COUNTS, *TOTALS)
    kind = Kind.NUMBER if attribute is None or is_number else USUAL_KIND[attribute]
    constants = st.integers(0, 4).map(literal) if function in COUNTS else literals([kind])
    if draw(st.integers(0, 4)) == 0:
        return In(name, tuple(draw(st.lists(constants, min_size=1, max_size=3, unique=True))), negated)
    return Compare(name, draw(st.sampled_from(OPERATORS)), draw(constants))


def subscriptions() -> st.SearchStrategy[Expression]:
    leaf = st.one_of(join_predicates(), join_predicates(), join_predicates(), expressions(max_leaves=2))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda children: And(tuple(children))),
            st.lists(inner, min_size=2, max_size=3).map(lambda children: Or(tuple(children))),
            inner.map(Not),
            st.builds(truth, inner, st.sampled_from([True, True, False, None]), st.booleans()),
        ),
        max_leaves=3,
    )


def documents() -> st.SearchStrategy[dict[str, Any]]:
    return events(with_ranges=False)
