"""When a webhook is tried again: deliveries of the service and the sink of a stream wait by one rule."""

from __future__ import annotations

import random
from dataclasses import dataclass

DIGITS = 8  # of a Retry-After that is taken at its word
DOUBLINGS = 60


@dataclass(frozen=True)
class Retries:
    first: float  # seconds after a first failure, doubled for each one in a row
    longest: float  # seconds at most, whatever the receiver asks for

    def wait(self, failures: int, retry_after: float | None, chance: random.Random) -> float:
        """Seconds after so many failures in a row. Of its own, a random half is left out, so that what failed together
        does not come back together."""
        own = min(self.longest, self.first * 2 ** min(failures - 1, DOUBLINGS)) * chance.uniform(0.5, 1.0)
        return max(own, min(retry_after or 0.0, self.longest))


def read_retry_after(header: str | None) -> float | None:
    """Seconds that a receiver asks for. (It may give a date: that is as none.)"""
    asked = header is not None and header.isascii() and header.isdigit() and len(header) <= DIGITS
    return float(header) if asked and header is not None else None
