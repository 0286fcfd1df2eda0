"""The tables of the sections durable, live and pages, and what is promised about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from words import Promise, at_most, markdown, number

REOPEN = 0.05  # of rebuilding, at most
KEPT = 0.7  # of the idle throughput, at least
ADDS = 99  # a second with that, at least, and as many removes: the rate of 100, as far as it was made
SMALLER = 10  # times: the budget than the index, at least
KINDS = ("batches", "single events")
SIZES = (
    "bytes on disk",
    "budget",
    "resident at most",
    "memory not bounded",
)


def promises(sections: dict[str, Any]) -> Iterator[Promise]:
    if "durable" in sections:
        yield at_most("reopen / rebuild", "sparse", REOPEN, None, sections["durable"]["reopen / rebuild"])
    if "live" in sections:
        for m in sections["live"]["matchers"]:
            value = m["batches"][f"most adds per second at {KEPT} of idle"]
            measure = f"adds per second with matching at {KEPT} of idle"
            yield Promise(measure, f"{m['index']} {m['where']}", f"at least {ADDS}", "", value, value >= ADDS)
    if "pages" in sections:
        workloads = sections["pages"]["workloads"]
        for shape, workload in workloads.items():
            value = workload["points"][-1]["index / budget"]
            yield Promise("pbtree: index / memory budget", shape, f"at least {SMALLER}", "", value, value >= SMALLER)
        for shape, workload in workloads.items():
            value = max(p["resident at most"] / p["budget"] for p in workload["points"])
            yield at_most("pbtree: resident / memory budget", shape, 1, None, value)
        for shape, workload in workloads.items():
            value = max(p["pages / bound of the worst event"] for p in workload["points"])
            yield at_most("pbtree: pages of any event / log n + output", shape, 1, None, value)


def _met(kept: bool) -> str:
    return "met" if kept else "**not met**"


# ---- durable ----


def durable(sections: dict[str, Any]) -> str:
    section = sections["durable"]
    return "\n\n".join([_opening(section), _adding(section), _changing(section), _files(section)])


def _opening(section: dict[str, Any]) -> str:
    reopening, new = section["reopening"], section["new process"]
    build, seconds = section["building"]["seconds"]["rebuild, first match"], reopening["seconds"]
    replayed = f"{reopening['changes replayed after a crash']:,} changes to replay"
    cold = f"{reopening['bytes read when cold'] / 1e6:,.0f} MB read"
    fresh = new["seconds"]["rebuild"]
    rows = [
        ("rebuild: `Matcher()`, `add_table`", build, None),
        ("reopen: `Matcher.open`", seconds["file cache warm"], build),
        (f"reopen, file cache cold ({cold})", seconds["file cache cold"], build),
        (f"reopen, as after a crash ({replayed})", seconds["after a crash"], build),
        ("rebuild in a new process, from an Arrow file", fresh, None),
        ("reopen in a new process", new["seconds"]["reopen"], fresh),
    ]
    table = markdown(
        ["to the first match", "seconds", "/ rebuild", f"must be at most {REOPEN:g}"],
        [
            [name, s, None, ""] if s is None or by is None else [name, s, s / by, _met(s / by <= REOPEN)]
            for name, s, by in rows
        ],
    )
    return (
        f"{section['subscriptions']:,} sparse subscriptions, files on {section['filesystem']}. The promise is about "
        "the second line: one process, kernels loaded, files in the file cache and all of them checked. A new process "
        f"takes longer because it starts Python and loads the compiled kernels.\n\n{table}"
    )


def _adding(section: dict[str, Any]) -> str:
    seconds = section["building"]["seconds"]
    rows = [[name, seconds[name], rate] for name, rate in section["building"]["a second"].items()]
    return markdown(["in bulk", "seconds", "subscriptions per second"], rows)


def _changing(section: dict[str, Any]) -> str:
    found = {(r["where"], r["change"], r["batch"]): r for r in section["changing"]["rows"]}
    floor = section["changing"]["fdatasync of 4 KB"]
    rows: list[list[Any]] = []
    for (where, change, batch), memory in found.items():
        if where == "memory":
            own = found["durable", change, batch]
            name = f"{change}, one by one" if batch == 1 else f"{change}, {batch:,} at a time"
            latency = [own["median ms"], own["p99 ms"], own["worst ms"]]
            rows.append([name, memory["a second"], own["a second"], *latency, memory["p99 ms"]])
    rows.sort(key=lambda row: ("add", "replace", "remove").index(row[0].split(",")[0]))
    latency = [floor["median ms"], floor["p99 ms"], floor["worst ms"]]
    rows.append(["*append of 4 KB and fdatasync: the floor*", None, floor["a second"], *latency, None])
    head = ["changes", "a second, memory", "a second, durable", "durable: median ms", "p99 ms", "worst ms"]
    return (
        "A durable change is on the disk when the call returns. Milliseconds are those of a call (of the whole batch); "
        "what the background merges and saves meanwhile is not taken out:\n\n"
        f"{markdown([*head, 'memory: p99 ms'], rows)}"
    )


def _files(section: dict[str, Any]) -> str:
    disk = section["disk"]
    size = markdown(
        ["", "bytes per subscription"],
        [
            ["catalog", disk["catalog"]],
            ["segments", disk["segments"]],
            ["both", disk["catalog"] + disk["segments"]],
            ["*the texts alone*", disk["texts"]],
        ],
    )
    check = markdown(
        ["checked on every opening", "seconds", "MB", "GB a second"],
        [[name, c["seconds"], c["bytes"] / 1e6, c["GB a second"]] for name, c in section["checking"].items()],
    )
    return f"On disk, after closing:\n\n{size}\n\n{check}"


# ---- live ----


def live(sections: dict[str, Any]) -> str:
    section = sections["live"]
    events = {"batches": f"batches of {section['events of a batch']:,} events", "single events": "`match(dict)`"}
    intro = (
        f"On {section['subscriptions']:,} sparse subscriptions. One thread matches without a pause, another adds at a "
        "given rate and removes as many, in groups of up to 10 ms worth of adds, each a `batch()`, for "
        f"{section['seconds']['batches']:g} seconds ({section['seconds']['single events']:g} beside single events), "
        "so that all merges are in it. *Of idle* is the throughput of matching against that of an untouched twin in "
        "one segment, measured before and after (*worst*: in the worst third of the time); *by processor*: the same "
        "by the processor time of the matching thread, so without what it waits for. Every match was checked to see "
        "all groups that had returned before it began. *To settle*: how long merges went on afterwards. Each rate "
        "begins with what the one above it has left.\n"
    )
    parts = [intro.strip()]
    for kind in KINDS:
        parts.append(f"Beside {events[kind]}:\n\n{_sustained(section, kind)}\n\n{_most(section, kind)}")
    return "\n\n".join([*parts, _one_by_one(section), _amortised(section)])


def _name(matcher: dict[str, Any]) -> str:
    return f"{matcher['index']}, {matcher['where']}"


def _sustained(section: dict[str, Any], kind: str) -> str:
    rows: list[list[Any]] = []
    for m in section["matchers"]:
        for r in m[kind]["rows"]:
            group = r["group"]
            made = number(r["adds per second"])
            shares = [r[name] for name in ("of idle", "of idle, worst", "of idle, by processor time")]
            changing = [group["median ms"], group["p99 ms"], group["worst ms"]]
            matching = [r["match"]["median ms"], r["match"]["p99 ms"], r["match"]["worst ms"]]
            ending = [f"{r['segments']}", r["seconds to settle"]]
            rows.append([f"{_name(m)}, {r['rate']:,}", made, *shares, *changing, *matching, *ending])
    head = ["adds per second wanted", "made", "of idle", "worst", "by processor"]
    head += ["group: median ms", "p99 ms", "worst ms"]
    return markdown([*head, "match: median ms", "p99 ms", "worst ms", "segments", "to settle, s"], rows)


def _most(section: dict[str, Any], kind: str) -> str:
    said = []
    for m in section["matchers"]:
        most = m[kind][f"most adds per second at {KEPT} of idle"]
        idle = f"{m[kind]['idle events per second']:,.0f} events per second when idle"
        said.append(f"{_name(m)} {number(most) if most else '**none of these rates**'} ({idle})")
    return f"The most adds per second with matching at {KEPT} of idle or more: {'; '.join(said)}."


def _one_by_one(section: dict[str, Any]) -> str:
    rows = [
        [
            f"{_name(m)}: {r['change']}, a match after every {r['a match after every']}",
            r["a second"],
            r["a second, matches included"],
            r["call"]["median ms"],
            r["call"]["p99 ms"],
            r["match"]["median ms"],
            r["match"]["worst ms"],
        ]
        for m in section["matchers"]
        for r in m["one by one"]
    ]
    head = ["one by one", "a second", "matches included", "call: median ms", "p99 ms", "match: median ms", "worst ms"]
    return f"Single changes with matches between them, in one thread:\n\n{markdown(head, rows)}"


def _amortised(section: dict[str, Any]) -> str:
    rows = []
    for m in section["matchers"]:
        a = m["amortised"]
        times = [a["microseconds of the call"], a["microseconds until settled"], a["processor microseconds"]]
        rows.append([_name(m), f"{a['adds']:,}", *times])
    head = ["microseconds per add", "single adds", "of the call", "until all is merged", "of processors"]
    return f"Amortised, with all the merging (and saving) that the adds cause:\n\n{markdown(head, rows)}"


# ---- pages ----


def pages(sections: dict[str, Any]) -> str:
    section = sections["pages"]
    parts = []
    for shape, workload in section["workloads"].items():
        last = workload["points"][-1]
        smaller = _met(last["index / budget"] >= SMALLER)
        within = _met(all(p["resident at most"] <= p["budget"] for p in workload["points"]))
        bound = _met(all(p["pages / bound of the worst event"] <= 1 for p in workload["points"]))
        parts.append(
            f"**{shape}**. Index at least {SMALLER} times its budget at {last['subscriptions']:,}: {smaller}; never "
            f"more resident than the budget: {within}; no event touches more pages than log n and its output account "
            f"for: {bound}; every pair as `auto` has it: met.\n\n{_growth(workload)}\n\n{_rivals(workload)}"
        )
    intro = (
        "*At most* is what the height of the trees and the entries that an event meets allow, by the capacities of "
        "the pages (`benchmarks/sections/pages.py` has the formula); nothing in it is fitted. *Worst event*: its "
        "pages / what is allowed to it."
    )
    return "\n\n".join(["![Pages an event by subscriptions](../plots/pages.svg)", intro, *parts])


def _growth(workload: dict[str, Any]) -> str:
    head = ["subscriptions", "MB on disk", "budget, MB", "resident at most, MB", "not bounded, MB"]
    head += ["index / budget", "height"]
    head += ["pages per event", "at most", "worst event", "entries met per event", "matches per event"]
    rows = [
        [
            f"{p['subscriptions']:,}",
            *(p[name] / 1e6 for name in SIZES),
            p["index / budget"],
            f"{p['height']}",
            p["pages per event"],
            p["pages per event at most"],
            p["pages / bound of the worst event"],
            p["entries met per event"],
            p["matches per event"],
        ]
        for p in workload["points"]
    ]
    return markdown(head, rows)


def _rivals(workload: dict[str, Any]) -> str:
    rows: list[list[Any]] = []
    for p in workload["points"]:
        times, builds, sizes = (p[n] for n in ("microseconds per event", "build seconds", "bytes per subscription"))
        n = f"{p['subscriptions']:,}"
        for name, time in times.items():
            rows.append([f"{name}, {n}", builds[name], time, time / times["auto"], sizes[name]])
            if name == "pbtree":
                cold = p["microseconds per event, file cache cold"]
                rows.append(["*built with 64 MB*", builds["pbtree, 64 MB"], None, None, None])
                rows.append(["*file cache cold*", None, cold, None, None])
                rows.append(["*`match_batch`*", None, p["whole"]["microseconds per event of match_batch"], None, None])
    return markdown(["", "build, seconds", "microseconds per event", "/ auto", "bytes per subscription"], rows)
