"""The programs of a plan: computed values that the call of a single event makes itself."""

from __future__ import annotations

import numpy as np

from dibs.coding.computed.naming import ComputedNames
from dibs.coding.computed.program import literals_of
from dibs.coding.computed.program_layout import LITERAL
from dibs.language.functions.plain import Plain
from dibs.segments.single.program_kernels import Programs


def programs_of(computed: ComputedNames, names: int) -> Programs:
    """Those of the computed values that have one, made once for many plans. names: how many are wanted."""
    if computed.in_call is None:
        computed.in_call = _make(computed, names)
    made: Programs = computed.in_call
    return made


def _make(computed: ComputedNames, names: int) -> Programs:
    codes, ends, name, fields, field_ends = [np.empty((0, 2), np.int32)], [0], [], list[int](), [0]
    literals: list[Plain] = []
    number: dict[int, int] = {}  # of each field, by its name's
    for program, code, own in zip(computed.programs, computed.codes, computed.field_codes):
        if program is None:
            continue
        steps = program.code.copy()
        steps[:, 1] += np.where(steps[:, 0] == LITERAL, len(literals), 0).astype(np.int32)
        literals += program.literals
        codes.append(steps)
        ends.append(ends[-1] + len(steps))
        name.append(code)
        fields += [number.setdefault(field, len(number)) for field in own]
        field_ends.append(len(fields))
    field_of, is_made = np.full(names, -1, np.int32), np.zeros(names, np.uint8)
    for field, k in number.items():
        field_of[field] = k
    is_made[name] = 1
    present = -1 if computed.present is None else number.get(computed.present, -1)
    return Programs(
        np.concatenate(codes),
        np.array(ends),
        np.array(name, np.int32),
        np.array(fields, np.int32),
        np.array(field_ends),
        field_of,
        is_made,
        present,
        literals_of(literals),
    )
