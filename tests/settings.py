"""The thresholds that tests run at: the sizes at which Dibs takes another way to the same answer (dibs.tuning)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dibs.tuning import at_random, smallest

THRESHOLDS: dict[str, Callable[[int], Mapping[str, Any]]] = {
    "default": lambda seed: {},
    "smallest": lambda seed: smallest(),
    "random": at_random,
}
