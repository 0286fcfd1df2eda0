"""The laboratory: structures of the papers, their workloads, their experiments, and what becomes of their claims.

    structures/    one index each, through the protocol of dibs.index.base, as an outside package would have it
    workloads/     the papers' data
    experiments/   every figure and table by name; claims and verdicts
    commands.py    `dibs bench`
    page.py        its results as the page of the papers, with pictures and verdicts

It stands above everything else in Dibs. Nothing imports it: the registry of indexes (dibs.index) and the command line
name its modules, and load what a user named.
"""

NAMED_ONLY = True  # see dibs.jit.stamps
