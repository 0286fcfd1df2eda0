"""Why an event matches a subscription, or why not, predicate by predicate.

A slow path of its own over the expression tree, with the truths of dibs.reference; no index takes part in it.
NOT is pushed down to the predicates, as matching does: NOT (a = 1 OR b = 2) is explained as a <> 1 AND b <> 2, and
(a = 1) IS FALSE as (a <> 1) IS TRUE. IS UNKNOWN says that neither a = 1 nor a <> 1 is TRUE.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dibs.arguments import check_number
from dibs.coding.values import Range
from dibs.explain_words import escape, reason_for, short_group, short_sql
from dibs.language.expression import And, Constant, Expression, Or, Truth
from dibs.language.joins import read_attributes
from dibs.language.present import Present
from dibs.language.printer import TRUTHS, is_join, to_sql
from dibs.language.types import NO_TYPES, Types
from dibs.reference import (
    OfNoKind,
    children_first,
    raw_values,
    truth_of,
    truth_of_and,
    truth_of_or,
    values_of,
    with_computed,
    with_types,
)

LINES = 50  # that are shown; everything is in .parts
INDENT = 30  # characters; what lies deeper is shown in one line
REASONS = 3  # in the headline
WORDS: dict[bool | None, tuple[str, str]] = {True: ("✓", "yes"), False: ("✗", "no"), None: ("?", "unknown")}
CONSTANTS: dict[bool | None, str] = {True: "always", False: "never", None: "NULL"}
COLOURS: dict[bool | None, str] = {True: "#1a7f37", False: "#cf222e", None: "#9a6700"}


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """A predicate or constant with its reason, also IS [NOT] TRUE of one; AND or OR with the parts that it joins, and
    IS [NOT] TRUE of those with the one part that it is asked of."""

    expression: Expression
    truth: bool | None
    values: tuple[Any, ...] = ()  # what the event has for the attribute
    reason: str = ""
    parts: tuple[Part, ...] = ()
    predicates: int = 1  # in this part, constants included
    deciders: int = 1  # how many of them decide this part's truth

    @property
    def text(self) -> str:
        """The whole part as SQL."""
        return to_sql(self.expression)

    @property
    def attribute(self) -> str | None:
        """What the predicate is about; None for a join over history, which is about several."""
        asked = self.expression.child if isinstance(self.expression, Truth) else self.expression
        name: str | None = getattr(asked, "attribute", None)
        return None if name is not None and is_join(name) else name

    def deciding_parts(self) -> list[Part]:
        """The parts below that decide: all where all are needed, the failing ones where one is enough to fail, and
        where one is enough to hold, the one with the shortest explanation."""
        if isinstance(self.expression, And):
            return list(self.parts) if self.truth else [part for part in self.parts if not part.truth]
        if self.truth and isinstance(self.expression, Or):
            return [min((part for part in self.parts if part.truth), key=lambda part: part.deciders)]
        return list(self.parts)

    def __repr__(self) -> str:
        return f"<Part {short_sql(self.expression)}: {WORDS[self.truth][1]}>"


def explain(
    expression: Expression,
    event: Mapping[str, Any],
    id: Any = None,
    joins: Mapping[str, tuple[list[Any], str]] | None = None,
    now: Present = None,
    types: Types = NO_TYPES,
) -> Explanation:
    """Why the event matches the expression, or why not. `id` is only printed. joins: of each join over history that the
    expression mentions, the values and the reason. now: the time of the match. types: of
    attributes, where they are declared."""
    found = joins or {}
    nodes = list(children_first(expression))
    # As matching does: what is not asked for is not looked at, whatever is wrong with it.
    asked = {node.attribute for node in nodes if not isinstance(node, (And, Or, Truth, Constant))}
    names = read_attributes(asked)
    own_time = [now] if isinstance(now, str) else []
    given = with_types(values_of(event, [*names, *own_time]), types)
    read = {name: of_name for name, of_name in given.items() if name[:1] != "\0"}
    values = dict(with_computed(read | raw_values(event, names), asked, now))
    values |= {name: of_name for name, (of_name, _) in found.items()}
    waiting: list[Part] = []  # for their parent
    for node in nodes:
        if isinstance(node, (And, Or)):
            first = len(waiting) - len(node.children)
            waiting[first:] = [_group(node, waiting[first:])]
        elif isinstance(node, Truth):
            waiting.append(_tested(node, waiting.pop()))
        elif isinstance(node, Constant):
            waiting.append(Part(node, node.value, reason=CONSTANTS[node.value]))
        else:
            truth, of_attribute = truth_of(node, values), values.get(node.attribute, [])
            is_told = node.attribute in found
            reason = found[node.attribute][1] if is_told else reason_for(node, truth, of_attribute)
            waiting.append(Part(node, truth, tuple(of_attribute), reason))
    return Explanation(id, waiting.pop())


def explain_as_told(expression: Expression, event: Mapping[str, Any], id: Any, told: Mapping[str, Any]) -> Explanation:
    """As a service has told it of the same expression (Explanation.to_dict): it has the history that joins ask for."""
    return Explanation(id, _as_told(explain(expression, event).root, told["tree"]))


def _as_told(part: Part, told: Mapping[str, Any]) -> Part:
    if not part.parts:
        return Part(part.expression, told["truth"], tuple(told["values"]), told["reason"])
    theirs = told.get("parts", ())  # none where it is too deep
    if not theirs:
        return part
    parts = [_as_told(*pair) for pair in zip(part.parts, theirs)]
    if isinstance(part.expression, Truth):
        return _tested(part.expression, *parts)
    assert isinstance(part.expression, (And, Or))
    return _group(part.expression, parts)


def _tested(node: Truth, part: Part) -> Part:
    """IS [NOT] TRUE of a part: in one line, if that is one predicate."""
    own = Truth(part.expression, True, node.negated)
    truth = (part.truth is True) != node.negated
    if not part.parts:
        return Part(own, truth, part.values, part.reason.replace("satisfies this", "satisfies the condition"))
    return Part(own, truth, (), f"it is {TRUTHS[part.truth].lower()}", (part,), part.predicates, part.deciders)


def _group(node: And | Or, children: list[Part]) -> Part:
    parts: list[Part] = []
    for child in children:  # an AND inside an AND is shown as one
        parts.extend(child.parts if type(child.expression) is type(node) else [child])
    node = type(node)(tuple(part.expression for part in parts))  # whose NOT is pushed down
    truths = [part.truth for part in parts]
    truth = truth_of_and(truths) if isinstance(node, And) else truth_of_or(truths)
    hold, several = truths.count(True), len(truths)
    reason = f"{hold or 'none'} of {several} hold{'s' * (hold < 2)}"
    if hold == several:
        reason = "both hold" if several == 2 else f"all {several} hold"
    undecided = Part(node, truth, (), reason, tuple(parts), sum(part.predicates for part in parts))
    deciders = sum(part.deciders for part in undecided.deciding_parts())
    return Part(node, truth, (), reason, tuple(parts), undecided.predicates, deciders)


class Explanation:
    """Why an event matches a subscription, or why not. Prints well; notebooks show a table.

    matched     whether it matches, which is truth being True
    truth       True, False, or None for unknown
    parts       the parts joined by `operator` ("AND", "OR", or "" for a single predicate), each with its own .parts;
                with "IS TRUE" or "IS NOT TRUE", the part that it is asked of
    deciding    the predicates that decide: what fails where it does not match, else what made it match
    """

    def __init__(self, id: Any, root: Part):
        self.id = id
        self.root = root
        self.truth = root.truth
        self.matched = root.truth is True
        self.operator = _operator(root)
        self.parts = root.parts or (root,)

    @property
    def deciding(self) -> list[Part]:
        """The smallest list of predicates that tells the whole reason, from left to right and none twice."""
        found: dict[Expression, Part] = {}
        stack = [self.root]
        while stack:
            part = stack.pop()
            if part.parts:
                stack.extend(reversed(part.deciding_parts()))
            else:
                found.setdefault(part.expression, part)
        return list(found.values())

    @property
    def headline(self) -> str:
        """One line: whether it matches, and the first reasons."""
        name = "" if self.id is None else escape(str(self.id)) + " "
        verdict = "matches" if self.matched else "does not match"
        reasons = list(dict.fromkeys(part.reason for part in self.deciding))
        more = [f"and {len(reasons) - REASONS:,} more reasons"] if len(reasons) > REASONS + 1 else []
        return f"{name}{verdict}: {'; '.join(reasons[: REASONS if more else REASONS + 1] + more)}"

    def to_text(self, lines: int = LINES) -> str:
        """The headline and the tree, cut to about this many lines: what decides comes before what does not."""
        rows = _rows(self.root, max(check_number("lines", lines), 3))
        width = max(len(row.tree + row.text) for row in rows)
        table = [self.headline]
        for row in rows:
            mark, word = WORDS[row.truth] if row.text else ("", "")
            table.append(f"  {mark:1} {word:7}  {row.tree + row.text:{width}}  {row.reason}".rstrip())
        return "\n".join(table)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<Explanation: {self.headline}>"

    def _repr_html_(self) -> str:
        cells = []
        left = "text-align:left"
        for row in _rows(self.root, LINES):
            mark, word = WORDS[row.truth] if row.text else ("", "")
            tree, reason = html.escape(row.tree + row.text), html.escape(row.reason)
            cells.append(
                f'<tr><td style="{left};white-space:nowrap;color:{COLOURS[row.truth]}">{mark} {word}</td>'
                f'<td style="{left};white-space:pre;font-family:monospace">{tree}</td>'
                f'<td style="{left}">{reason}</td></tr>'
            )
        headline = f'<strong style="color:{COLOURS[self.matched]}">{html.escape(self.headline)}</strong>'
        return f"<div>{headline}<table>{''.join(cells)}</table></div>"

    def to_dict(self, depth: int = 50) -> dict[str, Any]:
        """For JSON. Groups below `depth` levels have their text in place of their parts."""
        about = {"id": self.id, "matched": self.matched, "truth": self.truth, "headline": self.headline}
        return {**about, "deciding": [_to_dict(part, 0) for part in self.deciding], "tree": _to_dict(self.root, depth)}


def _operator(part: Part) -> str:
    if isinstance(part.expression, Truth):
        return ("IS NOT TRUE" if part.expression.negated else "IS TRUE") if part.parts else ""
    return "AND" if isinstance(part.expression, And) else "OR" if isinstance(part.expression, Or) else ""


class _Row(NamedTuple):
    truth: bool | None
    tree: str  # the lines that lead to it
    text: str  # "" in a row that only says what is left out
    reason: str


def _rows(part: Part, lines: int, tree: str = "", branch: str = "") -> list[_Row]:
    """A part in about `lines` lines, which its parts share fairly."""
    if not part.parts:
        return [_Row(part.truth, tree + branch, short_sql(part.expression), part.reason)]
    operator = _operator(part)
    if lines < 3 or len(tree) >= INDENT:
        known = not any(each.parts for each in part.parts)
        text = short_group(operator, [each.expression for each in part.parts if known], part.predicates)
        if isinstance(part.expression, Truth):
            text = f"{operator} of {part.predicates:,} predicates"
        return [_Row(part.truth, tree + branch, text, part.reason)]
    rows = [_Row(part.truth, tree + branch, operator, part.reason)]
    inner = tree + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    shown, left_out = list(part.parts), list[Part]()
    left = lines - 1
    if len(shown) > left:
        deciding = {id(each) for each in part.deciding_parts()}
        shown.sort(key=lambda each: id(each) not in deciding)
        shown, left_out = shown[: left - 1], shown[left - 1 :]
        left -= 1
    for place, each in enumerate(shown):
        last = place == len(shown) - 1 and not left_out
        below = _rows(each, left // (len(shown) - place), inner, "└─ " if last else "├─ ")
        left -= len(below)
        rows += below
    if left_out:
        truths = [each.truth for each in left_out]
        counts = [f"{truths.count(truth):,} {word}" for truth, (_, word) in WORDS.items() if truth in truths]
        rows.append(_Row(part.truth, inner + "└─ ", "", f"… {len(left_out):,} more: {', '.join(counts)}"))
    return rows


def _to_dict(part: Part, depth: int) -> dict[str, Any]:
    if part.parts:
        about = {"operator": _operator(part), "truth": part.truth, "reason": part.reason}
        if depth <= 0:
            return {**about, "text": part.text}
        return {**about, "parts": [_to_dict(each, depth - 1) for each in part.parts]}
    return {
        "text": part.text,
        "truth": part.truth,
        "attribute": part.attribute,
        "values": [_plain(value) for value in part.values],
        "reason": part.reason,
    }


def _plain(value: Any) -> Any:
    """A value as JSON can say it: times and what JSON has no number for become strings."""
    if isinstance(value, Range):
        return {"lo": _plain(value.lo), "hi": _plain(value.hi)}
    if isinstance(value, OfNoKind):
        return {"unreadable": value.reason}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
