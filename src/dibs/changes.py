"""Changes: the one way by which subscriptions come and go. They are checked before (subscriptions.py), and then

    -> the batch, if one is open    or    -> catalog, durable on return (if there is one) -> layers, visible

Until the engine of the matcher is here (dibs.engine), a memtable stands in the place of the layers.

Changes of a durable history take their turn here, too, so that there is one order of all changes.

A batch is a transaction: its changes are seen by nobody but the thread that makes them, until all are made together.

An interrupt (whatever a signal handler raises) may come anywhere. The catalog commits a change or not, and the layers
take it by one assignment or not. One that came between the two is found by the next call of the same thread, or by the
next change of any (`settle`), which takes what the catalog has.
"""

from __future__ import annotations

import _thread
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dibs.arguments import Id
from dibs.errors import DibsError, UnknownId
from dibs.jit.threads import survive_forks
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.language.types import NO_TYPES, Types
from dibs.segments.state import Change, State, Subscription, Waiting

if TYPE_CHECKING:
    import pyarrow as pa

    from dibs.segments.compile import Form
    from dibs.segments.segment_set import SegmentSet
    from dibs.storage.durable import Durable

CLOSED = "is closed"
A_MOMENT = 0.001  # seconds between two looks whether another thread's batch has ended
T = TypeVar("T")


class Memtable:
    """The subscriptions of a matcher whose engine is not here: all of them wait."""

    def __init__(self) -> None:
        self.state = State()

    def apply(self, changes: Sequence[Change], first: int, _: object = None) -> None:
        """Changes of the versions first, first + 1, ..., which all become visible at once."""
        items = dict(self.state.waiting)
        for version, (id, text, weight, form) in enumerate(changes, first):
            items.pop(id, None)
            if text is not None:
                items[id] = Waiting(text, weight, version, form)
        self.state = State(first + len(changes) - 1, (), items)

    def close(self) -> None:
        self.state = State()


def read_tree(text: str, _: str = "", types: Types = NO_TYPES) -> Form:
    """What a text says: its normal form. Raises ExpressionError."""
    return normal_form(parse(text, types))


class Changes:
    def __init__(self, types: Types = NO_TYPES):
        self.types = types  # of attributes, where they are declared
        self.layers: Any = Memtable()  # Layers, once the engine is here
        self.read: Callable[[str, str, Types], Form] = read_tree  # a text; with the engine, segments.compile.form_of
        self.durable: Durable | None = None
        self.refused = ""  # why changes are not taken, when they are not
        self.no_joins = ""  # where subscriptions with joins over history are not taken
        self.turn = threading.RLock()  # one change after the other
        self._batch: Batch | None = None
        self._writer: int | None = None  # the thread that is between catalog and layers, or was interrupted there
        survive_forks(self)

    @property
    def has_engine(self) -> bool:
        return self.read is not read_tree

    def move_to(self, layers: SegmentSet, read: Callable[[str, str, Types], Form]) -> None:
        """The engine is here: all that waits goes to these layers, which are empty. No change is made meanwhile."""
        with self.turn:
            if not self.has_engine:
                layers.restore(self.layers.state)
                self.layers = layers
                self.read = read  # last: layers take what any reader reads, the memtable only trees

    def change(self, make: Callable[[], T]) -> T:
        """Calls make, which checks and makes changes, while nobody else makes any."""
        while True:
            with self.turn:
                batch = self._batch
                if batch is not None and not batch.is_open:
                    self._batch = batch = None  # its block ended without __exit__
                if batch is None or batch.is_own:
                    self.check()
                    self._settle()
                    return make()
            time.sleep(A_MOMENT)

    def check(self) -> None:
        """Refuses if changes are not taken."""
        if self.refused:
            raise DibsError(f"this matcher {self.refused}")

    def close(self) -> None:
        """No more changes. Waits for one that is being made."""
        with self.turn:
            self.refused = CLOSED

    # ---- making them ----

    def make(self, changes: list[Change], new: bool = False) -> None:
        """Changes that were checked, within `change`. new: of ids that are not there, none twice."""
        if self._batch is not None:
            self._batch.add(changes, new)
        else:
            self._make(changes, () if new else None)

    def _make(self, changes: list[Change], old: Collection[Id] | None) -> None:
        """old: those of their ids that may be there; None: all of them."""
        if changes:
            first = self.layers.state.version + 1
            rows = ((id, text, weight) for id, text, weight, _ in changes)
            self.commit(lambda durable: durable.write(rows, first), lambda: self.layers.apply(changes, first, old))

    def commit(self, write: Callable[[Durable], None], apply: Callable[[], None]) -> None:
        """Makes a change durable, and then visible, within `change`."""
        if self.durable is not None:
            self._writer = _thread.get_ident()
            write(self.durable)
        apply()
        self._writer = None

    def follow(self) -> None:
        """Before the state is asked for: takes what another process has written since."""
        durable = self.durable
        if durable is not None and self.refused != CLOSED:
            if durable.read_only:
                durable.follow(self.layers)
            else:
                durable.check_process()
                self.settle()

    def check_open(self) -> None:
        """Before the state is asked: it must be open, and have what another process has written since."""
        if self.refused == CLOSED:
            raise DibsError(f"this matcher {CLOSED}")
        if self.durable is not None:
            self.follow()

    def settle(self) -> None:
        """Before the state is asked for: takes what this thread has written, if it was interrupted in between."""
        if self._writer is not None and self._writer == _thread.get_ident() and not self.refused:
            with self.turn:
                self._settle()

    def _settle(self) -> None:
        if self._writer is not None and self.durable is not None:
            self.durable.catch_up(self.layers)
        self._writer = None

    # ---- batches ----

    def begin(self, batch: Batch) -> bool:
        """Whether the batch is the one that is open now. (One within another is part of it.)"""

        def open_one() -> bool:
            if self._batch is None:
                self._batch = batch
            return self._batch is batch

        return self.change(open_one)

    def end(self, batch: Batch, failed: bool) -> None:
        """Makes the changes of the batch, unless its block failed."""
        with self.turn:
            if self._batch is batch:
                self._batch = None
                if not failed:
                    self.check()
                    self._settle()
                    self._make(batch.changes, batch.old())

    @property
    def batching(self) -> bool:
        return self._batch is not None

    # ---- what is there, for the thread that asks ----

    def _own(self) -> dict[Id, tuple[Change, int]]:
        """The changes of a batch that this thread has open."""
        batch = self._batch
        return batch.latest() if batch is not None and batch.is_open and batch.is_own else {}

    def has(self, id: Id) -> bool:
        if not _is_id(id):
            return False
        found = self._own().get(id)
        return self.layers.state.has(id) if found is None else found[0][1] is not None

    def get(self, id: Id) -> Subscription:
        if not _is_id(id):
            raise UnknownId(id)
        found = self._own().get(id)
        if found is None:
            return self.layers.state.get(id)
        (_, text, weight, _), place = found
        if text is None:
            raise UnknownId(id)
        return Subscription(id, text, weight, self.layers.state.version + 1 + place)

    def places_in_use(self, column: pa.Array) -> set[int]:
        """Places in the column whose id is in use."""
        used: set[int] = self.layers.state.places_in_use(column)
        own = self._own()
        if own:
            for i, id in enumerate(column.to_pylist()):
                if id in own:
                    (used.discard if own[id][0][1] is None else used.add)(i)
        return used

    def __len__(self) -> int:
        state = self.layers.state
        count = len(state)
        for id, (change, _) in self._own().items():
            count += (change[1] is not None) - state.has(id)
        return count

    def reset_after_fork(self) -> None:
        """After a fork: whoever held the lock, or had a batch open in another thread, is not here."""
        self.turn = threading.RLock()
        if self._batch is not None and not self._batch.is_own:
            self._batch = None


class _Inside:
    """Held by a `with` statement alone, so it lives exactly as long as the block."""


class _WayOut:
    """`Batch.__exit__`, as the `with` statement asks for it, once, before `__enter__`."""

    def __get__(self, batch: Batch | None, kind: type) -> Callable[..., None]:
        if batch is None:  # contextlib.ExitStack asks the class
            return _leave
        leave: Any = partial(_leave, batch)
        leave.inside = _Inside()
        batch.inside = weakref.ref(leave.inside)
        return leave


class Batch:
    """The context manager of Matcher.batch.

    An interrupt may come when the block has been left and before the first line of `__exit__`: then nobody says that
    the batch is over, and it must not swallow the changes that come next. So what the `with` statement holds as its way
    out is an object of its own, with an `_Inside` that nobody else refers to: the batch is open for as long as that is
    there."""

    __exit__ = _WayOut()

    def __init__(self, changes: Changes, given: Any):
        self._changes = changes
        self._given = given  # to the block
        self._thread = _thread.get_ident()
        self._is_outermost = self._is_left = False
        self.inside: weakref.ref[_Inside] | None = None
        self.changes: list[Change] = []
        self._added_as_new: list[bool] = []
        self._latest: dict[Id, tuple[Change, int]] = {}
        self._new: set[Id] = set()  # ids that were not there before the batch
        self._known = 0  # changes that are in the two

    def __enter__(self) -> Any:
        self._is_outermost = self._changes.begin(self)
        return self._given

    def leave(self, failed: bool) -> None:
        if self._is_outermost:
            self._changes.end(self, failed)
        self._is_left = True

    @property
    def is_open(self) -> bool:
        return not self._is_left and (self.inside is None or self.inside() is not None)

    @property
    def is_own(self) -> bool:
        return self._thread == _thread.get_ident()

    def add(self, changes: list[Change], new: bool) -> None:
        self._added_as_new[len(self.changes) :] = [new] * len(changes)
        self.changes.extend(changes)  # all of them or, after an interrupt, none

    def latest(self) -> dict[Id, tuple[Change, int]]:
        """The latest change of each id and which it is."""
        for i in range(self._known, len(self.changes)):
            change = self.changes[i]
            if self._added_as_new[i] and change[0] not in self._latest:
                self._new.add(change[0])
            self._latest[change[0]] = change, i
            self._known = i + 1
        return self._latest

    def old(self) -> Collection[Id]:
        """Those of its ids that may be there."""
        return self.latest().keys() - self._new


def _leave(batch: Batch, kind: object, *_: object) -> None:
    batch.leave(failed=kind is not None)


def _is_id(id: object) -> bool:
    """True and 1.0 equal 1, but are no ids."""
    return isinstance(id, (str, int)) and not isinstance(id, bool)
