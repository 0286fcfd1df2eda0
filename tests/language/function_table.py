"""The table of functions as docs/language.md shows it: `python tests/language/function_table.py` prints it."""

from __future__ import annotations

from dibs.language.functions import FUNCTIONS, Function, Kinds, describe_call, describe_kinds

_SIGNS = {"NEGATIVE": "`-a`, `negative(a)`", "~": "`~a`", "NOT": "`NOT a`", "CASE": "`CASE WHEN a THEN b ELSE c END`"}
_SIGNS |= {
    "BETWEEN": "`a BETWEEN b AND c`",
    "IN": "`a IN (b, c)`",
    "CAST": "`CAST(a AS type)`, `TRY_CAST`, `a :: type`",
    "GET": "`a[0]`, `a['key']`, `GET(array, number)`",
    "EXISTS": "`EXISTS(array, x -> condition)`",
    "FORALL": "`FORALL(array, x -> condition)`",
    "ARRAY": "`ARRAY(value, ...)`",
}
_MODULES = ["numbers", "places", "texts", "times", "casts", "logic", "arrays", "networks"]
_HIDDEN = {"INTERVAL_MICROSECONDS"}


def table_of_functions() -> str:
    lines = ["| function | result | what it is |", "| --- | --- | --- |"]
    for function in sorted(dict.fromkeys(FUNCTIONS.values()), key=_place):
        if function.name not in _HIDDEN:
            lines.append(f"| {_written(function)} | {_result(function)} | {function.about} |")
    return "\n".join(lines)


def _place(function: Function) -> int:
    return _MODULES.index(function.form.__module__.rpartition(".")[2])


def _written(function: Function) -> str:
    if function.name in _SIGNS:
        return _SIGNS[function.name]
    names = [name for name, found in FUNCTIONS.items() if found is function]
    signs = [f"`a {name} b`" for name in names if not name.isidentifier() or name in ("AND", "OR", "DIV")]
    words = [name for name in names if name.isidentifier() and name not in ("AND", "OR", "DIV")]
    called = describe_call(function._replace(name=words[0])).replace(" | ", " or ") if words else ""
    return ", ".join([*([f"`{called}`"] if called else []), *(f"`{name}`" for name in words[1:]), *signs]).replace(
        "|", "\\|"
    )


def _result(function: Function) -> str:
    if function.result & Kinds.ANY == Kinds.ANY:
        return "of its arguments" if function.result == Kinds.ANY else "any"
    return describe_kinds(function.result).replace("a ", "").replace("an ", "").replace(",", " or")


if __name__ == "__main__":
    print(table_of_functions())
