"""Computed values of a single event, made within its compiled call: programs (coding.computed.program) over the values
that were read, whose results are values of the event from then on.

An attribute with several values gives one result for each of them, and several attributes one for each combination.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import BOOLEAN, NUMBER, STRING
from dibs.coding.computed.number_steps import key_of, put_key
from dibs.coding.computed.program_kernels import run
from dibs.coding.computed.program_layout import (
    MOST_COMBINATIONS,
    MOST_STEPS,
    NULL,
    TIME,
    Column,
    Machine,
    ProgramLiterals,
    Sources,
)
from dibs.jit.groups import Clean, Columns, Sized
from dibs.jit.kernel import phase
from dibs.jit.scanning import PADDING

NOW, IS_READ = 0, 1  # of what a call is told: the time of the match; 1: computed values are members of the text


class Programs(NamedTuple):
    """Those of a plan. Fields are numbered."""

    code: Annotated[NDArray[np.int32], Columns(2)]
    ends: NDArray[np.int64]  # program p has the steps from ends[p] to ends[p + 1]
    name: NDArray[np.int32]  # of each program: the number of the name that it computes
    fields: NDArray[np.int32]  # of all programs
    field_ends: NDArray[np.int64]  # program p has those from field_ends[p] to field_ends[p + 1]
    field_of: NDArray[np.int32]  # of each wanted name: its field, or -1
    is_made: NDArray[np.uint8]  # of each wanted name: whether a program computes it
    present: int  # the field that is the time of the match, or -1
    literals: ProgramLiterals


class Running(NamedTuple):
    """Work space."""

    told: Annotated[NDArray[np.int64], Sized(2)]
    machine: Machine  # for one row
    columns: Column  # the values of the event that are fields, in their places; and the time of the match
    next: Annotated[NDArray[np.int32], Sized("values")]  # of a value: 1 + another one of its field, or 0
    first: Annotated[NDArray[np.int32], Clean("nodes")]  # of a field: 1 + one of its values, or 0
    count: Annotated[NDArray[np.int32], Clean("nodes")]  # type: ignore[assignment]  # hides tuple.count
    place: Annotated[NDArray[np.int64], Sized(MOST_STEPS)]  # of the fields of a program: the value that it reads


@phase(inline=False)
def compute_values(programs, running, found):
    """Adds the results of all programs to the values. False: somebody else must compute them."""
    count = found.counts[0]
    if count >= len(running.next):
        return False
    done = _lay_out(programs, running, found, count)
    p = np.int64(0)
    while done and p < len(programs.name):
        done = _compute(programs, p, running, found)
        p += 1
    for i in range(count):
        f = programs.field_of[found.name[i]]
        if f >= 0:
            running.first[f], running.count[f] = 0, 0
    if programs.present >= 0:
        running.first[programs.present] = 0
    return done


@phase
def _lay_out(programs, running, found, count):
    columns, good = running.columns, True
    for i in range(count):
        name = found.name[i]
        f = programs.field_of[name]
        good = good and programs.is_made[name] == 0  # an event cannot say what is computed
        if f >= 0:
            if found.kind[i] == NUMBER:
                put_key(columns, i, found.key[i : i + 1].view(np.float64)[0], found.rest[i])
            else:
                columns.kind[i], columns.whole[i], columns.integer[i] = found.kind[i], False, found.key[i]
                if found.kind[i] == STRING:
                    s = found.key[i]
                    columns.start[i], columns.end[i] = found.starts[s], found.starts[s + 1]
            running.next[i] = running.first[f]
            running.first[f] = i + 1
            running.count[f] += 1
    if programs.present >= 0:
        columns.kind[count], columns.whole[count], columns.integer[count] = TIME, False, running.told[NOW]
        running.first[programs.present], running.next[count] = count + 1, 0
    return good


@phase(inline=False)
def _compute(programs, p, running, found):
    """All results of a program."""
    first, last = programs.field_ends[p], programs.field_ends[p + 1]
    total = 1.0
    for k in range(first, last):
        f = programs.fields[k]
        running.place[k - first] = running.first[f] - 1
        total *= max(running.count[f], 1)
    if total > MOST_COMBINATIONS:
        return False
    machine, more = running.machine, True
    while more:
        machine.free[0] = found.starts[found.counts[1]]
        sources = Sources(running.place, 1, running.columns, running.columns, programs.literals, found.data)
        run(programs.code, programs.ends[p], programs.ends[p + 1], 1, sources, machine)
        if machine.left[0] or not _keep(machine.stack, found, programs.name[p]):
            return False
        more = False
        for k in range(first, last):  # the next combination
            at = running.place[k - first]
            if at >= 0 and running.next[at] > 0:
                running.place[k - first] = running.next[at] - 1
                more = True
                break
            running.place[k - first] = running.first[programs.fields[k]] - 1
    return True


@phase
def _keep(v, found, name):
    """Adds the result. False: values of an event have no such kind, or there is no room."""
    kind, i = v.kind[0], found.counts[0]
    if kind == NULL:
        return True
    if i >= len(found.name):
        return False
    found.name[i], found.kind[i], found.rest[i], found.key[i] = name, kind, 0, v.integer[0]
    if kind == NUMBER:
        near, rest = key_of(v.whole[0], v.integer[0], v.number[0])
        found.key[i], found.rest[i] = np.float64(near + 0.0).view(np.int64), rest
    elif kind == STRING:
        s = found.counts[1]
        to, size = found.starts[s], v.end[0] - v.start[0]
        if s + 2 > len(found.starts) or to + size + PADDING > len(found.data):
            return False
        for k in range(size):  # it lies behind, or was there before
            found.data[to + k] = found.data[v.start[0] + k]
        found.starts[s + 1], found.key[i] = to + size, s
        found.counts[1] = s + 1
    elif kind != BOOLEAN:
        return False
    found.counts[0] = i + 1
    return True
