"""dibs.Matcher: it answers at once, and becomes dibs.matcher.Matcher as soon as that is there.

To import Numba and Arrow takes a second, to load the kernels another one, and to compile them, on a machine that has
never done it, a minute. A small matcher does without (dibs.cold). After its first match the rest is brought in by the
background (dibs.loading): compiled by a process of low priority if need be, then imported. The next call finds it there
and moves over: the object becomes one of the class dibs.matcher.Matcher, with the same subscriptions and version.

What the small one cannot do, or is too much for it, moves over at once, and waits for the kernels if they must be
compiled. So a program that is large from the beginning has what it always had.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn

from dibs import loading
from dibs.arguments import check_threads, refuse_copies
from dibs.cold.matcher import ColdMatcher, NeedsKernels
from dibs.jit.threads import survive_forks
from dibs.jit.undisturbed import bring

if TYPE_CHECKING:
    from dibs.history.retention import Retention
    from dibs.matcher import Matcher as Full

FULL = "dibs.matcher"
AUTO = "auto"


def _full() -> type[Full]:
    """The compiled matcher."""
    if not _is_loaded():
        loading.wait()
    found: type[Full] = bring(FULL).Matcher
    return found


def _is_loaded() -> bool:
    """Whether the compiled matcher costs nothing any more."""
    return loading.is_done or (FULL in sys.modules and not loading.is_under_way)


class _Either(type):
    """Of the class: what it lacks is the compiled one's (`open`, `load`, ...), an instance of which is one of this."""

    def __new__(cls, name: str, bases: tuple[type, ...], content: dict[str, Any]) -> type:
        if any(isinstance(base, _Either) for base in bases):  # somebody's own matcher: of the compiled one
            bases = tuple(_full() if isinstance(base, _Either) else base for base in bases)
            return type(name, bases, content)
        return super().__new__(cls, name, bases, content)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_full(), name)

    def __instancecheck__(cls, instance: object) -> bool:
        full = getattr(sys.modules.get(FULL), "Matcher", None)
        return super().__instancecheck__(instance) or (full is not None and isinstance(instance, full))


def _either(method: Callable[..., Any]) -> Any:
    """A method of the small matcher, or else of the compiled one."""
    name = method.__name__

    @wraps(method)
    def call(self: Matcher, *args: Any, **options: Any) -> Any:
        if self._stays or not _is_loaded():
            try:
                return method(self._cold, *args, **options)
            except NeedsKernels:
                pass
            finally:
                if name.startswith(("match", "count")) and not self._stays:
                    loading.load_in_background()
        _become_full(self)
        return getattr(self, name)(*args, **options)

    return call


class Matcher(metaclass=_Either):
    """Standing queries, and which of them an event satisfies.

    >>> m = Matcher()
    >>> m.add("alice", "color = 'silver' AND price <= 580")
    >>> m.match({"color": "silver", "price": 550})
    ['alice']

    index: a name in dibs.indexes(). threads: how many cores a batch may use (all by default). memory: how many bytes of
    each segment's index may be kept in memory, for an index that lies in files (index="pbtree"). retain: how much
    history is kept for EXISTS and FORALL: a number of documents, a timedelta, or a dibs.Retain (all by default).
    options: parameters of the index, which dibs.indexes() lists: {"dimensions": 3}. types: of attributes, as
    {"at": "timestamp", "price": "number"}: values that come as something else are converted, or refused (LANGUAGE.md).
    domains: of attributes whose values are integers between two, as {"rating": (0, 10)}: others are refused.

    Matcher() is in memory; Matcher.open(folder) is durable, and otherwise the same.
    """

    def __new__(
        cls,
        index: str = AUTO,
        threads: int | None = None,
        memory: int | None = None,
        retain: Retention = None,
        options: Mapping[str, Any] | None = None,
        types: Mapping[str, str] | None = None,
        domains: Mapping[str, tuple[int, int]] | None = None,
    ) -> Any:
        others = (memory, retain, options, types, domains)
        if _is_loaded() or index != AUTO or any(given is not None for given in others):
            return _full()(index, threads, *others)
        return cold_matcher(threads, stays=False)

    index = AUTO
    threads: int
    _cold: ColdMatcher
    _stays: bool

    add = _either(ColdMatcher.add)
    add_many = _either(ColdMatcher.add_many)
    remove = _either(ColdMatcher.remove)
    remove_many = _either(ColdMatcher.remove_many)
    replace = _either(ColdMatcher.replace)
    get = _either(ColdMatcher.get)
    expression = _either(ColdMatcher.expression)
    weight = _either(ColdMatcher.weight)
    match = _either(ColdMatcher.match)
    match_batch = _either(ColdMatcher.match_batch)
    count = _either(ColdMatcher.count)
    explain = _either(ColdMatcher.explain)
    __len__ = _either(ColdMatcher.__len__)
    __contains__ = _either(ColdMatcher.__contains__)

    close = _either(ColdMatcher.close)

    def __getattr__(self, name: str) -> Any:
        """Whatever is not here."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("version", "attributes", "weighted"):
            return getattr(self._cold, name)
        _become_full(self)
        return getattr(self, name)

    def __reduce__(self) -> NoReturn:
        refuse_copies()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Matcher: {len(self):,} subscriptions, index {self.index!r}>"


def _become_full(matcher: Any) -> None:
    """Moves over. Several threads may come here at once: the first to be done decides, and the others, who were in a
    method of the small matcher, find one that has no such methods any more."""
    if type(matcher) is not Matcher:
        return
    cold, full = matcher._cold, _full()(threads=matcher.threads)
    cold.move_to(full)
    with cold.turn:
        if type(matcher) is Matcher:
            matcher.__dict__.update(full.__dict__)
            matcher.__class__ = type(full)  # type: ignore[assignment]


def cold_matcher(threads: int | None = None, stays: bool = True) -> Any:
    """A small matcher. stays: until it is asked for what it cannot do; for tests."""
    matcher = object.__new__(Matcher)
    matcher.threads = check_threads(threads)
    matcher._cold, matcher._stays = ColdMatcher(), stays
    survive_forks(matcher._cold)
    return matcher
