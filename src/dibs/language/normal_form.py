"""The normal form of a tree: what the later stages match, TRUE for exactly the same events.

It is TRUE, FALSE, or a tree of And and Or, alternately nested, over predicates and complements of predicates, without
Not and without constants. A complement is Truth(predicate, True, negated=True): the predicate is not TRUE. It holds for
an event without the attribute, so it is never a way to find the expression, and nothing is merged across it.

Nothing is multiplied out, 40 factors (a OR b) stay 40 factors. Only IS UNKNOWN says everything below it twice (that is
why the grammar bounds how deep it is nested); else the normal form is never larger than the tree.

Every step holds for arrays too, where each predicate asks for some element of its own: `a = 1 AND a = 2` and
`a = 1 AND a <> 1` can be TRUE and are left alone, while `a = 1 OR a = 2` is `a IN (1, 2)`, because some element
satisfies one of two tests exactly when some element satisfies the first or some element the second.

UNKNOWN counts as FALSE here. That is sound because no Not is left: AND and OR are minimum and maximum over
FALSE < UNKNOWN < TRUE, so lowering an UNKNOWN to FALSE can never change whether the whole is TRUE. Complements are
never UNKNOWN, and do not ask which of FALSE and UNKNOWN their predicate is: so the complement of an AND is the OR of
complements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dibs.language.expression import (
    FALSE,
    TRUE,
    And,
    Between,
    Compare,
    Constant,
    Expression,
    In,
    Kind,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    StringTest,
    Truth,
    is_timed,
    negate,
    tests_of_truth,
)
from dibs.language.printer import JOIN
from dibs.language.regex import plain_test

Connective = type[And] | type[Or]
EXISTS_NAME = f"{JOIN}EXISTS ("  # how a join over history begins that is TRUE or FALSE, whatever the event has


# -- predicates ------------------------------------------------------------------------------------------------------


def plain_like(predicate: Predicate) -> Expression:
    """LIKE with wildcards only at its ends, as = or as a test for a prefix, a suffix or a part."""
    if isinstance(predicate, Like) and (test := plain_test(predicate.pattern, predicate.escape)):
        kind, text = test
        if kind == "=":
            return Compare(predicate.attribute, "<>" if predicate.negated else "=", Literal(Kind.STRING, text))
        return StringTest(predicate.attribute, kind, text, predicate.negated)
    return predicate


def plain_in(predicate: Predicate) -> Expression:
    """IN without repeats and NULL, of at least two constants, and of times alone or without; NOT IN that can never be
    TRUE is FALSE."""
    if not isinstance(predicate, In):
        return predicate
    kinds = {literal.kind for literal in predicate.literals}
    if not kinds or (predicate.negated and (predicate.null or len(kinds) > 1)):
        return FALSE
    literals = tuple(dict.fromkeys(predicate.literals))
    if Kind.TIME in kinds and len(kinds) > 1:  # only times read strings as times
        parts = ([x for x in literals if (x.kind == Kind.TIME) == timed] for timed in (False, True))
        return Or(tuple(plain_in(In(predicate.attribute, tuple(part))) for part in parts))
    if len(literals) == 1:
        return Compare(predicate.attribute, "<>" if predicate.negated else "=", literals[0])
    return In(predicate.attribute, literals, predicate.negated)


def plain_between(predicate: Predicate) -> Expression:
    """BETWEEN one constant and itself is =; between constants of two kinds it is never TRUE, and NOT BETWEEN a time and
    another kind is two tests."""
    if isinstance(predicate, Between):
        attribute, low, high, negated = predicate
        if low == high:
            return Compare(attribute, "<>" if negated else "=", low)
        if low.kind != high.kind and not negated:
            return FALSE
        if low.kind != high.kind and is_timed(predicate):
            return Or((Compare(attribute, "<", low), Compare(attribute, ">", high)))
    return predicate


PREDICATE_RULES: tuple[Callable[[Predicate], Expression], ...] = (plain_like, plain_in, plain_between)


# -- AND and OR ------------------------------------------------------------------------------------------------------
# `children` are normal forms already. A rule gives the children that are left.


def flatten(connective: Connective, children: list[Expression]) -> list[Expression]:
    """x AND (y AND z) is x AND y AND z."""
    if not any(isinstance(child, connective) for child in children):
        return children
    return [part for child in children for part in (child.children if isinstance(child, connective) else (child,))]


def without_constants(connective: Connective, children: list[Expression]) -> list[Expression]:
    """x AND TRUE is x, x AND FALSE is FALSE; OR the other way round."""
    neutral, absorbing = (TRUE, FALSE) if connective is And else (FALSE, TRUE)
    if absorbing in children:
        return [absorbing]
    return [child for child in children if child != neutral]


def merge_equalities(connective: Connective, children: list[Expression]) -> list[Expression]:
    """a = 1 OR a IN (2, 3) is a IN (1, 2, 3), at the place of the first; times are merged with times alone. With AND it
    is the same of complements."""
    literals: dict[tuple[str, bool], dict[Literal, None]] = {}
    places: dict[tuple[str, bool], int] = {}
    result: list[Expression] = []
    for child in children:
        leaf = child if connective is Or else child.child if isinstance(child, Truth) else None
        if isinstance(leaf, Compare) and leaf.operator == "=":
            found: tuple[Literal, ...] = (leaf.literal,)
        elif isinstance(leaf, In) and not leaf.negated:
            found = leaf.literals
        else:
            result.append(child)
            continue
        key = leaf.attribute, is_timed(leaf)
        if key not in literals:
            literals[key] = {}
            places[key] = len(result)
            result.append(child)
        literals[key].update(dict.fromkeys(found))
    for key, place in places.items():
        if len(literals[key]) > 1:
            merged = In(key[0], tuple(literals[key]))
            result[place] = merged if connective is Or else complement(merged)
    return result


def without_repeats(connective: Connective, children: list[Expression]) -> list[Expression]:
    """x AND x is x.

    A hash walks the whole subtree, so only those connectives are compared that have a sibling of their size: the
    deep trunk of a tree is not walked again at every level.
    """
    sizes = Counter(len(child.children) for child in children if isinstance(child, (And, Or)))

    def key(child: Expression) -> Expression | int:
        unlike_others = isinstance(child, (And, Or)) and sizes[len(child.children)] == 1
        return id(child) if unlike_others else child

    first: dict[Expression | int, Expression] = {}
    for child in children:
        first.setdefault(key(child), child)
    return list(first.values())


def absorb(connective: Connective, children: list[Expression]) -> list[Expression]:
    """x AND (x OR y) is x, for a predicate x; and x OR (x AND y) is x."""
    inner: Connective = Or if connective is And else And
    if not any(isinstance(child, inner) for child in children):
        return children
    whole = {child for child in children if not isinstance(child, inner)}
    return [
        child
        for child in children
        if not (isinstance(child, inner) and any(not isinstance(p, connective) and p in whole for p in child.children))
    ]


CONNECTIVE_RULES: tuple[Callable[[Connective, list[Expression]], list[Expression]], ...] = (
    flatten,
    without_constants,
    merge_equalities,
    without_repeats,
    absorb,
)


# -- the whole tree --------------------------------------------------------------------------------------------------


def normal_form(expression: Expression) -> Expression:
    """The normal form, from the leaves up; negations and complements go down on the way to them."""
    done: list[Expression] = []  # normal forms that wait for their connective
    # The node, whether it is negated, whether the complement of that is asked for, and whether its children are done.
    work: list[tuple[Expression, bool, bool, bool]] = [(expression, False, False, False)]
    while work:
        node, negated, unless, ready = work.pop()
        if isinstance(node, Not):
            work.append((node.child, not negated, unless, False))
        elif isinstance(node, Truth):  # never UNKNOWN: its negation is its complement
            test = tests_of_truth(node)
            if isinstance(test, Truth):
                work.append((test.child, test.value is False, (test.negated != negated) != unless, False))
            else:
                work.append((test, negated, unless, False))
        elif not isinstance(node, (And, Or)):
            leaf = normal_leaf(node, negated)
            done.append(complement(leaf) if unless else leaf)
        elif not ready:
            work.append((node, negated, unless, True))
            work.extend((child, negated, unless, False) for child in reversed(node.children))
        else:
            connective: Connective = And if isinstance(node, And) == (negated == unless) else Or  # De Morgan
            first = len(done) - len(node.children)
            done[first:] = [connect(connective, done[first:])]
    return done[0]


def normal_leaf(leaf: Predicate | Constant, negated: bool) -> Expression:
    if isinstance(leaf, Constant):
        return TRUE if leaf.value is not None and leaf.value != negated else FALSE
    result: Expression = negate(leaf) if negated else leaf
    for rule in PREDICATE_RULES:
        if isinstance(result, Constant):
            break
        result = rule(result)  # type: ignore[arg-type]
    return result


def complement(leaf: Expression) -> Expression:
    """TRUE exactly where a predicate of a normal form, or a constant, is not TRUE."""
    if isinstance(leaf, Constant):
        return FALSE if leaf.value else TRUE
    if isinstance(leaf, Compare) and leaf.attribute.startswith(EXISTS_NAME):
        return negate(leaf)
    # IS NULL too: of a value of no kind, as bytes in a column, neither it nor IS NOT NULL is TRUE.
    return Truth(leaf, True, negated=True)


def connect(connective: Connective, children: list[Expression]) -> Expression:
    for rule in CONNECTIVE_RULES:
        children = rule(connective, children)
    if len(children) == 1:
        return children[0]
    if not children:
        return TRUE if connective is And else FALSE
    return connective(tuple(children))
