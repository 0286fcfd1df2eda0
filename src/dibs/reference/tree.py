"""Trees in three-valued logic: TRUE, FALSE and UNKNOWN are True, False and None."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dibs.language.expression import And, Constant, Expression, Not, Or, Predicate, Truth, negate, tests_of_truth

Node = And | Or | Truth | Constant | Predicate


def truth_of_tree(expression: Expression, truth_of_leaf: Callable[[Predicate], bool | None]) -> bool | None:
    """The truth of an expression by the truths of its predicates."""
    truths: list[bool | None] = []  # of the nodes that wait for their parent
    for node in children_first(expression):
        match node:
            case And(children):
                truths.append(truth_of_and([truths.pop() for _ in children]))
            case Or(children):
                truths.append(truth_of_or([truths.pop() for _ in children]))
            case Truth(_, _, negated):
                truths.append((truths.pop() is True) != negated)
            case Constant(value):
                truths.append(value)
            case predicate:
                truths.append(truth_of_leaf(predicate))
    return truths.pop()


def truth_of_and(truths: list[bool | None]) -> bool | None:
    return False if False in truths else None if None in truths else True


def truth_of_or(truths: list[bool | None]) -> bool | None:
    return True if True in truths else None if None in truths else False


def children_first(expression: Expression) -> Iterator[Node]:
    """The nodes of the expression with NOT pushed down to the predicates, from left to right, children first.

    Of Truth only IS [NOT] TRUE is left: IS FALSE is IS TRUE of the negation, and IS UNKNOWN says that neither is TRUE.
    No recursion: a tree may be deeper than Python's stack.
    """
    nodes: list[Node] = []
    stack = [(expression, False)]
    while stack:
        node, negated = stack.pop()
        match node:
            case Not(child):
                stack.append((child, not negated))
                continue
            case Truth(_, None, is_other):
                stack.append((tests_of_truth(node._replace(negated=is_other != negated)), False))
                continue
            case Truth(child, value, is_other):
                stack.append((child, value is False))
                node = Truth(child if value else Not(child), True, is_other != negated)
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
