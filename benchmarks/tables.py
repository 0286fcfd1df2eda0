"""The tables of docs/benchmarks, as Markdown, from the results of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tables_live
import tables_outside
import tables_readme
from words import STAGES, Promise, at_most, markdown, number

SHAPES = ("sparse", "dense", "zipf", "ads", "retail")
OTHERS = (
    "first-use",
    "parsing",
    "bulk",
    "growth-sparse",
    "growth-dense",
    "single",
    "live",
    "durable",
    "pages",
    "cliffs",
    "structures",
    "outside",
    "papers",
)
KERNELS = ("access lists", "bit slices", "auto")
ENOUGH_CORES = 1.7  # of two: with less, the gain of a second thread says nothing
PROMISED_AT = 1_000_000  # subscriptions
# What costs the same for any number of subscriptions outweighs these below that: handing a batch to a second thread,
# opening files, the pages that a memory budget needs at least.
JUDGED_IN_FULL = ("2 threads / 1 thread", "reopen / rebuild", "pbtree: index / memory budget")
WHOLE = ("match_batch", "match_batch of columns", "match_batch, 2 threads", "count")
SLOW = ("scan", "NumPy counting")
STRUCTURE_NOTE = (
    "Candidates, false candidates, predicates evaluated and nodes are those of an event; what a node is, each file of "
    "`src/dibs/index` says. `auto` counts a candidate once for all events of a block. A number in brackets is of "
    "subscriptions, where a structure did not take them all; `/ auto` is then the ratio to `auto` over as many."
)


def missing(results: dict[str, Any]) -> list[str]:
    """The sections that docs/benchmarks needs and the results do not have."""
    return [name for name in (*SHAPES, *OTHERS) if name not in results["sections"]]


def promises(results: dict[str, Any]) -> Iterator[Promise]:
    """Every promise about which the results say something; those that a smaller run cannot judge say so."""
    small = results["size"]["subscriptions"] < PROMISED_AT
    for promise in _all_promises(results["sections"]):
        judged = not (small and promise.measure in JUDGED_IN_FULL)
        yield promise if judged else promise._replace(kept=True, note=f"{promise.note} (not judged at this size)")


def _all_promises(sections: dict[str, Any]) -> Iterator[Promise]:
    for measure, must, aim in (
        ("auto / better baseline", 0.8, 0.4),
        ("match_batch / better baseline", 1.5, 0.8),
        ("2 threads / 1 thread", 0.6, 0.52),
        ("build / lexsort", 3, 1.5),
    ):
        for shape in SHAPES:
            if shape in sections:
                promise = at_most(measure, shape, must, aim, sections[shape]["ratios"][measure])
                cores = sections[shape]["threads"]["cores"]
                if "threads" in measure and cores < ENOUGH_CORES:
                    promise = promise._replace(note=f" (had {cores:.1f} cores)")
                yield promise
    for shape in SHAPES:
        if shape in sections:
            yield at_most("index bytes per predicate", shape, 24, 12, sections[shape]["bytes per predicate"]["index"])
    for shape in SHAPES:
        if shape in sections:
            value = sections[shape]["ratios"]["scan / auto"]
            yield Promise("scan / auto", shape, "at least 30", "100", value, value >= 30)
    for shape in ("sparse", "dense"):
        value = sections.get(f"growth-{shape}", {}).get("4 times as many / 1")
        if value is not None:
            yield at_most("time at 4 times as many subscriptions", shape, 4.5, 4, value)
    if "single" in sections:
        value = sections["single"]["few matches"]["match(dict) / kernel"]
        yield at_most("match(dict) / kernel for one event", "sparse", 5, 2, value)
    if "parsing" in sections:
        parsing = sections["parsing"]
        yield at_most(
            "templates / sqlglot", "sparse", 0.1, None, parsing["templates"]["of sqlglot's time"]["templates"]
        )
        yield at_most("ms to add 40 factors", "", 50, None, parsing["40 factors"]["milliseconds to add"])
    if "json" in sections:
        json = sections["json"]
        rules = json["equality"]  # ranges are a matter of the index more than of JSON
        yield at_most("match_batch of JSON / orjson and dicts", "", 0.35, 0.2, rules["/ orjson and dicts"])
        yield at_most("match_batch of JSON / orjson alone", "", 1.0, 0.6, rules["/ orjson"])
        yield at_most("1,000 columns / a MAP", "zipf", 1.1, 1.0, json["wide"]["columns / map"])
    yield from tables_live.promises(sections)


def blocks(results: dict[str, Any]) -> dict[str, str]:
    """What stands between the markers of each name, as far as the results go."""
    sections = results["sections"]
    found = {"host": _host(results), "promises": _promises(results), "scripts": tables_outside.list_scripts()}
    for name, make, needs in (
        ("matching", _matching, SHAPES),
        ("building", _building, SHAPES),
        ("growth", _growth, ("growth-sparse", "growth-dense")),
        ("parsing", _parsing, ("parsing",)),
        ("bulk", _bulk, ("bulk",)),
        ("single", _single, ("single",)),
        ("live", tables_live.live, ("live",)),
        ("durable", tables_live.durable, ("durable",)),
        ("pages", tables_live.pages, ("pages",)),
        ("cliffs", _cliffs, ("cliffs", *SHAPES)),
        ("structures", _structures, ("structures",)),
        ("first-use", _first_use, ("first-use",)),
        ("outside", tables_outside.write_outside, ("outside",)),
        ("papers", tables_outside.write_papers, ("papers",)),
        ("how-fast", tables_readme.write_readme, (*SHAPES, "single", "bulk", "durable", "live")),
    ):
        if all(section in sections for section in needs):
            found[name] = make(sections)
    return found


def _host(results: dict[str, Any]) -> str:
    host = results["host"]
    caches = ", ".join(f"{name} {size}" for name, size in host["caches"].items())
    packages = ", ".join(f"{name} {version}" for name, version in host["packages"].items() if version)
    load = f"load average {host['load average'][0]} before, {results['load average afterwards'][0]} after"
    return "\n".join(
        [
            f"- {host['date'][:10]}, {results['minutes']:.0f} minutes; {load}",
            f"- {host['cpu']}, {host['cores']} cores ({caches}), {host['memory'] / 2**30:.0f} GB; {host['system']}",
            f"- {host['python']}; {packages}; commit {host['commit']}",
            f"- {results['size']['subscriptions']:,} subscriptions, {results['size']['events']:,} events, "
            f"best of {results['size']['repeats']}",
        ]
    )


def _promises(results: dict[str, Any]) -> str:
    rows: dict[str, list[Promise]] = {}
    for promise in promises(results):
        rows.setdefault(promise.measure, []).append(promise)
    return markdown(
        ["measure", "must", "aim", "measured"],
        [
            (
                measure,
                found[0].must,
                found[0].aim,
                ", ".join(_in_bold(f"{p.where} {p.shown}".strip(), not p.kept) for p in found),
            )
            for measure, found in rows.items()
        ],
    )


def _in_bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


def _matching(sections: dict[str, Any]) -> str:
    times = {shape: sections[shape]["microseconds per event"] for shape in SHAPES}

    def row(title: str, values: Iterable[Any]) -> list[Any]:
        return [title, *values]

    rows = [row(name, (times[s].get(name, {}).get("best") for s in SHAPES)) for name in (*KERNELS, *WHOLE, *SLOW)]
    rows.insert(len(KERNELS), row("auto, 2 threads", (sections[s]["threads"]["2 threads"] for s in SHAPES)))
    rows.append(row("*cores that 2 threads had*", (sections[s]["threads"]["cores"] for s in SHAPES)))
    rows += [
        row(f"*{name}*", (sections[s][name] for s in SHAPES)) for name in ("matches per event", "candidates per event")
    ]
    stages = [
        row(name, (sections[s]["stages of match_batch"][name] for s in SHAPES))
        for name in ("read", "code", "kernel", "pairs")
    ]
    head = ["microseconds per event", *SHAPES]
    return (
        f"{markdown(head, rows)}\n\n![Microseconds per event by workload](../plots/matching.svg)\n\n"
        f"The stages of `match_batch` (one thread), each timed alone:\n\n{markdown(head, stages)}"
    )


def _building(sections: dict[str, Any]) -> str:
    return markdown(
        ["", *SHAPES],
        [
            ["build, seconds", *(sections[s]["build"]["build"] for s in SHAPES)],
            ["lexsort of the predicates, seconds", *(sections[s]["build"]["lexsort"] for s in SHAPES)],
            ["index, bytes per predicate", *(sections[s]["bytes per predicate"]["index"] for s in SHAPES)],
            ["coded clauses, bytes per predicate", *(sections[s]["bytes per predicate"]["clauses"] for s in SHAPES)],
            ["subscriptions filed as records", *(f"{sections[s]['plan']['records']:,}" for s in SHAPES)],
            ["subscriptions filed as masks", *(f"{sections[s]['plan']['masks']:,}" for s in SHAPES)],
        ],
    )


def _growth(sections: dict[str, Any]) -> str:
    rows, notes = [], []
    for shape in ("sparse", "dense"):
        growth = sections[f"growth-{shape}"]
        for p in growth["points"]:
            rows.append([shape, f"{p['subscriptions']:,}", p["microseconds per event"], p["matches per event"]])
        notes += [f"\nLeft out ({shape}): {note}." for note in growth["left out"]]
    table = markdown(["", "subscriptions", "microseconds per event", "matches per event"], rows)
    return table + "".join(notes) + "\n\n![Time per event by subscriptions](../plots/growth.svg)"


def _parsing(sections: dict[str, Any]) -> str:
    parsing = sections["parsing"]
    lane, factors = parsing["templates"], parsing["40 factors"]
    table = markdown(
        ["", "microseconds per text", "of sqlglot's time"],
        [[name, t, lane["of sqlglot's time"][name]] for name, t in lane["microseconds per text"].items()],
    )
    return (
        f"{table}\n\n{lane['texts']:,} texts of the sparse workload. The expression of 40 factors takes "
        f"{number(factors['milliseconds to add'])} ms to add, {number(factors['milliseconds to add and match'])} ms "
        "with the first match."
    )


def _bulk(sections: dict[str, Any]) -> str:
    bulk = sections["bulk"]
    n, seconds, parts = bulk["subscriptions"], bulk["seconds"], bulk["bytes per subscription"]
    stages = markdown(
        ["", "seconds", "microseconds per subscription"],
        [[name, s, s / n * 1e6] for name, s in seconds.items()],
    )
    total = sum(parts.values())
    memory = markdown(
        ["", "bytes per subscription"],
        [
            *([name, b] for name, b in parts.items() if b),
            ["all arrays", total],
            ["more memory of the process afterwards", bulk["resident bytes per subscription"]],
            ["more memory at the peak of `add_table`", bulk["peak bytes per subscription"]],
        ],
    )
    return f"{n:,} subscriptions, {bulk['predicates']:,} predicates:\n\n{stages}\n\n{memory}"


def _single(sections: dict[str, Any]) -> str:
    single = sections["single"]
    few, many = single["few matches"], single["many matches"]
    names = ("match(dict)", "kernel", "kernel in one batch", "match_batch(list of dicts)")
    rows: list[list[Any]] = [[n, few["microseconds per event"][n], many["microseconds per event"][n]] for n in names]
    rows.append(["match(dict) / kernel", few["match(dict) / kernel"], many["match(dict) / kernel"]])
    rows.append(["*matches per event*", few["matches per event"], many["matches per event"]])
    stages = [[n, few["stages"][n], many["stages"][n]] for n in STAGES]
    return (
        f"{markdown(['microseconds per event', 'few matches', 'many matches'], rows)}\n\n"
        "`match(dict)` is one compiled call. An event that it does not take is a batch of one, with these stages:\n\n"
        f"{markdown(['microseconds per event', 'few matches', 'many matches'], stages)}\n\n"
        "![match(dict), and the stages of a batch of one](../plots/single.svg)"
    )


def _cliffs(sections: dict[str, Any]) -> str:
    cliffs = sections["cliffs"]
    sizes = list(cliffs["batch sizes"]["sparse"])
    batches = markdown(
        ["events of a batch", *sizes],
        [[shape, *(times[s] for s in sizes)] for shape, times in cliffs["batch sizes"].items()],
    )
    arrays = markdown(
        ["microseconds per event", "no array", "in one event", "in all events"],
        [[shape, t["no array"], t["in one event"], t["in all events"]] for shape, t in cliffs["arrays"].items()],
    )
    p = cliffs["programs"]
    count = p["expressions"]
    programs = markdown(
        ["", "microseconds per event", "microseconds to add one"],
        [
            [f"{n:,} {title}", p[f"{name}: microseconds per event"], p[f"{name}: microseconds to add one"]]
            for name, title, n in (
                ("with OR", "expressions `(... AND ...) OR (... AND ...)`", count),
                ("conjunctions", "conjunctions, their halves", 2 * count),
            )
        ],
    )
    unplanned = markdown(
        ["microseconds per event", *SHAPES],
        [
            ["before any event was seen", *(sections[s]["before any event was seen"] for s in SHAPES)],
            ["planned from events", *(sections[s]["microseconds per event"]["auto"]["best"] for s in SHAPES)],
        ],
    )
    return (
        f"Microseconds per event of the kernel by batch size:\n\n{batches}\n\n"
        f"![Time per event by batch size](../plots/batches.svg)\n\n"
        f"An array of two values for one attribute:\n\n{arrays}\n\n"
        f"OR:\n\n{programs}\n\nThe planner's guess:\n\n{unplanned}"
    )


STRUCTURE_HEAD = (
    "structure",
    "microseconds per event",
    "/ auto",
    "build, seconds",
    "bytes per subscription",
    "candidates",
    "false candidates",
    "predicates",
    "nodes",
)


def structure_rows(workload: dict[str, Any], subscriptions: int) -> Iterator[list[Any]]:
    """A row for each structure, under STRUCTURE_HEAD: the fastest first, those at fewer subscriptions after all others,
    those without figures last."""

    def order(row: dict[str, Any]) -> tuple[float, float]:
        return -row.get("subscriptions", 0), row.get("microseconds per event", 0.0)

    for row in sorted(workload["rows"], key=order):
        name, n = row["structure"], row.get("subscriptions")
        yield [
            name if n in (None, subscriptions) else f"{name} ({n:,})",
            row.get("microseconds per event"),
            row.get("/ auto"),
            row.get("build seconds"),
            row.get("bytes per subscription"),
            row.get("candidates per event"),
            row.get("false candidates per event"),
            row.get("predicates evaluated per event"),
            row.get("nodes per event"),
        ]


def refusals(workload: dict[str, Any]) -> list[str]:
    """Why structures have fewer subscriptions, or no figures."""
    return [
        f"{row['structure']}, {int(n):,} subscriptions: {reason}"
        for row in workload["rows"]
        for n, reason in row["refused"].items()
    ]


def _structures(sections: dict[str, Any]) -> str:
    section = sections["structures"]
    found = [f"![Microseconds per event of every structure](../plots/structures.svg)\n\n{STRUCTURE_NOTE}"]
    for shape, workload in section["workloads"].items():
        table = markdown(STRUCTURE_HEAD, structure_rows(workload, section["subscriptions"]))
        notes = "".join(f"\n- {reason}" for reason in refusals(workload))
        title = (
            f"**{shape}**, {section['subscriptions']:,} subscriptions, {number(workload['matches per event'])} matches"
        )
        found.append(f"{title} per event:\n\n{table}" + (f"\n\nToo much for some:\n{notes}" if notes else ""))
    return "\n\n".join(found)


def _first_use(sections: dict[str, Any]) -> str:
    took = {kind: found for kind, found in sections["first-use"].items() if kind != "run"}
    return markdown(
        ["seconds", "clock", "processor"], [[kind, own["clock"], own["processor"]] for kind, own in took.items()]
    )
