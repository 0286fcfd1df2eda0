"""What an operator means, for compiled code: the values that satisfy it, as intervals between its literals.

One table serves the cells that a predicate covers (coding.clause_kernels) and the test of a value as it was read
(segments.single.memtable_kernels). A value lies in an interval if it is of the kind of each literal that bounds it and
on the right side of it; where an interval has no end, the values of that kind end it. IN is EQ of each literal, NOT IN
the gaps between them: what is sorted for that is in those places. The reference says it all in words of its own.
"""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import phase
from dibs.language.table import Op

NO = -1  # instead of the number of a literal: no end
INTERVALS = {  # by operator: (literal below, whether it is left out, literal above, whether it is left out)
    Op.EQ: [(0, 0, 0, 0)],
    Op.PATTERN: [(0, 0, 0, 0)],
    Op.NE: [(NO, 0, 0, 1), (0, 1, NO, 0)],
    Op.LT: [(NO, 0, 0, 1)],
    Op.LE: [(NO, 0, 0, 0)],
    Op.GT: [(0, 1, NO, 0)],
    Op.GE: [(0, 0, NO, 0)],
    Op.BETWEEN: [(0, 0, 1, 0)],
    Op.NOT_BETWEEN: [(NO, 0, 0, 1), (1, 1, NO, 0)],
    Op.WITHIN: [(0, 0, 1, 1)],
    Op.NOT_WITHIN: [(NO, 0, 0, 1), (1, 0, NO, 0)],
}
_ROWS = [row for op in Op for row in INTERVALS.get(op, [])]
# The intervals of an operator are those from FIRST[operator] to FIRST[operator + 1].
FIRST = np.cumsum([0, *(len(INTERVALS.get(op, [])) for op in Op)])
LOW, LOW_OPEN, HIGH, HIGH_OPEN = (np.array(column, np.int64) for column in zip(*_ROWS))
OTHER = 2  # instead of the sign of a difference: the value is of another kind than the literal


@phase
def holds(operator, first, second):
    """Whether a value satisfies an operator of one or two literals, to which it stands so: -1, 0, 1 or OTHER."""
    for r in range(FIRST[operator], FIRST[operator + 1]):
        below = first if LOW[r] == 0 else second
        above = first if HIGH[r] == 0 else second
        is_above = LOW[r] == NO or (below != OTHER and below >= LOW_OPEN[r])
        if is_above and (HIGH[r] == NO or above <= -HIGH_OPEN[r]):
            return True
    return False
