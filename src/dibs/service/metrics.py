"""Counters and latencies, for /metrics and /v1/stats. Each process counts for itself; matching processes hand theirs to
the writer each second (forwarding.py), which tells them together: those of a process that has ended are kept, so that
no counter ever goes back while the writer lives."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from typing import Any

from dibs.service.process_figures import figures_of_process

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
LATEST = 1_000  # latencies that quantiles are taken from
SILENT = 10.0  # seconds after which a process that hands nothing over has ended
HELP = {
    "dibs_build_info": ("gauge", "Always 1; the label says which version runs."),
    "dibs_requests_total": ("counter", "Requests by route and status."),
    "dibs_request_seconds": ("histogram", "Time to the answer, by route."),
    "dibs_refused_total": ("counter", "Requests that were refused, by type of problem."),
    "dibs_tenant_requests_total": ("counter", "Requests by tenant and class of status (2xx, 4xx, 5xx)."),
    "dibs_tenant_request_seconds_total": ("counter", "Time to the answers of a tenant's requests, added up."),
    "dibs_tenant_refused_total": ("counter", "Requests that were refused, by tenant and type of problem."),
    "dibs_tenant_streams": ("gauge", "Live streams that are open, by tenant."),
    "dibs_events_total": ("counter", "Events that were matched or published, by tenant."),
    "dibs_matches_total": ("counter", "Subscriptions that they satisfied, by tenant."),
    "dibs_published_total": ("counter", "Events that were published, by tenant."),
    "dibs_subscriptions": ("gauge", "Subscriptions, by tenant, paused ones included."),
    "dibs_subscriptions_paused": ("gauge", "Paused subscriptions, by tenant."),
    "dibs_subscriptions_limit": ("gauge", "Subscriptions that a tenant may have; 0: any number."),
    "dibs_recent_events": ("gauge", "Recent events in memory, by tenant."),
    "dibs_deliveries_waiting": ("gauge", "Deliveries that wait to be sent, by tenant and destination."),
    "dibs_deliveries_oldest_seconds": ("gauge", "Age of the oldest delivery that waits; 0: none does."),
    "dibs_deliveries_kept": ("gauge", "Deliveries that a stream keeps for its clients."),
    "dibs_deliveries_dead": ("gauge", "Dead letters, by tenant and destination."),
    "dibs_deliveries_total": ("counter", "Deliveries that were made, by tenant and destination."),
    "dibs_deliveries_refused_total": ("counter", "Matches that a full destination has refused."),
    "dibs_deliveries_dropped_total": ("counter", "Matches that a full destination has dropped."),
    "dibs_deliveries_suppressed_total": ("counter", "Matches that their mode has held back."),
    "dibs_destination_failing_seconds": ("gauge", "For how long a destination has been failing; 0: it is not."),
    "dibs_outbox_bytes": ("gauge", "Bytes of all deliveries in the outbox: waiting, kept, dead and collected."),
    "dibs_outbox_limit_bytes": ("gauge", "Bytes at which publishing is refused."),
    "dibs_outbox_file_bytes": ("gauge", "Size of the outbox on the disk, with its log."),
    "dibs_outbox_oldest_seconds": ("gauge", "Age of the oldest delivery that waits, of all; 0: none does."),
    "process_start_time_seconds": ("gauge", "When a process started, in seconds since 1970."),
    "process_cpu_seconds_total": ("counter", "Processor time of a process."),
    "process_resident_memory_bytes": ("gauge", "Memory of a process."),
    "process_open_fds": ("gauge", "Open files and connections of a process."),
    "process_max_fds": ("gauge", "How many files and connections a process may have open."),
}

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]


class _Answered:
    """Requests of one route, status and tenant; histogram and latest latencies are those of the route."""

    __slots__ = ("count", "histogram", "latest", "sum")

    def __init__(self, seconds: dict[str, list[float]], latest: dict[str, deque[float]], route: str):
        self.count, self.sum = 0, 0.0
        self.histogram = seconds.setdefault(route, [0.0] * (len(BUCKETS) + 2))
        self.latest = latest.setdefault(route, deque(maxlen=LATEST))


class Metrics:
    def __init__(self) -> None:
        self._started = time.monotonic()
        self._counters: Counter[tuple[str, Labels]] = Counter()
        # What each request adds to is looked up once for many of them.
        self._answered: dict[tuple[str, int, str | None], _Answered] = {}  # by route, status and tenant
        self._matched: dict[str, list[int]] = {}  # by tenant: events, matches
        self.seconds: dict[str, list[float]] = {}  # route to counts by bucket, then the sum
        self.latest: dict[str, deque[float]] = {}
        self.others: dict[str, dict[str, Any]] = {}  # what other processes have handed over
        self._heard: dict[str, float] = {}  # and when, last

    @property
    def uptime(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        self._counters[name, tuple(sorted(labels.items()))] += amount  # type: ignore[assignment]

    def matched(self, tenant: str, events: int, matches: int) -> None:
        found = self._matched.get(tenant)
        if found is None:
            found = self._matched[tenant] = [0, 0]
        found[0] += events
        found[1] += matches

    def answered(self, route: str, status: int, seconds: float, tenant: str | None) -> None:
        """A request. tenant: of whom, where that is known."""
        same = self._answered.get((route, status, tenant))
        if same is None:
            same = self._answered[route, status, tenant] = _Answered(self.seconds, self.latest, route)
        same.count += 1
        same.sum += seconds
        same.histogram[bisect_left(BUCKETS, seconds)] += 1
        same.histogram[-1] += seconds
        same.latest.append(seconds)

    def counted(self) -> Counter[tuple[str, Labels]]:
        """The counters of this process."""
        found = Counter(self._counters)
        for (route, status, tenant), same in list(self._answered.items()):
            found["dibs_requests_total", (("route", route), ("status", str(status)))] += same.count
            if tenant is not None:
                own = ("tenant", tenant)
                found["dibs_tenant_requests_total", (("class", f"{status // 100}xx"), own)] += same.count
                found["dibs_tenant_request_seconds_total", (own,)] += same.sum  # type: ignore[assignment]
        for tenant, (events, matches) in list(self._matched.items()):
            found["dibs_events_total", (("tenant", tenant),)] += events
            found["dibs_matches_total", (("tenant", tenant),)] += matches
        return found

    def refused(self, type: str, tenant: str | None) -> None:
        self.count("dibs_refused_total", type=type)
        if tenant is not None:
            self.count("dibs_tenant_refused_total", tenant=tenant, type=type)

    # ---- of several processes ----

    def hand_over(self) -> dict[str, Any]:
        """For another process, as JSON."""
        counters = [[name, labels, value] for (name, labels), value in self.counted().items()]
        return {"counters": counters, "seconds": self.seconds, "figures": figures_of_process()}

    def take(self, process: str, given: dict[str, Any]) -> None:
        """What another process has handed over."""
        self.others[process] = given
        self._heard[process] = time.monotonic()

    def together(self) -> tuple[Counter[tuple[str, Labels]], dict[str, list[float]]]:
        """With those of the other processes."""
        counters, seconds = self.counted(), {route: list(found) for route, found in self.seconds.items()}
        for other in list(self.others.values()):
            for name, labels, value in other["counters"]:
                counters[name, tuple((key, text) for key, text in labels)] += value
            for route, found in other["seconds"].items():
                own = seconds.setdefault(route, [0.0] * len(found))
                seconds[route] = [a + b for a, b in zip(own, found)]
        return counters, seconds

    def processes(self, deliverer: int | None = None) -> list[Sample]:
        """What the processes of the service use. deliverer: the id of that process."""
        found = {"writer": figures_of_process()}
        if deliverer is not None:
            found["deliverer"] = figures_of_process(deliverer)
        now = time.monotonic()
        for name, other in list(self.others.items()):
            if now - self._heard.get(name, now) < SILENT:
                found[f"matching-{name}"] = other.get("figures", {})
        return [
            (name, (("process", process),), value)
            for process, values in found.items()
            for name, value in values.items()
        ]

    # ---- shown ----

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
        if tenant is not None:
            samples = [s for s in samples if ("tenant", tenant) in s[1]]
            seconds = {}
        by_name: dict[str, list[Sample]] = {}
        for sample in sorted(samples):
            by_name.setdefault(sample[0], []).append(sample)
        lines: list[str] = []
        for name, (kind, about) in HELP.items():
            found = by_name.get(name, [])
            if found or (name == "dibs_request_seconds" and seconds):
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_show_labels(labels)} {_show_number(value)}" for _, labels, value in found]
            if name == "dibs_request_seconds":
                lines += _histogram(name, seconds)
        return "\n".join(lines) + "\n"


def _histogram(name: str, seconds: dict[str, list[float]]) -> list[str]:
    lines = []
    for route, found in sorted(seconds.items()):
        below = 0.0
        for edge, count in zip((*map(str, BUCKETS), "+Inf"), found):
            below += count
            lines.append(f"{name}_bucket{_show_labels((('le', edge), ('route', route)))} {_show_number(below)}")
        lines.append(f"{name}_sum{_show_labels((('route', route),))} {_show_number(found[-1])}")
        lines.append(f"{name}_count{_show_labels((('route', route),))} {_show_number(below)}")
    return lines


def _show_number(value: float) -> str:
    """With all its digits: a counter that loses some stands still, and then jumps."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _show_labels(labels: Labels) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels) + "}" if labels else ""
