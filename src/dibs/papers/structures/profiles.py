"""The two forms of a structure: as its paper published it, and as it became here.

A structure whose paper has ways that were left for faster ones takes the option `profile`. The experiments measure both
forms of each, side by side. What differs is said in each structure's first page, under "Published"; both find the same
matches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.index.options import Option

OURS, PUBLISHED = "ours", "published"
PROFILE = Option("profile", "the form as it became here, or as the paper has it", OURS, words=(OURS, PUBLISHED))


def save_profile(published: bool) -> dict[str, NDArray[Any]]:
    """What a structure adds to its arrays."""
    return {"published": np.ones(1, np.bool_)} if published else {}


def is_published(arrays: dict[str, NDArray[Any]]) -> bool:
    return "published" in arrays


def profiles_of(options: tuple[Option, ...]) -> tuple[str, ...]:
    """The forms of a structure with these options."""
    return PROFILE.words if PROFILE in options else ()
