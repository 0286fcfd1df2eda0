"""Kernels as plain Python (NUMBA_DISABLE_JIT=1) give the answers of the reference: small random cases by every entry,
and histories.

    NUMBA_DISABLE_JIT=1 python tests/plain_kernels.py [first seed] [seeds]

test_plain.py runs a short form, in a process of its own: Numba reads the setting once, when it is imported.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "history")]
SIZE = 6  # events of a case; one takes a millisecond for each subscription
MAKINGS = ("added", "table", "changed", "saved")


def main(first: int, seeds: int) -> None:
    from test_history_lives import RETAIN, live

    import exactness
    from dibs.jit.operations import COMPILES
    from dibs.tuning import using
    from settings import THRESHOLDS

    assert not COMPILES, "set NUMBA_DISABLE_JIT=1"
    answers = 0
    for seed in range(first, first + seeds):
        random = Random(seed)
        for name in ("default", "smallest", "random"):
            with using(THRESHOLDS[name](seed)):
                index = "scan" if random.random() < 0.1 else "auto"
                making = random.choice(MAKINGS)
                count, wrong = exactness.ask(exactness.round_by_reference(seed, SIZE), index, making)
                assert wrong is None, f"seed {seed}, {name}, {index}, {making}, {wrong.entry}: {wrong.what}"
                answers += count
                live(random, RETAIN[random.choice(list(RETAIN))], 3)
    print(f"{answers} answers, none wrong")


if __name__ == "__main__":
    main(*[int(word) for word in sys.argv[1:]] or (1, 1))
