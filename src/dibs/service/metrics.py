"""Counters and latencies, for /metrics and /v1/stats. Each process counts for itself; matching processes hand theirs to
the writer each second (processes.py)."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from typing import Any

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
LATEST = 1_000  # latencies that quantiles are taken from
HELP = {
    "dibs_requests_total": ("counter", "Requests by route and status."),
    "dibs_request_seconds": ("histogram", "Time to the answer, by route."),
    "dibs_events_total": ("counter", "Events that were matched or published, by tenant."),
    "dibs_matches_total": ("counter", "Subscriptions that they satisfied, by tenant."),
    "dibs_refused_total": ("counter", "Requests that were refused, by type of problem."),
    "dibs_subscriptions": ("gauge", "Subscriptions, by tenant, paused ones included."),
    "dibs_recent_events": ("gauge", "Recent events in memory, by tenant."),
    "dibs_deliveries_waiting": ("gauge", "Deliveries that wait, by tenant and destination."),
    "dibs_deliveries_dead": ("gauge", "Dead letters, by tenant and destination."),
    "dibs_deliveries_total": ("counter", "Deliveries that were made, by tenant and destination."),
    "dibs_process_start_seconds": ("gauge", "When the writer started, in seconds since 1970."),
}

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]


class Metrics:
    def __init__(self) -> None:
        self.started = time.time()
        self.counters: Counter[tuple[str, Labels]] = Counter()
        self.seconds: dict[str, list[float]] = {}  # route to counts by bucket, then the sum
        self.latest: dict[str, deque[float]] = {}
        self.others: dict[str, dict[str, Any]] = {}  # what other processes have handed over

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        self.counters[name, tuple(sorted(labels.items()))] += amount  # type: ignore[assignment]

    def observe(self, route: str, seconds: float) -> None:
        found = self.seconds.get(route)
        if found is None:
            found = self.seconds[route] = [0.0] * (len(BUCKETS) + 2)
            self.latest[route] = deque(maxlen=LATEST)
        found[bisect_left(BUCKETS, seconds)] += 1
        found[-1] += seconds
        self.latest[route].append(seconds)

    def hand_over(self) -> dict[str, Any]:
        """For another process, as JSON."""
        counters = [[name, labels, value] for (name, labels), value in self.counters.items()]
        return {"counters": counters, "seconds": self.seconds}

    def together(self) -> tuple[Counter[tuple[str, Labels]], dict[str, list[float]]]:
        """With those of the other processes."""
        counters, seconds = Counter(self.counters), {route: list(found) for route, found in self.seconds.items()}
        for other in self.others.values():
            for name, labels, value in other["counters"]:
                counters[name, tuple((key, text) for key, text in labels)] += value
            for route, found in other["seconds"].items():
                own = seconds.setdefault(route, [0.0] * len(found))
                seconds[route] = [a + b for a, b in zip(own, found)]
        return counters, seconds

    def quantiles(self) -> dict[str, dict[str, float]]:
        """Of the latest requests of this process, in seconds."""
        result = {}
        for route, latest in self.latest.items():
            found = sorted(latest)
            at = {name: found[min(int(len(found) * q), len(found) - 1)] for name, q in (("p50", 0.5), ("p99", 0.99))}
            result[route] = {"count": sum(self.seconds[route][:-1]), **at}
        return result

    def text(self, gauges: list[Sample], tenant: str | None) -> str:
        """In the format of Prometheus. tenant: only what is of this one; None: everything."""
        counters, seconds = self.together()
        samples: list[Sample] = [(name, labels, value) for (name, labels), value in counters.items()]
        samples += gauges
        if tenant is None:
            samples.append(("dibs_process_start_seconds", (), self.started))
        else:
            samples = [s for s in samples if ("tenant", tenant) in s[1]]
            seconds = {}
        lines: list[str] = []
        for name, (kind, about) in HELP.items():
            found = sorted(s for s in samples if s[0] == name)
            if found or (name == "dibs_request_seconds" and seconds):
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_show_value(labels)} {value:g}" for _, labels, value in found]
            if name == "dibs_request_seconds":
                lines += _histogram(name, seconds)
        return "\n".join(lines) + "\n"


def _histogram(name: str, seconds: dict[str, list[float]]) -> list[str]:
    lines = []
    for route, found in sorted(seconds.items()):
        below = 0.0
        for edge, count in zip((*map(str, BUCKETS), "+Inf"), found):
            below += count
            lines.append(f"{name}_bucket{_show_value((('le', edge), ('route', route)))} {below:g}")
        lines.append(f"{name}_sum{_show_value((('route', route),))} {found[-1]:g}")
        lines.append(f"{name}_count{_show_value((('route', route),))} {below:g}")
    return lines


def _show_value(labels: Labels) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels) + "}" if labels else ""
