"""From the text of a WHERE clause to its tree.

The tokenizer (pieces.py, scanner.py) cuts it into tokens, and the grammar is read here, in conditions.py, predicates.py
and operands.py, by a reader that keeps its own stack and goes on after a problem, so that all are found at once. It is
the only grammar: what it makes of a text is kept as templates (templates.py) for all further texts of the same shape.
sqlglot is its judge: where it accepts a text of this language it must read it alike, which the tests check.

    condition  = condition OR condition | condition AND condition | NOT condition | ( condition ) | predicate
    predicate  = operand (= == <> != < <= > >=) operand
               | attribute [NOT] IN (constant, ...)        | attribute [NOT] BETWEEN constant AND constant
               | attribute [NOT] LIKE string [ESCAPE 'c']  | attribute [NOT] RLIKE string
               | STARTSWITH(attribute, string) | ENDSWITH(attribute, string) | CONTAINS(attribute, string)
               | operand IS [NOT] NULL | attribute | TRUE | FALSE | NULL
               | tested IS [NOT] (TRUE FALSE UNKNOWN)
    tested     = ( condition ) | attribute | operand (= == <> != < <= > >=) operand | STARTSWITH(...) and the like

The shape of the tree is canonical:
- AND and OR are flattened in the order of the text, whatever the parentheses: (a AND b) AND c is And((a, b, c)), and
  so is a AND (b AND c). They have at least two children and no child of their own class.
- NOT before a predicate is the negated predicate (NOT a = 1 is a <> 1, NOT a LIKE 'x' is a NOT LIKE 'x'), before a
  constant the other constant; NOT NOT cancels. NOT before IS TRUE is IS NOT TRUE, and likewise of the others. So Not
  stands only before And and Or.
- IS TRUE, IS FALSE and IS UNKNOWN are Truth around what they are asked of, however that was put in parentheses; asked
  of a constant, they are one. (Truth inside Truth needs parentheses, as in Spark, where IS binds weaker than = and <.)
- A bare attribute is a test for TRUE: `active` is active = TRUE, `NOT active` is active <> TRUE.
- A constant on the left changes sides: 5 < a is a > 5. Two constants are compared at once: 1 = 1 is TRUE.
- NULL: a comparison, LIKE, RLIKE or function with NULL is UNKNOWN. IN loses its NULLs and becomes In(null=True), or
  UNKNOWN when it has nothing else; the other constants stay in order, repeats included. BETWEEN with a NULL is the
  two comparisons joined by AND (NOT BETWEEN: their negations joined by OR), one of them UNKNOWN.
- Numbers, dates and timestamps are the literals of literals.py; names are the paths of tokens.py joined by dots.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress

from dibs.errors import ExpressionError, Problem
from dibs.language.conditions import MAX_DEPTH, MAX_PARENTHESES
from dibs.language.expression import UNKNOWN, Expression, collection_paused
from dibs.language.never import find_warnings
from dibs.language.problems import Problems
from dibs.language.scanner import scan
from dibs.language.subqueries import SubscriptionReader
from dibs.language.tokens import KEYWORDS
from dibs.language.types import NO_TYPES, Types, check_types

__all__ = ["KEYWORDS", "MAX_DEPTH", "MAX_LENGTH", "MAX_PARENTHESES", "MAX_TOKENS", "parse", "parse_kept", "validate"]

MAX_LENGTH = 3_000_000  # characters of a text
MAX_TOKENS = 1_250_000  # words, numbers, strings and signs of a text; reading takes up to 300 bytes for each

_UNREADABLE_CHARACTER = re.compile("[\0\ud800-\udfff]")
_PIECE = re.compile(r"""'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"|`[^`]*`|\w+|[^\w\s]""", re.DOTALL)
_LONG = 10_000  # characters of a text for whose tokens and nodes the garbage collector is paused


def parse(text: str, types: Types = NO_TYPES) -> Expression:
    """The tree of a text, in the shape that the module describes; ExpressionError with all problems of a bad one.
    types: of attributes, where they are declared."""
    return read(text, types)[0]


def parse_kept(text: str, types: Types = NO_TYPES) -> Expression:
    """The tree of a text that an earlier version of Dibs may have accepted, with what is a problem today: a string
    beside a time, in a list, that is no time. It never matches, as it never did."""
    try:
        return parse(text, types)
    except ExpressionError:
        with suppress(ExpressionError):
            return read(text, types, is_kept=True)[0]
        raise


def read(text: str, types: Types = NO_TYPES, is_kept: bool = False) -> tuple[Expression, bool]:
    """The tree of a text, and whether all its constants are as they were written: none is computed."""
    problems = _check(text)
    tree: Expression = UNKNOWN
    is_written = True
    if not problems:
        with collection_paused() if len(text) > _LONG else nullcontext():
            tokens = scan(text, problems)
            if len(tokens):
                reader = SubscriptionReader(tokens, problems)
                reader.types, reader.is_kept = types, is_kept
                tree = reader.tree()
                is_written = not reader.has_folded
    if problems:
        raise ExpressionError(problems.in_order())
    return tree, is_written


class Validation(list[Problem]):
    """The problems of a text; `warnings`: of one that is accepted, what was hardly meant."""

    def __init__(self, problems: Iterable[Problem] = (), warnings: Iterable[Problem] = ()):
        super().__init__(problems)
        self.warnings = list(warnings)


def validate(text: str, types: Mapping[str, str] | None = None) -> Validation:
    """The problems of a text, from left to right; none when it is accepted, and then `.warnings` of the result tells
    what of it was hardly meant. types: of attributes, where they are declared, as in Matcher."""
    declared = check_types(types)
    try:
        tree = parse(text, declared)
    except ExpressionError as error:
        return Validation(error.problems)
    return Validation((), find_warnings(tree, text, declared))


def _check(text: object) -> Problems:
    """The problems of the text as a whole."""
    if not isinstance(text, str):
        problems = Problems("")
        advice = "decode it as UTF-8 first" if isinstance(text, (bytes, bytearray)) else "pass the text of a condition"
        problems.add(f"an expression is a str, not {type(text).__name__}", advice, 0, 0)
        return problems
    problems = Problems(text)
    if len(text) > MAX_LENGTH:
        advice = "split it into several subscriptions"
        problems.add(f"the text has {len(text):,} characters; {MAX_LENGTH:,} are allowed", advice, 0, 0)
    elif len(text) > MAX_TOKENS and (pieces := sum(1 for _ in _PIECE.finditer(text))) > MAX_TOKENS:
        advice = "split it into several subscriptions"
        message = f"the text has about {pieces:,} words and signs; {MAX_TOKENS:,} are allowed"
        problems.add(message, advice, 0, 0)
    elif bad := _UNREADABLE_CHARACTER.search(text):
        nul = bad[0] == "\0"
        what = "the character NUL" if nul else f"half of a surrogate pair (U+{ord(bad[0]):04X}), which is no character"
        advice = "leave it out, or write it \\0 inside a string" if nul else "check how the text was decoded"
        problems.add(f"the text holds {what}", advice, bad.start(), bad.end())
    return problems
