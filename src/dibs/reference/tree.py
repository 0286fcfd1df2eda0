"""Trees in three-valued logic: TRUE, FALSE and UNKNOWN are True, False and None."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dibs.language.expression import And, Constant, Expression, Not, Or, Predicate, negate


def truth_of_tree(expression: Expression, truth_of_leaf: Callable[[Predicate], bool | None]) -> bool | None:
    """The truth of an expression by the truths of its predicates."""
    truths: list[bool | None] = []  # of the nodes that wait for their parent
    for node in children_first(expression):
        match node:
            case And(children):
                truths.append(truth_of_and([truths.pop() for _ in children]))
            case Or(children):
                truths.append(truth_of_or([truths.pop() for _ in children]))
            case Constant(value):
                truths.append(value)
            case predicate:
                truths.append(truth_of_leaf(predicate))
    return truths.pop()


def truth_of_and(truths: list[bool | None]) -> bool | None:
    return False if False in truths else None if None in truths else True


def truth_of_or(truths: list[bool | None]) -> bool | None:
    return True if True in truths else None if None in truths else False


def children_first(expression: Expression) -> Iterator[And | Or | Constant | Predicate]:
    """The nodes of the expression with NOT pushed down to the predicates, from left to right, children first.

    No recursion: a tree may be deeper than Python's stack.
    """
    nodes: list[And | Or | Constant | Predicate] = []
    stack = [(expression, False)]
    while stack:
        node, negated = stack.pop()
        match node:
            case Not(child):
                stack.append((child, not negated))
                continue
            case And(children) | Or(children):
                stack.extend((child, negated) for child in children)
                if negated:
                    node = Or(children) if isinstance(node, And) else And(children)
            case Constant(value):
                node = Constant(not value) if negated and value is not None else node
            case predicate:
                node = negate(predicate) if negated else predicate
        nodes.append(node)
    return reversed(nodes)
