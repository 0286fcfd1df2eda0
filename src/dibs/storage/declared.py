"""The declared types of a durable folder: a file of their own, written when the folder is made and never again."""

from __future__ import annotations

from pathlib import Path

from dibs.errors import ArgumentError, DamagedError
from dibs.language.types import NO_TYPES, Types, check_types
from dibs.storage.files import ADVICE, read_file, write_file

FILE = "types.dibs"


def keep_types(folder: Path, given: Types | None, is_new: bool) -> Types:
    """The types of a folder: those that are given, if it is new. Raises ArgumentError when it has others."""
    if is_new and given:
        write_file(folder / FILE, "types", {"types": dict(given)}, {})
        return given
    found = read_types(folder)
    if given is not None and given != found:
        was = f"has the types {found}" if found else "has no types"
        raise ArgumentError(
            f"{folder} {was}, and is opened with {given}: leave types out; for others, export its subscriptions and "
            "import them into a new folder"
        )
    return found


def read_types(folder: Path) -> Types:
    """Raises DamagedError."""
    try:
        about, _ = read_file(folder / FILE, "types")
    except FileNotFoundError:
        return NO_TYPES
    try:
        return check_types(about["types"])
    except (KeyError, ArgumentError) as error:
        raise DamagedError(folder / FILE, f"it makes no sense ({error}); {ADVICE}") from error
