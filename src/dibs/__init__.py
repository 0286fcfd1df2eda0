"""Dibs: matching events against millions of standing queries, exactly and at once.

>>> import dibs
>>> m = dibs.Matcher()
>>> m.add("alice", "model = 'iphone5s' AND color = 'silver' AND price <= 580")
>>> m.match({"model": "iphone5s", "color": "silver", "price": 550})
['alice']

Names are loaded when they are first used, so that `import dibs` and the command line start at once.
"""

from __future__ import annotations

# Nothing is imported here, not even typing: dibs.cli catches an interrupt from its first lines on, but not before.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.client import Client, ServedMatches, ServiceError
    from dibs.coding.expressed import Event
    from dibs.coding.values import EventProblem, Range
    from dibs.errors import (
        ArgumentError,
        BackgroundWarning,
        DamagedError,
        DibsError,
        DuplicateId,
        EventError,
        ExpressionError,
        FormatError,
        IndexTooLarge,
        LineTooLong,
        MissingFile,
        Problem,
        RecoveryWarning,
        Rejected,
        StorageError,
        SubscriptionErrors,
        UnknownId,
        UnknownIndex,
        WriterActive,
    )
    from dibs.explain import Explanation
    from dibs.history.history import History
    from dibs.history.retention import Retain
    from dibs.language.printer import to_sql
    from dibs.language.sql import parse, validate
    from dibs.matcher import Matcher
    from dibs.matches import Matches
    from dibs.past.backtest import Backtest, Backtests, backtest
    from dibs.past.replay import Replay
    from dibs.segments.state import Subscription

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "BackgroundWarning",
    "Backtest",
    "Backtests",
    "Client",
    "DamagedError",
    "DibsError",
    "DuplicateId",
    "Event",
    "EventError",
    "EventProblem",
    "Explanation",
    "ExpressionError",
    "FormatError",
    "History",
    "IndexTooLarge",
    "LineTooLong",
    "Matcher",
    "Matches",
    "MissingFile",
    "Problem",
    "Range",
    "RecoveryWarning",
    "Rejected",
    "Replay",
    "Retain",
    "ServedMatches",
    "ServiceError",
    "StorageError",
    "Subscription",
    "SubscriptionErrors",
    "UnknownId",
    "UnknownIndex",
    "WriterActive",
    "__version__",
    "backtest",
    "indexes",
    "parse",
    "to_sql",
    "validate",
]

_HOMES = {
    "dibs.client": ("Client", "ServedMatches", "ServiceError"),
    "dibs.coding.expressed": ("Event",),
    "dibs.coding.values": ("EventProblem", "Range"),
    "dibs.explain": ("Explanation",),
    "dibs.history.history": ("History",),
    "dibs.history.retention": ("Retain",),
    "dibs.language.printer": ("to_sql",),
    "dibs.language.sql": ("parse", "validate"),
    "dibs.matcher": ("Matcher",),
    "dibs.matches": ("Matches",),
    "dibs.past.backtest": ("Backtest", "Backtests", "backtest"),
    "dibs.past.replay": ("Replay",),
    "dibs.segments.state": ("Subscription",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def indexes() -> dict[str, str]:
    """The names that Matcher(index=...) takes, and what each is and supports."""
    from dibs.jit.undisturbed import bring

    index = bring("dibs.index")
    return {name: index.supports(name) for name in index.names()}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dibs' has no attribute {name!r}")
    from dibs.jit.undisturbed import bring

    value = getattr(bring(_HOME.get(name, "dibs.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
