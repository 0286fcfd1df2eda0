"""The time of a match, which now() and its kin give: read from what users say, or from the clock.

None            the clock, once for each call
an instant      a datetime or date, or a string that reads as one
a name          any other string: the attribute that holds the event's own time, for events of the past
"""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any, Union

from dibs.errors import ArgumentError, show
from dibs.language.expression import EPOCH, MICROSECOND, microseconds
from dibs.language.literals import time_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Now = Union[dt.datetime, dt.date, str, None]
Instants = Union[int, "NDArray[np.int64]", None]  # microseconds since 1970 UTC, or those of each event; None: the clock
Present = Union[int, str, None]  # the same for all events, or the name of an attribute
_EXPECTED = "a datetime, a string as '2024-05-01T12:00:00Z', or the name of the attribute that holds the event's time"


def read_now(now: Any) -> Present:
    """Raises ArgumentError."""
    if now is None:
        return None
    if isinstance(now, str):
        found = time_of(now)
        if found is not None:
            return microseconds(found)
        if now[:1].isdigit() or not now or "\0" in now or not _is_unicode(now):
            raise ArgumentError(f"now must be {_EXPECTED}, not {show(now)}")
        return now
    if isinstance(now, dt.datetime) and now.tzinfo is not None:
        return microseconds(now.astimezone(dt.timezone.utc).replace(tzinfo=None))
    if isinstance(now, dt.date) and now == now:  # NaT of pandas is none
        return microseconds(now)
    raise ArgumentError(f"now must be {_EXPECTED}, not {show(now)}")


def read_instant(now: Any) -> int | None:
    """The same, where there is one instant for all events."""
    found = read_now(now)
    if isinstance(found, str):
        raise ArgumentError(f"now must be a datetime or a string as '2024-05-01T12:00:00Z', not {show(now)}")
    return found


def read_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1_000


def datetime_at(instant: int) -> dt.datetime:
    """An instant as users have it."""
    return (EPOCH + instant * MICROSECOND).replace(tzinfo=dt.timezone.utc)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
