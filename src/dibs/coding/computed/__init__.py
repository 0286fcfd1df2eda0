"""Values that are computed from events (language.scalars), for a batch at a time.

    EventValues ─> computing.py: the attributes that are asked for, one row for each combination of their values
                ─> vectors.py, columns.py: functions over columns; what a column's form leaves is done row by row
                ─> EventValues with the computed attributes, which the stages behind take for attributes of the event

`compute` is the only entry; coding.events calls it, so that every reader of events has computed values.
"""

from __future__ import annotations

from dibs.coding.computed.computing import compute

__all__ = ["compute"]
