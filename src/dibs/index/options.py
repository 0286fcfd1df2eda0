"""The parameters of a structure that users may set: Matcher(index="psthash", options={"dimensions": 3}).

A structure lists them in `options`, and its `build` takes them by name. What a user gives is checked here, before
anything is built. Defaults are the paper's values, and the paper's ways; improvements of ours are options.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Union

import numpy as np
from numpy.typing import NDArray

from dibs.arguments import is_integer
from dibs.errors import ArgumentError, show

OptionValue = Union[int, float, bool, str, None]


class Option(NamedTuple):
    """A parameter: a number within limits, one of several words, or True or False."""

    name: str
    about: str
    default: OptionValue
    least: float = 1
    most: float = 2**31 - 1
    words: tuple[str, ...] = ()  # one of these
    none: str = ""  # what None means; "": it is not allowed

    @property
    def kind(self) -> str:
        """What is expected."""
        if self.words:
            return " or ".join(map(repr, self.words))
        if isinstance(self.default, bool):
            return "True or False"
        number = "a number" if isinstance(self.default, float) else "a whole number"
        limits = f"from {self.least:,} to {self.most:,}" if self.most < 2**31 - 1 else f"of at least {self.least:,}"
        return f"{number} {limits}" + (f", or None ({self.none})" if self.none else "")

    def __str__(self) -> str:
        return f"{self.name}={self.default!r} ({self.about}: {self.kind})"

    def check(self, index: str, value: Any) -> OptionValue:
        """The value, as Python has it."""
        if value is None and self.none:
            return None
        if self.words:
            if isinstance(value, str) and value in self.words:
                return value
        elif isinstance(self.default, bool):
            if isinstance(value, (bool, np.bool_)):
                return bool(value)
        elif is_integer(value) or (isinstance(self.default, float) and isinstance(value, (float, np.floating))):
            if self.least <= value <= self.most:
                return float(value) if isinstance(self.default, float) else int(value)
        raise ArgumentError(f"option {self.name!r} of index {index!r} must be {self.kind}, not {show(value)}")


def check_options(index: str, known: tuple[Option, ...], given: Any) -> dict[str, OptionValue]:
    """Those of the given options that are not what they are anyway. So equal dicts mean equal structures."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ArgumentError(f"options must be a dict of names and values, not {show(given)}")
    options = {option.name: option for option in known}
    result: dict[str, OptionValue] = {}
    for name, value in given.items():
        if not isinstance(name, str) or name not in options:
            raise ArgumentError(_unknown(index, list(options), name))
        result[name] = options[name].check(index, value)
    return {o.name: result[o.name] for o in known if result.get(o.name, o.default) != o.default}


def _unknown(index: str, names: list[str], name: Any) -> str:
    if not names:
        return f"index {index!r} has no options, so none called {show(name)}; dibs.indexes() lists those of each"
    near = difflib.get_close_matches(name, names, 1, 0.5) if isinstance(name, str) else []
    advice = f"did you mean {near[0]!r}? " if near else ""
    called = repr(name) if isinstance(name, str) else show(name)
    return f"index {index!r} has no option {called}: {advice}There are: {', '.join(names)}"


def all_options(known: tuple[Option, ...], given: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """With those that were not given."""
    return {option.name: given.get(option.name, option.default) for option in known}


def as_array(options: Mapping[str, OptionValue]) -> NDArray[np.uint8]:
    """Options as they are saved with the arrays of an index."""
    return np.frombuffer(json.dumps(dict(options)).encode(), np.uint8)


def from_array(saved: NDArray[np.uint8] | None) -> dict[str, OptionValue]:
    """None: an index that has none, or was saved before there were any."""
    result: dict[str, OptionValue] = {} if saved is None else json.loads(saved.tobytes())
    return result
