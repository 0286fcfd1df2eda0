"""When is a compiled kernel stale? Stamps of modules with kernels, by their text alone.

A kernel is compiled together with what it calls, and with the constants that it names. So the stamp of its module is a
hash of the module's source and of that of every module of Dibs that it imports, directly or indirectly, and of the
versions of Numba and LLVM. No file time and no path is part of it: a cache that was copied is as good as the first.

A module without kernels counts only by what it declares (constants, classes), not by the bodies of its functions:
editing those leaves all kernels as they are. But one of which some module calls a function while it is imported counts
whole, because a constant may have been computed by it.

Nothing here imports Numba.
"""

from __future__ import annotations

import email.parser  # noqa: F401 - importlib.metadata imports it when first asked, where an interrupt may come
import hashlib
import os
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parent.parent
# What is no part of compiled code, though modules with kernels import it: how that is kept and loaded, and the registry
# of numbers, which are read when a kernel is called and handed to it. Nor are their declarations.
APART = ("dibs.jit.cache", "dibs.jit.undisturbed", "dibs.tuning")
_NUMBER = re.compile(r"^\w+ = tuned\((?:[^\n]*\)|\n(?:    [^\n]*\n)+\))\n", re.MULTILINE)
# Settings of Numba that change what it compiles.
SETTINGS = ("BOUNDSCHECK", "DEBUGINFO_DEFAULT", "DISABLE_JIT", "ENABLE_AVX", "LOOP_VECTORIZE", "OPT", "SLP_VECTORIZE")

_IMPORT = re.compile(r"^(?:from|import) +(dibs[\w.]*)(?: +import +(\([^)]*\)|[^\n]*))?", re.MULTILINE)
_COMPILES = re.compile(r"^(?:from|import) +(?:numba|llvmlite|dibs\.jit\.(?:kernel|interpreter))\b", re.MULTILINE)
_KERNEL = re.compile(r"^@(?:kernel|phase|step)\b|\bkeeping\(", re.MULTILINE)
_DEFINED = re.compile(r"^(?:async +)?(?:def|class) +(\w+)", re.MULTILINE)
_CALLED = re.compile(r"(?<!def )(?<!class )\b(\w+)\(|^@(\w+)", re.MULTILINE)


class Module(NamedTuple):
    source: str
    declared: str  # the source without the bodies of functions
    imports: frozenset[str]  # modules of Dibs
    has_kernels: bool
    defines: frozenset[str]  # functions and classes
    calls: frozenset[str]  # what is called while it is imported, and perhaps more


def _find_declared(source: str) -> str:
    kept, inside = [], -1  # inside: the indent of the function whose body is passed over
    for line in source.splitlines():
        bare = line.lstrip()
        indent = len(line) - len(bare)
        if inside < 0 or (bare and indent <= inside):
            inside = indent if bare.startswith(("def ", "async def ")) else -1
            kept.append(line)
    return "\n".join(kept)


def stamp_of(module: str) -> str:
    """The stamp of a module of Dibs, by its name."""
    return _stamp(module, _compiler())


def stamp_of_file(path: str) -> str:
    """The stamp of a module with kernels that is not Dibs' own."""
    source = Path(path).read_text(encoding="utf-8")
    imported = stamp_of_all([name for name in _find_imported(source) if _exists(name)])
    return hashlib.sha256(f"{imported}\0{_compiler()}\0{source}".encode()).hexdigest()


def stamp_of_all(modules: list[str]) -> str:
    """One stamp for several modules."""
    return hashlib.sha256("\n".join(sorted(f"{m} {stamp_of(m)}" for m in modules)).encode()).hexdigest()


def kernel_modules(prefix: str = "dibs") -> list[str]:
    """The names of all modules with kernels below a package."""
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ["dibs", *path.relative_to(PACKAGE).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found = _read(name) if f"{name}.".startswith(f"{prefix}.") else None
        if found is not None and found.has_kernels:
            names.append(name)
    return names


def is_named_only(module: str) -> bool:
    """Whether it is in a package that says of itself, by NAMED_ONLY = True, that nobody needs it who does not name
    something in it."""
    package = _read(".".join(module.split(".")[:2]))
    return package is not None and re.search(r"^NAMED_ONLY = True\b", package.source, re.MULTILINE) is not None


def kernels_in(modules: list[str]) -> int:
    """About how many kernels these modules have."""
    return sum(len(_KERNEL.findall(found.source)) for name in modules if (found := _read(name)) is not None)


@cache
def _stamp(module: str, compiler: str) -> str:
    names = sorted(_reach(module))
    modules = [found for name in names if (found := _read(name)) is not None]
    called = frozenset().union(*(found.calls for found in modules))
    digest = hashlib.sha256(compiler.encode())
    for name, found in zip(names, modules):
        counts_whole = found.has_kernels or not called.isdisjoint(found.defines)
        digest.update(f"\0{name}\0{found.source if counts_whole else found.declared}".encode())
    return digest.hexdigest()


def _reach(module: str) -> set[str]:
    """The module and all of Dibs that it imports, directly or indirectly."""
    reached, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        found = None if name in reached else _read(name)
        if found is not None:
            reached.add(name)
            waiting.extend(found.imports)
    return reached


@cache
def _read(name: str) -> Module | None:
    """The module as it is on the disk when it is first asked for; None: there is none of this name."""
    place = PACKAGE.joinpath(*name.split(".")[1:])
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            source = _NUMBER.sub("", path.read_text(encoding="utf-8"))
            break
    else:
        return None
    imports = {m for m in _find_imported(source) if m not in (name, *APART) and _exists(m)}
    declared = _find_declared(source)
    return Module(
        source,
        declared,
        frozenset(imports),
        _COMPILES.search(source) is not None,
        frozenset(_DEFINED.findall(source)),
        frozenset(a or b for a, b in _CALLED.findall(declared)),
    )


def _find_imported(source: str) -> set[str]:
    """Names of Dibs that may be modules."""
    found = set()
    for package, names in _IMPORT.findall(source):
        found |= {package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))}
    return found


@cache
def _exists(name: str) -> bool:
    place = PACKAGE.joinpath(*name.split(".")[1:])
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def _compiler() -> str:
    settings = [f"{name}={os.environ[f'NUMBA_{name}']}" for name in SETTINGS if f"NUMBA_{name}" in os.environ]
    return " ".join([_versions(), *settings])


@cache
def _versions() -> str:
    return " ".join(f"{name} {version(name)}" for name in ("numba", "llvmlite"))
