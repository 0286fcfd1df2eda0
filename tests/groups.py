"""Which tests run in one process, and which begin first, when pytest-xdist spreads them over processes."""

from __future__ import annotations

from pathlib import PurePath

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# Tests with a Spark session: files, or single tests of files of which the others have none. Each group is a session.
SPARK = {
    "spark": (
        "spark/test_compile.py",
        "spark/test_conditions_spark.py",
        "spark/test_differential_spark.py",
        "spark/test_first_use.py",
        "spark/test_functions_spark.py",
        "spark/test_plans.py",
        "spark/test_present_spark.py",
        "spark/test_spark.py",
        "spark/test_spark_uses.py",
        "spark/test_types_spark.py",
        "spark/test_walks_spark.py",
        "spark/test_wholes_spark.py",
        "spark/test_sql_functions.py",
        "spark/test_workloads_on_spark.py",
        "test_demo.py",
        "test_documents.py::test_spark_blocks",
        "test_exactness.py::test_by_spark",
    ),
    "spark streams": (
        "spark/test_joins_spark.py",
        "spark/test_living_stream.py",
        "spark/test_pipeline.py",
        "spark/test_windows_spark.py",
        "spark/test_spark_stream.py",
    ),
}
WITH_SPARK = {f"tests/{test}": group for group, tests in SPARK.items() for test in tests}

# The groups that take longest, the longest first. They begin first, so that at the end no process is left alone with
# one of them. All others come in the order in which they are collected.
LONGEST = (
    *SPARK,
    "test_memory_safety",
    "test_benchmarks",
    "test_lives",
    "test_exactness",
    "test_outside_rivals",
    "test_spark_connect",
    "test_indexes",
    "test_threads",
    "test_faults",
    "test_catalog",
    "test_crash",
    "test_agreement",
    "test_cache",
    "test_process",
    "test_interrupts",
    "test_first_loads",
    "test_durable",
    "test_auto",
    "test_history_interrupts",
    "test_history_lives",
    "test_cold",
    "test_joins",
    "test_processes",
    "test_commands_of_documents",
    "test_starting",
    "test_delivery_kills",
    "test_console",
    "test_warming",
    "test_pbtree_disk",
    "test_files",
    "test_exchange",
    "test_differential_duckdb",
    "test_groups",
)
# The inner loop (`make test-fast`) leaves these out, but for the two that touch the most, and others that take some
# seconds each: run them by name when you change what they test.
SLOW = frozenset(LONGEST) - {"test_agreement", "test_auto"} | {
    "test_backtest",
    "test_catalog_interrupts",
    "test_cli_catalog",
    "test_durable_life",
    "test_fork",
    "test_generators",
    "test_joins_duckdb",
    "test_joins_service",
    "test_operators",
    "test_opindex",
    "test_other_commands",
    "test_pattern_bounds",
    "test_pbtree_updates",
    "test_private_files",
    "test_tatbul",
    "test_workloads",
}
PLACES = {group: place for place, group in enumerate(LONGEST)}


def group_of(nodeid: str) -> str:
    """The tests of a file are a group, but for those with a Spark session."""
    test = nodeid.split("[")[0]
    file = test.split("::")[0]
    return WITH_SPARK.get(test) or WITH_SPARK.get(file) or PurePath(file).stem


def place_of(group: str) -> int:
    return PLACES.get(group, len(PLACES))


class GroupScheduling(LoadScopeScheduling):
    """A process runs a whole group. (`--dist loadgroup` writes groups into names of tests, and does nothing at all with
    a pytest that keeps these names elsewhere.)"""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that a process died of has failed, and is not given to the next one; what is left of its groups
        is."""
        groups = self.assigned_work.pop(node)
        running = next((test for tests in groups.values() for test, is_done in tests.items() if not is_done), None)
        if running is None:
            return None
        groups[group_of(running)][running] = True
        self.workqueue.update({group: tests for group, tests in groups.items() if not all(tests.values())})
        for other in self.nodes:
            if other in self.registered_collections:  # one that was started for a dead one may still collect
                self._reschedule(other)
        return running

    def _reschedule(self, node: WorkerController) -> None:
        """A process keeps its last test back until it has another or is told that there is none: with a group of one
        test alone it would wait for ever."""
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
