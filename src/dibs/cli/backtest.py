"""dibs backtest: what would an expression, or all subscriptions, have matched of stored events?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli.csv_tables import CsvTable, choose_types, declared_types
from dibs.cli.events import MAX_LINE_HELP, NOW_HELP, TYPES_HELP, Reading, advising_longer_lines
from dibs.cli.formats import (
    ENDINGS,
    STANDARD,
    Format,
    format_of,
    open_arrow,
    open_input,
    open_parquet,
    reading,
    show_name,
)
from dibs.cli.outcome import BadInput, OnError, outcome, results, say, say_problems
from dibs.cli.progress import bar
from dibs.cli.served import SERVER_HELP, ask, show_backtest
from dibs.cli.subscriptions import HISTORY_HELP, RETAIN_HELP, load_file, read_subscriptions
from dibs.coding.lines import LONGEST, number_lines

if TYPE_CHECKING:
    from dibs.past.backtest import Backtest
    from dibs.past.replay import Replay
    from dibs.past.sources import Chain, StoredEvents

HELP = """
Tell what an expression would have matched, before it is saved: how many of the stored events, which share, when, and
some of them.

\b
    dibs backtest "price <= 580 AND brand = 'Apple'" events.parquet
    dibs backtest "price <= 580" 2024/*.parquet --time sold_at --examples 3
    dibs backtest -x "price <= 580" -x "price <= 500" events.jsonl     # variants, in one pass
    dibs backtest --expression-file rules.txt --json events/
    zcat events.jsonl.gz | dibs backtest "price <= 580"
    dibs backtest --server http://127.0.0.1:8080 "price <= 580"        # against a service's recent events

Events are rows of Parquet files (also folders of them), Arrow or CSV files, or JSON lines; `-`, or nothing, is standard
input. Of Parquet and Arrow files only the columns that the expression mentions are read. How CSV is read: see
`dibs match --help`.

An expression may ask for what came before (EXISTS, FORALL, (SELECT ...) FROM history): each event sees the documents of
--history, and the events before it in the order of the files.

With --subscriptions all subscriptions of a file or of a compiled index are tried instead: which match most, and which
never do.

\b
    dibs backtest --subscriptions subs.parquet events.parquet
"""


def backtest(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPRESSION] [EVENTS]...",
            help="The expression (unless an option gives what to try), then files with events.",
        ),
    ] = None,
    expression: Annotated[
        list[str] | None, typer.Option("--expression", "-x", help="An expression to try; may be given several times.")
    ] = None,
    expression_file: Annotated[
        str | None,
        typer.Option("--expression-file", "-f", help="File with an expression on each line, or of subscriptions."),
    ] = None,
    subscriptions: Annotated[
        str | None,
        typer.Option("--subscriptions", "-s", help="Try all subscriptions of this file, or of a compiled index."),
    ] = None,
    attributes: Annotated[
        str | None, typer.Option(help="The column that holds the attributes (a map, a struct or JSON text).")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="How many matching events to show, of each expression.")] = 5,
    time: Annotated[
        str | None, typer.Option(help="The column of dates or timestamps, for a chart of the matches.")
    ] = None,
    on_error: Annotated[OnError, typer.Option(help="What to do with what cannot be read.")] = OnError.raise_,
    format: Annotated[
        Format | None, typer.Option(help="Format of the events, where the ending does not tell (standard input).")
    ] = None,
    types: Annotated[list[str] | None, typer.Option(metavar="NAME=TYPE,...", help=TYPES_HELP)] = None,
    max_line: Annotated[int, typer.Option(min=1, help=MAX_LINE_HELP)] = LONGEST >> 20,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each result.")] = False,
    server: Annotated[str | None, typer.Option("--server", help=f"{SERVER_HELP} Against its recent events.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Cores to use.  [default: all]")] = None,
    history: Annotated[str | None, typer.Option(help=HISTORY_HELP)] = None,
    retain: Annotated[int | None, typer.Option(min=0, help=RETAIN_HELP)] = None,
    now: Annotated[str | None, typer.Option(metavar="TIME", help=NOW_HELP)] = None,
) -> None:
    with outcome():
        names = list(words or [])
        if sum(given is not None for given in (expression or None, expression_file, subscriptions)) > 1:
            raise typer.BadParameter("give only one of --expression, --expression-file and --subscriptions")
        if not (expression or expression_file or subscriptions):
            if not names:
                raise typer.BadParameter("there is nothing to try: give an expression, or --subscriptions")
            expression = [names.pop(0)]
        if server is not None:
            if names or subscriptions is not None or expression_file is not None or history or time or now:
                raise typer.BadParameter("a service tries expressions on its own recent events", param_hint="--server")
            _ask_service(server, expression or [], examples, json)
            return
        names = names or [STANDARD]
        if [*names, expression_file, subscriptions].count(STANDARD) > 1:
            raise typer.BadParameter("only one file can be standard input")
        if subscriptions is not None and time is not None:
            raise typer.BadParameter("--time is for expressions, not for --subscriptions")
        how = Reading(format, choose_types(types), longest=max_line << 20)
        declared = declared_types(types)
        if subscriptions is not None:
            _replay(subscriptions, names, attributes, on_error, how, json, threads, history, retain, now, declared)
        else:
            texts = _read_expressions(expression_file) if expression_file is not None else list(expression or [])
            before = {"history": history, "retain": retain, "now": now, "types": declared}
            _backtest(texts, names, attributes, examples, time, on_error, how, json, threads, before)


def _ask_service(server: str, expressions: list[str], examples: int, json: bool) -> None:
    with ask(server) as client:
        for expression in expressions:
            found = client.backtest(expression, examples)
            if json:
                _print_json({"expression": expression, **found} if len(expressions) > 1 else found)
            else:
                typer.echo(show_backtest(found))


def _backtest(
    expressions: list[str] | dict[Any, str],
    names: list[str],
    attributes: str | None,
    examples: int,
    time: str | None,
    on_error: OnError,
    how: Reading,
    json: bool,
    threads: int | None,
    before: dict[str, Any],
) -> None:
    from dibs.language.types import check_types
    from dibs.past.backtest import Backtests, backtest
    from dibs.past.columns import Expressions

    single = isinstance(expressions, list) and len(expressions) == 1
    ids, texts = zip(*(expressions.items() if isinstance(expressions, dict) else enumerate(expressions)))
    # A mistake in one is told before any file is opened.
    compiled = Expressions(texts, None if single else ids, check_types(before["types"]))
    source = _open_all(names, how)
    _say_notes(source, compiled.names)

    def work(progress: Callable[[int], None]) -> Backtest | Backtests:
        options: dict[str, Any] = {"attributes": attributes, "examples": examples, "time": time, "threads": threads}
        wanted: Any = texts[0] if single else expressions
        return backtest(wanted, source, on_error=on_error.value, progress=progress, **options, **before)

    result = _run(source, work)
    results: dict[Any, Backtest] = result if isinstance(result, Backtests) else {0: result}
    for id, each in results.items():
        if json:
            _print_json(each.to_dict() if single else {"id": id, **each.to_dict()})
        else:
            typer.echo(f"{each}\n" if not single else str(each))
    if not json and not single:
        typer.echo(str(result))
    for each in list(results.values())[:1]:
        _say_end(source, each)


def _replay(
    subscriptions: str,
    names: list[str],
    attributes: str | None,
    on_error: OnError,
    how: Reading,
    json: bool,
    threads: int | None,
    history: str | None,
    retain: int | None,
    now: str | None,
    types: dict[str, str],
) -> None:
    from dibs.history.retention import Retain
    from dibs.past.replay import replay

    source = _open_all(names, how)
    matcher, left_out = load_file(subscriptions, on_error, None, threads, types=types)
    _say_notes(source, matcher.attributes)
    if retain is not None:
        matcher.history.retain = Retain(count=retain)

    def work(progress: Callable[[int], None]) -> Replay:
        options: dict[str, Any] = {"attributes": attributes, "progress": progress, "history": history, "now": now}
        return replay(matcher, source, on_error=on_error.value, **options)

    result = _run(source, work)
    if json:
        _print_json(result.to_dict())
    else:
        typer.echo(str(result))
    if left_out:
        say(f"{left_out:,} bad subscription{'s' * (left_out != 1)} left out")
    _say_end(source, result)


def _read_expressions(name: str) -> list[str] | dict[Any, str]:
    """The lines of a file, or the expressions of a file of subscriptions by id."""
    if Path(name).suffix.lower() in ENDINGS or Path(name).is_dir():
        read = read_subscriptions(name)
        if read.problems:
            say_problems(f"{len(read.problems):,} bad lines:", read.show_problems())
            raise BadInput("correct them, and try again")
        return dict(read)
    texts = []
    with open_input(name) as file:
        for number, line in number_lines(file, show_name(name)):
            try:
                texts.append(line.decode().strip())
            except UnicodeDecodeError as error:
                raise BadInput(f"{show_name(name)}, line {number}: byte {error.start + 1} is not UTF-8") from None
    if not texts:
        raise BadInput(f"{show_name(name)} holds no expression; expected one on each line")
    return texts


def _open_all(names: list[str], how: Reading) -> Chain:
    from dibs.past.sources import Chain

    return Chain([(show_name(name), _open(name, how)) for name in names])


def _open(name: str, how: Reading) -> StoredEvents:
    from dibs.past.sources import Passing, StoredLines
    from dibs.past.sources_files import open_file

    kind = format_of(name, how.format)
    if kind is Format.csv:
        return Passing(CsvTable(name, how.types), show_name(name), "csv")
    if name != STANDARD:
        return open_file(Path(name), kind.value, how.longest)
    if kind is Format.parquet:
        open_parquet(name)  # says why not
    if kind is Format.arrow:
        with reading(name, kind):
            return Passing(open_arrow(name), show_name(name), "arrow")
    return StoredLines(open_input(name), show_name(name), how.longest)


def _say_notes(source: Chain, wanted: Collection[str]) -> None:
    for _, part in source.parts:
        table = getattr(part, "reader", None)
        for note in table.notes(wanted) if isinstance(table, CsvTable) else ():
            say(note)


def _run(source: Chain, work: Callable[[Callable[[int], None]], Any]) -> Any:
    """Does the work behind a bar, and names the file of an event that cannot be read."""
    from dibs.errors import EventError

    done = 0
    with bar("events", source.total() if sys.stderr.isatty() else None) as advance:

        def progress(more: int) -> None:
            nonlocal done
            done += more
            advance(done)

        try:
            with advising_longer_lines():
                return work(progress)
        except EventError as error:
            if error.event is None:
                raise
            what = str(error).removeprefix(f"event {error.event}")
            advice = "correct it, or go on past such events with --on-error skip"
            raise BadInput(f"{source.place(error.event)}{what}; {advice}") from None


def _print_json(record: dict[str, Any]) -> None:
    import orjson

    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    results().write(orjson.dumps(record, default=str, option=options))


def _say_end(source: Chain, result: Backtest | Replay) -> None:
    if result.problem_count:
        shown = []
        for event, attribute, message in result.problems:
            place = source.place(event)
            shown.append(f"{place}: {message}" if attribute is None else f"{place}, attribute {attribute!r}: {message}")
        plural = "s" * (result.problem_count != 1)
        say_problems(f"{result.problem_count:,} thing{plural} could not be read:", shown, result.problem_count)
    if result.elapsed >= 1:
        speed = result.events / result.elapsed
        say(f"{result.events:,} events in {result.elapsed:.1f} s ({speed:,.0f} a second)")
