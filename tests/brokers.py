"""A Kafka broker for tests that are marked kafka: the one of examples/kafka_broker.py."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "kafka_broker.py"


def load_script() -> Any:
    """examples/kafka_broker.py, which is in no package."""
    if "kafka_broker" not in sys.modules:
        specification = importlib.util.spec_from_file_location("kafka_broker", SCRIPT)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules["kafka_broker"] = module
        specification.loader.exec_module(module)
    return sys.modules["kafka_broker"]


@contextmanager
def run_broker() -> Iterator[Any]:
    """Skips the test where neither the jars are here nor Maven can fetch them."""
    kafka = load_script()
    try:
        running = kafka.running()
        broker = running.__enter__()
    except kafka.NoJars as error:
        pytest.skip(str(error))
    try:
        yield broker
    finally:
        running.__exit__(None, None, None)
