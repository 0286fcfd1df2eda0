"""What waits in a state, for single events: flat records that need no building.

A subscription that came since the last batch is neither coded nor indexed. Single events are held against it as it was
read, by a kernel that walks records (waiting_kernels), so that a change costs the next event microseconds. A record is
a run of int64, and numbers, texts and names are where it says:

    0                 its predicates
    then for each predicate the number of its name among the wanted ones, its operator (language.table.Op), where its
                      literals begin and how many there are, and where to go on when it holds and when it does not:
                      at a predicate, ACCEPT or REJECT
    then for each literal its kind and two words: bits and rest of a number; where a text begins, in bytes from the
                      beginning of the record, and its length; 0 and the value of all others
    then the texts    filled up to whole words

All records have heads, which lie together: the words of a record, and the number of a name without which it does not
hold, or -1. Most events lack it, and do not look at the record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from dibs.coding.computed.forms import may_be_last
from dibs.coding.events import WantedNames
from dibs.coding.values import Names
from dibs.language.expression import Expression, Kind
from dibs.language.flatten import conjunction_table, is_conjunction, program_table
from dibs.language.printer import is_join
from dibs.language.rows import Row, RowValue, Step
from dibs.language.table import ACCEPT, REJECT, Facet, Op, PredicateTable
from dibs.language.types import NO_TYPES, Types
from dibs.segments.compile import kept_form
from dibs.segments.ids import Id
from dibs.segments.state import Waiting

HEAD, STEP, LITERAL = 1, 6, 3  # words before the predicates, of a predicate, of a literal
WORD = 8  # bytes


class Record(NamedTuple):
    item: Waiting
    head: bytes
    words: bytes


class Pending:
    """The records of what waits in a state."""

    def __init__(self, names: Names, known: dict[Id, Record]):
        self.names = names  # whose numbers the records have
        self.known = known
        self.ids = list(known)
        self.heads = np.frombuffer(b"".join([record.head for record in known.values()]), np.int32).reshape(-1, 2)
        self.records = np.frombuffer(b"".join([record.words for record in known.values()]), np.int64)

    def __len__(self) -> int:
        return len(self.ids)

    def ids_of(self, rows: Sequence[int]) -> list[Id]:
        return [self.ids[row] for row in rows]


NOTHING = Pending(Names([]), {})


def read_waiting(
    waiting: Mapping[Id, Waiting], before: Pending, types: Types = NO_TYPES
) -> dict[Id, list[Step]] | None:
    """What waits and is not known from before; None: some of it must be built."""
    new: dict[Id, list[Step]] = {}
    for id, item in waiting.items():
        known = before.known.get(id)
        if known is None or known.item is not item:
            steps = steps_of(item, types)
            if steps is None:
                return None
            new[id] = steps
    return new


def gather_waiting(
    waiting: Mapping[Id, Waiting],
    wanted: Callable[[Collection[str]], WantedNames],
    before: Pending,
    types: Types = NO_TYPES,
) -> tuple[Pending, WantedNames] | None:
    """All that waits, and the names whose numbers it has; None: some of it must be built. wanted: gives the names of
    everybody, these included. before: what waited a moment ago, of which most still does."""
    new = read_waiting(waiting, before, types)
    if new is None:
        return None
    names = wanted({step.name for steps in new.values() for step in steps})
    if not waiting:
        return NOTHING, names
    if before.known and not names.names.extends(before.names):  # their numbers are others now
        return gather_waiting(waiting, wanted, NOTHING, types)
    known = {id: before.known.get(id) for id in waiting}
    known |= {id: record_of(waiting[id], steps, names.codes) for id, steps in new.items()}
    return Pending(names.names, cast("dict[Id, Record]", known)), names


# ---- one subscription ----


def record_of(item: Waiting, steps: Sequence[Step], codes: Mapping[str, int]) -> Record:
    """codes: the number of each name."""
    literals = HEAD + STEP * len(steps)
    end = literals + LITERAL * sum(len(step.literals) for step in steps)
    words, texts = [len(steps)], b""
    values: list[int] = []
    for step in steps:
        first = literals + len(values)
        words += (codes[step.name], step.operator, first, len(step.literals), step.on_true, step.on_false)
        for kind, bits, integer, text in step.literals:
            if text is not None:
                bits, integer = WORD * end + len(texts), len(text)
                texts += text
            values += (kind, bits, integer)
    texts += bytes(-len(texts) % WORD)
    head = np.array([end + len(texts) // WORD, _needed(steps, codes)], np.int32)
    return Record(item, head.tobytes(), np.array(words + values, np.int64).tobytes() + texts)


def _needed(steps: Sequence[Step], codes: Mapping[str, int]) -> int:
    """A name without which it does not hold, or -1."""
    at = 0 if steps else ACCEPT
    while at >= 0 and steps[at].on_false == REJECT:
        if steps[at].operator != Op.IS_NULL:
            return codes[steps[at].name]
        at = steps[at].on_true
    return -1


def steps_of(item: Waiting, types: Types = NO_TYPES) -> list[Step] | None:
    """The predicates of a subscription; None: there are some that speak of patterns, or of a history, or that a segment
    tests last."""
    form = kept_form(item.text, types) if item.form is None else item.form
    steps = form.steps(item.text) if isinstance(form, Row) else _steps(form)
    return None if steps is None or any(may_be_last(step.name) for step in steps) else steps


def _steps(form: Expression) -> list[Step] | None:
    """Of a normal form."""
    plain = is_conjunction(form)
    table = conjunction_table([form]) if plain else program_table([form])
    if any(facet not in (Facet.VALUE, Facet.TIME) or is_join(name) for name, facet in table.attributes):
        return None
    count, steps = len(table.operator), []
    for i in range(count):
        jumps = (i + 1 if i + 1 < count else ACCEPT), REJECT
        if not plain:
            jumps = int(table.on_true[i]), int(table.on_false[i])
        name, _ = table.attributes[table.attribute[i]]
        steps.append(Step(name, int(table.operator[i]), _literals(table, i), *jumps))
    return steps


def _literals(table: PredicateTable, predicate: int) -> list[RowValue]:
    result = []
    for i in range(table.literal_offsets[predicate], table.literal_offsets[predicate + 1]):
        kind, integer = int(table.kind[i]), int(table.integer[i])
        text = table.texts[integer] if kind == Kind.STRING else None
        result.append(RowValue(kind, int(table.number[i : i + 1].view(np.int64)[0]), integer, text))
    return result
