"""Does a test notice when a structure, or what reads events for it, is wrong? One comparison of each is broken on
purpose, and tests must fail.

    PYTHONPATH=src python tests/index/mutations.py            all of them: twenty minutes
    PYTHONPATH=src python tests/index/mutations.py gryphon    those whose names contain this word

Each mutation is made in a copy of src/ in a temporary folder. Numba compiles the kernels of the changed file again, and
those of other files that have it compiled in. Exit code 1 if one was not caught, 2 if the table no longer fits the
source.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SUITE = "tests/index/test_indexes.py"
SECONDS = 300  # for the tests of one mutation; more means that it never ends


class Mutation(NamedTuple):
    name: str
    function: str  # in which the text stands, wherever in src/dibs that is
    old: str  # is there exactly once, in one function of this name
    new: str
    tests: tuple[str, ...]  # what pytest is to run


def suite(*names: str, test: str = "test_constants_of_several_kinds") -> tuple[str, ...]:
    """This test of the shared suite, for some indexes."""
    chosen = " or ".join(f"-{name}-" for name in names)
    return (SUITE, "-k", f"{test} and ({chosen})")


def updates(*names: str) -> tuple[str, ...]:
    return suite(*names, test="test_updates")


LANE = ("tests/coding/test_json_lane.py", "tests/coding/test_json_blocks.py")
WAITING = ("tests/segments/test_waiting.py", "-k", "every_operator or single_events")
MUTATIONS = (
    Mutation(
        "scan",
        "holds",
        "ok = (low <= slots.hi[a]) & (slots.lo[a] <= high)",
        "ok = (low < slots.hi[a]) & (slots.lo[a] <= high)",
        suite("scan"),
    ),
    Mutation(
        "records: a test",
        "test_record",
        "& LOW) > (test & LOW))",
        "& LOW) >= (test & LOW))",
        suite("auto"),
    ),
    Mutation(
        "records: verifying",
        "holds",
        "ok = (low <= slots.hi[a]) & (slots.lo[a] <= high)",
        "ok = (low <= slots.hi[a]) & (slots.lo[a] < high)",
        suite("auto"),
    ),
    Mutation(
        "records: guards",
        "_collect",
        "& LOW) <= (guard & LOW))",
        "& LOW) < (guard & LOW))",
        suite("auto"),
    ),
    Mutation(
        "records: buckets",
        "buckets_of",
        "return max(np.int64(x >> shift), behind), np.int64(y >> shift) + 1",
        "return max(np.int64(x >> shift), behind), max(np.int64(y >> shift), np.int64(x >> shift) + 1)",
        suite("auto"),
    ),
    Mutation(
        "records: larger buckets",
        "is_larger",
        "b + LARGER <= behind",
        "b + LARGER <= behind + 1",
        ("tests/index/test_auto.py", "-k", "every_length"),
    ),
    Mutation(
        "records: listed buckets",
        "list_buckets",
        "listed += np.uint64(inside) &",
        "listed += np.uint64(b > 1) &",
        suite("auto"),
    ),
    Mutation(
        "records: what needs no test",
        "list_known",
        "if level[i] == 0:",
        "if level[i] >= 0:",
        suite("auto"),
    ),
    Mutation(
        "records: tests that several values leave open",
        "test_record",
        "is_open |= space.coarse[test >> HIGH] == SEVERAL",
        "is_open |= False",
        ("tests/index/test_auto.py", "-k", "random_clauses and values"),
    ),
    Mutation(
        "records: guards that several values leave open",
        "_verify_guarded",
        "is_open = space.coarse[guard >> HIGH] == SEVERAL",
        "is_open = False",
        ("tests/index/test_auto.py", "-k", "random_clauses and values"),
    ),
    Mutation(
        "records: guards that are what clauses are filed under",
        "_verify_guarded",
        "is_open = header & SAID != 0 or clauses.offsets[row + 1] - clauses.offsets[row] > 1",
        "is_open = False",
        ("tests/index/test_auto.py", "-k", "random_clauses and values"),
    ),
    Mutation(
        "masks: tabulated",
        "_sort_by_cell",
        "rank[block.lo[space.order[i]] + 1] += 1",
        "rank[block.lo[space.order[i]]] += 1",
        suite("auto"),
    ),
    Mutation(
        "masks: searched",
        "_at_most",
        "if block.lo[space.order[m]] <= cell:",
        "if block.lo[space.order[m]] < cell:",
        suite("auto"),
    ),
    Mutation(
        "vectors: segments",
        "_mark_spans",
        "border[base + x] = border[base + y + 1] = True",
        "border[base + x] = True",
        suite("auto"),
    ),
    Mutation(
        "vectors: several values",
        "_list_segments",
        "begin, end = max(x if x > 0 else 1 - x, behind), abs(y)",
        "begin, end = max(x if x > 0 else 1 - x, behind), y",
        suite("auto"),
    ),
    Mutation(
        "vectors: verifying",
        "_report_line",
        "if index.exact[g] == 0:",
        "if index.exact[g] == 2:",
        ("tests/index/test_vectors.py", "-k", "rectangles"),
    ),
    Mutation(
        "access sets",
        "_weigh",
        "NOWHERE if lo[p] == 0 and hi[p] >= 0 else share[p]",
        "NOWHERE if lo[p] == 1 and hi[p] == 0 else share[p]",
        ("tests/index/test_access_sets.py",),
    ),
    Mutation(
        "planner",
        "_for_few_events",
        "if few is not None and few.masks is masks:",
        "if few is not None:",
        ("tests/index/test_auto.py", "-k", "old_plan"),
    ),
    Mutation(
        "complete",
        "match",
        "if single is None or single.all():",
        "if single is None or single.any():",
        suite("counting"),
    ),
    Mutation(
        "conjunctions",
        "_intersect",
        "if max(low, have_lo) <= min(high, have_hi):",
        "if max(low, have_lo) < min(high, have_hi):",
        suite("counting"),
    ),
    Mutation(
        "operators",
        "_operators",
        "within = floor[a] <= low and high <= ceiling[a]",
        "within = floor[a] <= low",
        ("tests/index/test_operators.py",),
    ),
    Mutation(
        "operators: the floor",
        "_operators",
        "within = floor[a] <= low and high <= ceiling[a]",
        "within = high <= ceiling[a]",
        ("tests/index/test_operators.py",),
    ),
    Mutation(
        "counting",
        "_count_down_and_find",
        "k += now == 0",
        "k += now == 1",
        suite("counting"),
    ),
    Mutation(
        "postings",
        "slots_of",
        "limits[a, FLOOR] <= v and v <= limits[a, CEILING]",
        "limits[a, FLOOR] < v and v <= limits[a, CEILING]",
        suite("counting", "kindex"),
    ),
    Mutation(
        "kindex",
        "_skip_to",
        "np.int64(rows[p + step]) < target:",
        "np.int64(rows[p + step]) <= target:",
        (SUITE, "tests/index/test_kindex.py", "-k", "kindex"),
    ),
    Mutation(
        "propagation: sorted lists",
        "_first_at_least",
        "below = key[begin + half] < cell",
        "below = key[begin + half] <= cell",
        suite("propagation"),
    ),
    Mutation(
        "propagation: spans",
        "_test_spans",
        "np.uint64(span_end[s] >= low)",
        "np.uint64(span_end[s] > low)",
        suite("propagation"),
    ),
    Mutation(
        "propagation: entries of several cells",
        "_test_group",
        "_first_at_least(key, first, end, high + 1)",
        "_first_at_least(key, first, end, high)",
        ("tests/segments/test_single_patterns.py",),
    ),
    Mutation(
        "propagation: unequal to one of several",
        "_test_group",
        "_set_run(bits, after, end)",
        "_set_run(bits, after + 1, end)",
        suite("propagation"),
    ),
    Mutation(
        "gryphon: edge by edge",
        "_follow_all",
        "(words[x + np.uint64(LO)] <= v)",
        "(words[x + np.uint64(LO)] < v)",
        suite("gryphon"),
    ),
    Mutation(
        "gryphon: directories",
        "_follow_entry",
        "n += v <= nodes[np.uint64(x), HI]",
        "n += v < nodes[np.uint64(x), HI]",
        suite("gryphon"),
    ),
    Mutation(
        "opindex: BETWEEN",
        "_scan_nested",
        "if far[at] < x:",
        "if far[at] <= x:",
        suite("opindex", "opindex-bs"),
    ),
    Mutation(
        "opindex: limits",
        "_search",
        "(op == LE or op == NE) and x < floor[a]",
        "(op == NE) and x < floor[a]",
        suite("opindex", "opindex-bs"),
    ),
    Mutation(
        "opindex: insertion",
        "_merge",
        "if p >= start and key[p] > key[q]:",
        "if p >= start and key[p] < key[q]:",
        updates("opindex", "opindex-bs"),
    ),
    Mutation(
        "betree: meeting an event",
        "meets",
        "if lo <= search.slot_hi[attribute] and",
        "if lo < search.slot_hi[attribute] and",
        suite("betree"),
    ),
    Mutation(
        "betree: what needs no test",
        "settle",
        "if entry.lo == lo and entry.hi == hi:",
        "if entry.lo == lo:",
        suite("betree"),
    ),
    Mutation(
        "betree: intervals after deletions",
        "cluster",
        "interval.lo, interval.hi = least, most",
        "interval.lo, interval.hi = min(least, interval.lo), max(most, interval.hi)",
        updates("betree"),
    ),
    Mutation(
        "betree-batch",
        "_first",
        "np.where(chosen < 0, clauses.attributes, chosen)",
        "np.where(chosen <= 0, clauses.attributes, chosen)",
        suite("betree-batch"),
    ),
    Mutation(
        "pstree: spaces",
        "find_spaces",
        "if v < leaf[np.uint64(link), START]:",
        "if v <= leaf[np.uint64(link), START]:",
        suite("pstree"),
    ),
    Mutation(
        "pstree: verifying",
        "verify",
        "ok = low <= v and v <= high",
        "ok = low <= v and v < high",
        suite("pstree", "pstbloom", "psthash"),
    ),
    Mutation(
        "pstbloom",
        "_ask_others",
        "n += np.uint64((w & bits) == bits)",
        "n += np.uint64((w & bits) != bits)",
        suite("pstbloom"),
    ),
    Mutation(
        "psthash",
        "_choose_spaces",
        "m += cover[space[i], SIZE] > 0",
        "m += cover[space[i], SIZE] > 1",
        suite("psthash"),
    ),
    Mutation(
        "cluster",
        "find_cluster",
        "np.int64(nodes[n, LEFT]) if v < nodes[n, KEY]",
        "np.int64(nodes[n, LEFT]) if v <= nodes[n, KEY]",
        suite("cluster"),
    ),
    Mutation(
        "interval",
        "find_elementary",
        "elif v > nodes[m, LAST]:",
        "elif v >= nodes[m, LAST]:",
        suite("interval"),
    ),
    Mutation(
        "hybrid",
        "_search",
        "tree.leaf[first + leaf + 1], v)",
        "tree.leaf[first + leaf + 1] - 1, v)",
        suite("hybrid"),
    ),
    Mutation(
        "segment-tree",
        "_collect",
        "at += v >= tree.cells[low + right]",
        "at += v > tree.cells[low + right]",
        suite("segment-tree"),
    ),
    Mutation(
        "interval-tree",
        "_count_by_first",
        "while k < end and bounds[k] <= v:",
        "while k < end and bounds[k] < v:",
        suite("interval-tree"),
    ),
    Mutation(
        "tatbul: combination",
        "_compare_with_sizes",
        "some |= counts[p] == size[p]",
        "some |= counts[p] > size[p]",
        suite("interval"),
    ),
    Mutation(
        "tatbul: stretches",
        "_mark_sorted_runs",
        "if entries[m] < group[a]:",
        "if entries[m] <= group[a]:",
        (SUITE, "-k", "test_constants_of_several_kinds and segment-tree and pivots"),
    ),
    Mutation(
        "tatbul: bit vectors",
        "runs_of_slots",
        "if runs[m, GONE] < runs[m, GONE_END]:",
        "if runs[m, GONE] > runs[m, GONE_END]:",
        ("tests/index/test_tatbul.py", "-k", "lists_of_differences"),
    ),
    Mutation(
        "json: numbers",
        "_read_digits",
        "at += count",
        "at += min(count, 7)",
        LANE,
    ),
    Mutation(
        "json: eight digits",
        "read_number",
        "if digits == 0 or not fits",
        "if digits == 0 or digits == 16 or not fits",
        ("tests/coding/test_json_blocks.py",),
    ),
    Mutation(
        "json: UTF-8",
        "_character_size",
        "highest = 0x9F  # above are surrogates",
        "highest = 0xBF  # above are surrogates",
        LANE,
    ),
    Mutation(
        "json: keys twice",
        "_read_key",
        "if work.seen[node] >= work.object[depth]:",
        "if work.seen[node] > work.object[depth]:",
        LANE,
    ),
    Mutation(
        "json: long names",
        "_find",
        "and (size <= 8 or _same_bytes(",
        "and (size <= 16 or _same_bytes(",
        ("tests/coding/test_json_blocks.py",),
    ),
    Mutation(
        "json: members",
        "_find_member",
        "if times == 1 else (start, start)",
        "if times >= 1 else (start, start)",
        ("tests/coding/test_json_members.py",),
    ),
    Mutation(
        "lookup: numbers that share a slot",
        "number_found",
        "at = _next_slot(slots, at)\n    return np.int64(NUMBER_BASE)",
        "break\n    return np.int64(NUMBER_BASE)",
        ("tests/coding/test_lookup.py",),
    ),
    Mutation(
        "patterns: LIKE at its end",
        "between_ends",
        "return start == end, first, first, start, end",
        "return True, first, first, start, end",
        ("tests/coding/test_patterns.py",),
    ),
    Mutation(
        "patterns: other texts",
        "_look",
        "            if begin < start:\n                is_open = True\n                continue\n",
        "",
        ("tests/coding/test_patterns.py",),
    ),
    Mutation(
        "single: rows that are gone",
        "_drop_gone",
        "kept += 1 - np.int64((gone[r >> 3] >> (r & 7)) & 1)",
        "kept += 1",
        ("tests/segments/test_single.py", "-k", "gone"),
    ),
    Mutation(
        "single: several values",
        "add_entry",
        "single = lo == hi and not (at < last and attribute[at] == a)",
        "single = lo == hi",
        ("tests/segments/test_single.py",),
    ),
    Mutation(
        "single: what a clause of the sieve needs",
        "fill_sieve",
        "if fails_without and a != np.uint64(group) and presence[a] < share:",
        "if a != np.uint64(group) and presence[a] < share:",
        ("tests/segments/test_sieve.py",),
    ),
    Mutation(
        "single: numbers that share a float",
        "_cell_of",
        "if exact and (domain.numbers.rest[at] | found.rest[i]) != 0:",
        "if False:",
        ("tests/segments/test_single.py", "-k", "json_does_not_have"),
    ),
    Mutation(
        "operators: an end that is included",
        "holds",
        "above <= -HIGH_OPEN[r]",
        "above < -HIGH_OPEN[r]",
        WAITING,
    ),
    Mutation(
        "waiting: kinds of a list",
        "_test_list",
        "and least <= kind and kind <= most",
        "",
        WAITING,
    ),
    Mutation(
        "waiting: what is needed",
        "_needed",
        "if steps[at].operator != Op.IS_NULL:",
        "if True:",
        WAITING,
    ),
)


@cache
def functions(source: Path) -> dict[str, list[tuple[Path, int, int]]]:
    """Of each name: the file, and where in it the text of the function begins and ends."""
    found: dict[str, list[tuple[Path, int, int]]] = {}
    for path in sorted(source.rglob("*.py")):
        text = path.read_text()
        for head in re.finditer(r"^( *)def (\w+)", text, re.M):
            below = re.compile(rf"^ {{0,{len(head[1])}}}[^\s)]", re.M)
            behind = below.search(text, text.index("\n", head.end()))
            found.setdefault(head[2], []).append((path, head.start(), behind.start() if behind else len(text)))
    return found


def places(m: Mutation, source: Path) -> list[tuple[Path, int]]:
    """Where the old text stands: file, and place in it."""
    return [
        (path, start + found.start())
        for path, start, end in functions(source).get(m.function, [])
        for found in re.finditer(re.escape(m.old), path.read_text()[start:end])
    ]


def misfits() -> list[Mutation]:
    """Those whose old text does not stand in their function exactly once."""
    return [m for m in MUTATIONS if len(places(m, ROOT / "src/dibs")) != 1]


def main(words: list[str]) -> int:
    """Runs the mutations whose names contain one of these words."""
    chosen = [m for m in MUTATIONS if not words or any(word in m.name for word in words)]
    wrong = misfits()
    for m in wrong:
        print(f"{m.name}: {m.old!r} does not stand in {m.function} exactly once: change the table", file=sys.stderr)
    if wrong or not chosen:
        return 2
    missed = 0
    for m in chosen:
        began = time.monotonic()
        outcome = run(m)
        missed += outcome is None
        print(f"{m.name:<36} {outcome or 'NOT CAUGHT':<100} {time.monotonic() - began:6.1f} s", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


def run(m: Mutation) -> str | None:
    """What caught the mutation."""
    with tempfile.TemporaryDirectory(prefix="dibs-mutation-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        [(file, start)] = places(m, source / "dibs")
        text = file.read_text()
        file.write_text(text[:start] + m.new + text[start + len(m.old) :])
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *m.tests]
        environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"caught: never ended ({SECONDS} s)"
    if done.returncode == 0:
        return None
    failed = re.search(r"^FAILED (.+?)(?: - |$)", done.stdout, re.M)
    if failed:
        return f"caught by {failed[1].removeprefix('tests/')}"
    if done.returncode < 0:
        return f"caught: the process ended by signal {-done.returncode}"
    raise RuntimeError(f"{m.name}: the tests could not be run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
