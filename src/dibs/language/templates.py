"""What the grammar makes of a shape, kept for all texts that have it.

A shape (language.shape_kernels) is turned into an example: a text in which every hole is filled with a value that
stands nowhere else. The grammar reads it, with all its checks, and the normal form is made as of any text; where such a
value comes out, or what is made of it, shows which hole goes where. So there is one grammar, and nothing here knows it.
A shape of which the grammar does not take the example, or in which a hole comes out nowhere or changed in a way that is
not known here, has no template: its texts are read by the grammar one by one.

A value decides nothing but what its byte in the shape says: kind, wildcards, being empty. Whether two constants are
equal is not decided: a = 1 OR a = 1 is a IN (1, 1) here and a = 1 in the normal form, which means the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Generic, NamedTuple, TypeVar

from dibs.errors import ExpressionError
from dibs.language.expression import (
    And,
    Compare,
    Constant,
    Expression,
    In,
    Kind,
    Literal,
    Not,
    Or,
    Predicate,
    Truth,
    microseconds,
    number_key,
)
from dibs.language.flatten import is_conjunction, jumps, test_of
from dibs.language.normal_form import normal_form, normal_leaf
from dibs.language.printer import CONDITION, literal_text, name_text
from dibs.language.problems import NOT_FINITE
from dibs.language.scalars import (
    Call,
    Field,
    Lambda,
    Scalar,
    Value,
    computed_name,
    inputs_of,
    is_computed,
    scalar_of,
    split_mark,
    text_of,
)
from dibs.language.shapes import SAME, TESTED, TRUTHS, Example, Source
from dibs.language.sql import parse, read
from dibs.language.table import ACCEPT, REJECT, Facet, Op

KEPT_BYTES = 16 << 20  # of shapes, about, that templates are kept for
_OVERHEAD = 1_000  # bytes of a template beside its shape, about


class TestTemplate(NamedTuple):
    facet: Facet
    operator: Op
    sources: tuple[Source, ...]


_name_text = lru_cache(maxsize=1 << 12)(name_text)


class ComputedTemplate(NamedTuple):
    """The template of a computed attribute: that of the example, with holes in place of names and constants."""

    scalar: Scalar
    is_condition: bool
    names: dict[str, int]  # the holes of the example's names
    constants: dict[Literal, int]  # and of its constants
    networks: tuple[int, ...]  # holes of constants that must be networks
    pieces: tuple[str | int, ...] | None  # its canonical text, and the holes in it; None: that depends on constants

    def name(self, names: Mapping[int, str], constants: Mapping[int, Literal]) -> str | None:
        """The attribute, where these stand in the holes; None: the grammar has advice for one of the names."""
        if any(name.upper() in NOT_FINITE for name in names.values()):
            return None
        if self.pieces is None:
            return computed_name(self._made(names, constants), self.is_condition)
        said: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                said.append(piece)
            else:
                said.append(_name_text(names[piece]) if piece in names else literal_text(constants[piece]))
        name = "".join(said)
        scalar_of.remember(name, partial(self._made, names, constants))
        return name

    def _made(self, names: Mapping[int, str], constants: Mapping[int, Literal]) -> Scalar:
        return self.filled(self.scalar, names, {hole: Value(literal) for hole, literal in constants.items()})

    def filled(self, scalar: Scalar, names: Mapping[int, str], constants: Mapping[int, Scalar]) -> Scalar:
        if isinstance(scalar, Field):
            mark, name = split_mark(scalar.name)
            return Field(mark + names[self.names[name]]) if name in self.names else scalar
        if isinstance(scalar, Call):
            return Call(scalar.function, tuple(self.filled(each, names, constants) for each in scalar.arguments))
        if isinstance(scalar, Lambda):
            return Lambda(scalar.depth, self.filled(scalar.body, names, constants))
        if isinstance(scalar, Value) and scalar.literal is not None and scalar.literal in self.constants:
            return constants[self.constants[scalar.literal]]
        return scalar


class Pattern(NamedTuple):
    """The template of a predicate."""

    name: int  # its hole; of a computed attribute any hole, in place of which it is told
    equality: int  # 1 to 4: =, <>, IN or NOT IN, which OR may merge with others; else 0
    tests: tuple[TestTemplate, TestTemplate]  # as it stands, and negated
    names: int = 1  # holes that are names
    computed: ComputedTemplate | None = None


class StepTemplate(NamedTuple):
    """Predicates of a text that are one test: mostly one, or several equalities merged to IN."""

    units: tuple[tuple[int, bool], ...]  # which of the text's predicates, and whether it is negated
    on_true: int
    on_false: int


class Frame(NamedTuple):
    """The template of what stands around predicates."""

    is_conjunction: bool
    steps: tuple[StepTemplate, ...]


K = TypeVar("K")
V = TypeVar("V")


class Kept(Generic[V]):
    """What was made for keys, within a bound: what has not been used lately is given up."""

    def __init__(self, make: Callable[[bytes], V], most: int = KEPT_BYTES):
        self._make, self._most = make, most
        self._used: dict[bytes, V] = {}
        self._older: dict[bytes, V] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._used) + len(self._older)

    def __call__(self, key: bytes) -> V:
        found = self._used.get(key, self)
        if found is not self:
            return found  # type: ignore[return-value]
        found = self._older.get(key, self)
        made: V = self._make(key) if found is self else found  # type: ignore[assignment]
        if self._bytes > self._most // 2:
            self._older, self._used, self._bytes = self._used, {}, 0
        self._used[key] = made
        self._bytes += len(key) + _OVERHEAD
        return made


# ---- predicates ----

_TESTED = bytes([TESTED])


def _make_pattern(shape: bytes) -> Pattern | None:
    try:
        example = Example(shape.removesuffix(_TESTED))
        if shape.endswith(_TESTED):  # not every condition takes it without parentheses
            parse(f"{example.text} IS TRUE")
        tree, is_written = read(example.text)
    except (ExpressionError, ValueError):  # also a word that is not UTF-8, or none
        return None
    if not is_written:  # what is computed from a constant may be the same for the example alone
        return None
    if isinstance(tree, (And, Or, Not, Truth, Constant)):
        return None
    computed = _computed(tree.attribute, example) if is_computed(tree.attribute) else None
    if computed is None and tree.attribute not in example.names:
        return None
    tests = []
    for negated in (False, True):
        leaf = normal_leaf(tree, negated)
        if isinstance(leaf, (And, Or, Not, Truth, Constant)):
            return None
        test = _test(leaf, example, computed)
        if test is None:
            return None
        tests.append(test)
    equality = _EQUALITIES.get(tests[0].operator, 0) if tests[0].facet == Facet.VALUE else 0
    name = 0 if computed is not None else example.names[tree.attribute]
    return Pattern(name, equality, (tests[0], tests[1]), len(example.names), computed)


# Functions of which the grammar looks at the constants, not only at their kinds.
_LOOKED_AT = frozenset(["LIKE", "RLIKE", "REGEXP_EXTRACT", "REGEXP_REPLACE"])
_SPELLED = frozenset(["CAST", "TIMESTAMPDIFF", "TIMESTAMPADD"])  # a string of theirs is a type or a unit


def _computed(attribute: str, example: Example) -> ComputedTemplate | None:
    """The template of the example's computed attribute; None: not all of it is in holes."""
    names: dict[str, int] = {}
    constants: dict[Literal, int] = {}
    scalar = scalar_of(attribute)
    todo, is_spelled = [scalar], False
    while todo:
        node = todo.pop()
        if isinstance(node, Call):
            if node.function in _LOOKED_AT:
                return None
            is_spelled |= node.function in _SPELLED
            todo.extend(node.arguments)
        elif isinstance(node, Lambda):
            if any(split_mark(name)[1] in example.names for name in inputs_of(node.body)):
                return None  # it may be its variable
            todo.append(node.body)
        elif isinstance(node, Field):
            name = split_mark(node.name)[1]
            if name in example.names:  # else it stands in the shape as it is
                names[name] = example.names[name]
        elif isinstance(node, Value) and node.literal is not None:
            source = example.sources.get(_key(node.literal))
            if source is not None:
                if source.change != SAME or _key(node.literal) in example.second or node.literal.kind == Kind.TIME:
                    return None
                constants[node.literal] = source.hole
    if not example.holes:
        return None
    made = ComputedTemplate(scalar, attribute[:2] == CONDITION, names, constants, tuple(example.networks), None)
    is_plain = not is_spelled or all(literal.kind == Kind.NUMBER for literal in constants)
    return made._replace(pieces=_cut(made, attribute)) if is_plain else made


def _cut(template: ComputedTemplate, attribute: str) -> tuple[str | int, ...]:
    """The pieces of the example's attribute: what it would be with words in its holes that it does not have."""
    mark = "x"
    while mark in attribute:
        mark += "x"
    words = {hole: f"{mark}{hole}_" for hole in (*template.names.values(), *template.constants.values())}
    fields = {hole: Field(words[hole]) for hole in template.constants.values()}
    text = attribute[:2] + text_of(template.filled(template.scalar, words, fields))
    pieces = re.split(rf"\b{mark}(\d+)_\b", text)
    return tuple(int(piece) if i % 2 else piece for i, piece in enumerate(pieces))


_EQUALITIES = {Op.EQ: 1, Op.NE: 2, Op.IN: 3, Op.NOT_IN: 4}


def _test(leaf: Predicate, example: Example, computed: ComputedTemplate | None) -> TestTemplate | None:
    (name, facet), operator, literals = test_of(leaf)
    sources: list[Source] = []
    for literal in literals:
        key = _key(literal)
        found = example.sources.get(key)
        if key in example.second:
            continue
        if found is not None:
            sources.append(found)
        elif not isinstance(literal, bytes) and literal.kind == Kind.BOOLEAN:
            sources.append(Source(-1, kind=Kind.BOOLEAN, integer=int(literal.value)))
        elif not isinstance(literal, bytes) and literal.kind == Kind.NUMBER and example.has_interval:
            sources.append(Source(-1, SAME, Kind.NUMBER, *number_key(literal.value)))
        else:
            return None
    holes = {source.hole for source in sources}
    if computed is not None:
        holes.update(computed.constants.values())
    elif name not in example.names:
        return None
    if not example.needed <= holes:
        return None
    return TestTemplate(facet, operator, tuple(sources))


def _key(literal: Literal | bytes) -> tuple[int, object]:
    if isinstance(literal, bytes):
        return Kind.STRING, literal
    kind, value = literal
    if kind == Kind.STRING:
        return kind, value.encode()
    return kind, microseconds(value) if kind == Kind.TIME else value


# ---- frames ----

MERGED = 1, 2, 3, 4  # in a frame's key, in place of p: an equality, and in two bytes more whose attribute it shares
_OPERATORS = ("=", "<>", "IN", "NOT IN")
_SIGNS = {"&": "AND", "|": "OR", "!": "NOT"} | {sign: f"IS {truth}" for sign, truth in TRUTHS.items()}


def _make_frame(key: bytes) -> Frame | None:
    words: list[str] = []
    equalities: list[int] = []  # of each predicate
    at = 0
    while at < len(key):
        byte = key[at]
        if byte in MERGED:
            first = 100 + 2 * len(equalities)
            value = f"({first}, {first + 1})" if byte > 2 else f"{first}"
            words.append(f"g{int.from_bytes(key[at + 1 : at + 3], 'little')} {_OPERATORS[byte - 1]} {value}")
            equalities.append(byte)
            at += 2
        elif byte == ord("p"):
            words.append(f"p{len(equalities)} < 1")
            equalities.append(0)
        else:
            words.append(_SIGNS.get(chr(byte), chr(byte)))
        at += 1
    try:
        form = normal_form(parse(" ".join(words)))
    except ExpressionError:
        return None
    return Frame(is_conjunction(form), tuple(_steps(form, equalities)))


def _steps(form: Expression, equalities: list[int]) -> list[StepTemplate]:
    if is_conjunction(form):
        leaves = form.children if isinstance(form, And) else (form,)
        last = len(leaves) - 1
        return [
            StepTemplate(_units(leaf, equalities), ACCEPT if i == last else i + 1, REJECT)  # type: ignore[arg-type]
            for i, leaf in enumerate(leaves)
        ]
    return [StepTemplate(_units(leaf, equalities), on_true, on_false) for leaf, on_true, on_false in jumps(form)]


def _units(leaf: Predicate, equalities: list[int]) -> tuple[tuple[int, bool], ...]:
    """The predicates behind a leaf of the example."""
    assert isinstance(leaf, (Compare, In))
    if leaf.attribute[0] == "p":
        assert isinstance(leaf, Compare)
        return ((int(leaf.attribute[1:]), leaf.operator != "<"),)
    negative = leaf.negated if isinstance(leaf, In) else leaf.operator == "<>"
    literals = leaf.literals if isinstance(leaf, In) else (leaf.literal,)
    units = dict.fromkeys((literal.value - 100) // 2 for literal in literals)
    return tuple((unit, (equalities[unit] in (2, 4)) != negative) for unit in units)


# ---- whole texts ----


class Whole(NamedTuple):
    """The templates of a text, by the key that text_kernels.read_alone makes."""

    frame: Frame
    patterns: tuple[Pattern, ...]
    has_only_values: bool  # all its tests are of the facets VALUE and TIME
    has_one_name_each: bool  # each predicate is about the attribute of the only name in it


def _make_whole(key: bytes) -> Whole | None:
    count = key[: key.index(0)].count(b"p")
    signs, *rest = key.split(b"\0", count + 1)
    patterns = [pattern_of(shape) for shape in rest[:count]]
    found = tuple(pattern for pattern in patterns if pattern is not None)
    if len(found) < count:
        return None
    if len(rest) > count:  # for each predicate, the first that has its name
        all_names = iter(memoryview(rest[count]).cast("H").tolist())
        names = [next(iter([next(all_names) for _ in range(pattern.names)]), 0) for pattern in found]
        merged = [bool(pattern.equality) and pattern.computed is None for pattern in found]
        shared = Counter(name for name, may_merge in zip(names, merged) if may_merge)
        own = (
            bytes([pattern.equality]) + name.to_bytes(2, "little") if may_merge and shared[name] > 1 else b"p"
            for name, may_merge, pattern in zip(names, merged, found)
        )
        signs = b"".join(next(own) if sign == ord("p") else bytes([sign]) for sign in signs)
    frame = frame_of(signs)
    if frame is None:
        return None
    units = (unit for step in frame.steps for unit in step.units)
    facets = {found[i].tests[negated].facet for i, negated in units}
    named = all(pattern.computed is None and pattern.names == 1 for pattern in found)
    return Whole(frame, found, facets <= {Facet.VALUE, Facet.TIME}, named)


pattern_of = Kept(_make_pattern)
frame_of = Kept(_make_frame)
whole_of = Kept(_make_whole)
