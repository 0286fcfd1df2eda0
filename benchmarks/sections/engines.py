"""Dibs against the JSON engines that services use: event-ruler (Java) and quamina (Go), from JSON text to matched ids.

Their programs (benchmarks/engines) are fetched and built by Maven and Go when they are first needed; where one of these
is missing, or the network, the engine is left out and the report says why. Engines run in processes of their own, on
one core, and take turns with Dibs over the same events, after all have found the same pairs. Processor time counts,
collecting garbage included.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

import numpy as np

from dibs.matcher import Matcher
from measure import MICRO, Keys, Say
from sections.engine_rules import DIALECTS, WORKLOADS, Rules

FOLDER = Path(__file__).parents[1] / "engines"
BUILT = FOLDER / "build"
GO_PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin"])
BUILD_SECONDS = 180
READY_SECONDS = 60  # for all rules, the pairs and warming up; an engine that needs longer is left out
WARM_SECONDS = 1.5  # compilers of Java work while programs run
ROUNDS = 3
TRIAL = 0.01  # with a smaller share of the rules only the pairs are of interest: one round, nobody warms up
SECONDS = 2.0  # an engine that has taken so long is not called again
JAVA = ["java", "-XX:ActiveProcessorCount=1", "-Xmx3g"]


class Unavailable(Exception):
    """Why an engine is not here."""


class Engine(NamedTuple):
    dialect: str
    build: Callable[[], list[str]]  # the command that starts it, or Unavailable
    environment: dict[str, str]


class Pace(NamedTuple):
    warm: float  # seconds
    rounds: int


def measure(share: float, absent: dict[str, str], say: Say) -> dict[str, Any]:
    """All workloads at a share of their rules; `absent` gets the engines that could not be had, with the reason."""
    commands = {}
    for name, engine in ENGINES.items():
        say(f"building {name}")
        try:
            commands[name] = engine.build()
        except Unavailable as e:
            absent[name] = str(e)
    pace = Pace(0.0, 1) if share < TRIAL else Pace(WARM_SECONDS, ROUNDS)
    return {title: _measure_one(title, make(share), commands, pace, say) for title, make in WORKLOADS.items()}


def _measure_one(title: str, workload: Rules, commands: dict[str, list[str]], pace: Pace, say: Say) -> dict[str, Any]:
    say(f"{title}: dibs")
    matcher = Matcher(threads=1)
    matcher.add_many(enumerate(workload.expressions))
    lines = b"\n".join(workload.events)
    for _ in range(3):  # it plans by the events that it sees
        pairs = matcher.match_batch(lines).pairs()
    keys = Keys(pairs["event"].to_numpy(), pairs["subscription"].to_numpy())
    single = [(event, rule) for event, text in enumerate(workload.events) for rule in matcher.match(text)]
    keys.check("dibs, match", *_columns(single))
    calls: dict[str, Callable[[], float]] = {
        "dibs, match": lambda: _time_ours(lambda: [matcher.match(text) for text in workload.events], workload),
        "dibs, match_batch": lambda: _time_ours(lambda: matcher.match_batch(lines).pairs(), workload),
    }
    left_out = {}
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        try:
            for name, command in commands.items():
                own = ENGINES[name]
                if own.dialect not in workload.patterns:
                    left_out[name] = "cannot say these rules"
                    continue
                say(f"{title}: {name}")
                run = _start(command, own, workload, pace, Path(folder))
                runs.append(run)
                try:
                    calls[name] = next(run)
                except Unavailable as e:
                    left_out[name] = str(e)
                    continue
                keys.check(name, *np.loadtxt(Path(folder) / own.dialect, np.int64, ndmin=2).reshape(-1, 2).T)
            times: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(pace.rounds):
                for name, call in calls.items():
                    if sum(times[name]) * len(workload.events) / MICRO < SECONDS:
                        times[name].append(call())
        finally:
            for run in runs:
                run.close()
    return {
        "rules": len(workload.expressions),
        "events": len(workload.events),
        "bytes per event": len(lines) / len(workload.events),
        "matches per event": len(keys) / len(workload.events),
        "microseconds per event": {name: min(own) for name, own in times.items()},
        "agreed": keys.agreed,
        "left out": left_out,
    }


def _columns(pairs: list[tuple[int, int]]) -> Any:
    return np.array(pairs, np.int64).reshape(-1, 2).T


def _time_ours(work: Callable[[], Any], workload: Rules) -> float:
    begin = time.process_time()
    work()
    return (time.process_time() - begin) / len(workload.events) * MICRO


def _start(
    command: list[str], engine: Engine, workload: Rules, pace: Pace, folder: Path
) -> Iterator[Callable[[], float]]:
    """A round over all events, once the engine has all rules and has written its pairs."""
    rules, events = folder / f"{engine.dialect}.rules", folder / "events"
    rules.write_text("".join(json.dumps([k, p]) + "\n" for k, p in enumerate(workload.patterns[engine.dialect])))
    events.write_bytes(b"\n".join(workload.events) + b"\n")
    files = [str(rules), str(events), str(folder / engine.dialect), str(pace.warm)]
    with _running(command + files, engine.environment) as process:
        yield lambda: _ask(process)


@contextmanager
def _running(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **environment}
    )
    limit, begin = Timer(READY_SECONDS, process.kill), time.monotonic()
    limit.start()
    try:
        assert process.stdout is not None and process.stderr is not None
        ready = process.stdout.readline()
        limit.cancel()
        if not ready:
            late = time.monotonic() - begin >= READY_SECONDS
            words = f"was not ready after {READY_SECONDS} seconds" if late else _last_line(process.stderr.read())
            raise Unavailable(words)
        yield process
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


def _ask(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None and process.stdout is not None
    print(file=process.stdin, flush=True)
    return float(process.stdout.readline())


def _build_quamina() -> list[str]:
    go = shutil.which("go", path=GO_PLACES)
    if go is None:
        raise Unavailable("there is no Go on this machine")
    _run([go, "build", "-buildvcs=false", "-o", str(BUILT / "quamina"), "."], FOLDER / "quamina")
    return [str(BUILT / "quamina")]


def _build_ruler() -> list[str]:
    for tool, name in (("mvn", "Maven"), ("java", "Java")):
        if shutil.which(tool) is None:
            raise Unavailable(f"there is no {name} on this machine")
    jars = BUILT / "ruler"
    if not list(jars.glob("event-ruler-*.jar")):
        fetch = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        _run(fetch, FOLDER / "ruler")
    return [*JAVA, "-cp", f"{jars}/*", str(FOLDER / "ruler" / "Ruler.java")]


def _run(command: list[str], folder: Path) -> None:
    BUILT.mkdir(exist_ok=True)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{Path(command[0]).name} did not end within {BUILD_SECONDS} seconds") from None
    if done.returncode:
        raise Unavailable(f"{Path(command[0]).name}: {_last_line(done.stderr or done.stdout)}")


def _last_line(text: str) -> str:
    """What was said last, without colours."""
    lines = [line.strip() for line in text.replace("\x1b", "").splitlines() if line.strip()]
    with suppress(IndexError):
        return next((line for line in lines if "ERROR" in line), lines[-1])
    return "it failed without a word"


ENGINES = {
    "event-ruler (Java)": Engine(DIALECTS[0], _build_ruler, {}),
    "quamina (Go)": Engine(DIALECTS[1], _build_quamina, {"GOMAXPROCS": "1"}),
}
