"""What pages of the site are made of besides Markdown: commands with their help, and the notebook as a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

import drawings

WIDTH = 100


def commands() -> Iterator[tuple[str, str]]:
    """(name, help) of `dibs` and each of its commands, as a terminal of 100 columns shows it."""
    from dibs.cli.commands import app

    top = typer.main.get_command(app)

    def walk(command: Any, above: Any, name: str) -> Iterator[tuple[str, str]]:
        context = type(command).context_class(command, info_name=name, parent=above, max_content_width=WIDTH)
        context.terminal_width = WIDTH
        yield context.command_path, command.get_help(context)
        for below in command.list_commands(context) if hasattr(command, "list_commands") else ():
            yield from walk(command.get_command(context, below), context, below)

    yield from walk(top, None, "dibs")


class Commands(Directive):
    """The help of every command, a section each."""

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for name, text in commands():
            section = nodes.section(ids=[name.replace(" ", "-")], names=[name])
            section += nodes.title(name, name)
            section += nodes.literal_block(text, text, language="text")
            found.append(section)
        return found


def page_of(notebook: Path) -> str:
    """A notebook as Markdown: its words, its code, and what each cell gave when it was run."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "text/html" in data:
                parts.append("```{raw} html\n<div class='output'>" + "".join(data["text/html"]) + "</div>\n```")
            else:
                text = "".join(output.get("text", data.get("text/plain", [])))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


class Notebook(Directive):
    """A notebook beside the page, as it was run."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        environment = self.state.document.settings.env
        path = Path(environment.doc2path(environment.docname)).parent / self.arguments[0]
        environment.note_dependency(str(path))
        node = nodes.Element()
        self.state.nested_parse(StringList(page_of(path).split("\n"), str(path)), 0, node, match_titles=True)
        return node.children


class Idea(Directive):
    """The drawing of a structure's idea."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = drawings.figure(self.arguments[0])
        return [nodes.raw("", text, format="html")]


ENTRY = re.compile(r"(\s*)(\S(?:.*?\S)?)\s{2,}(\S.*)")


def arrange_docstring(lines: list[str]) -> list[str]:
    """Docstrings have names on the left and what they are in a column on the right, as a terminal shows them best: as
    definitions. Other text that is set in is left as it stands."""
    found: list[str] = []
    place = 0
    while place < len(lines):
        line = lines[place]
        entry = None if line.lstrip().startswith((">>>", "...")) else ENTRY.fullmatch(line)
        if line.lstrip().startswith(">>>"):
            while place < len(lines) and lines[place].strip():
                found.append(lines[place])
                place += 1
        elif entry is not None and not any(sign in line for sign in "├└│"):
            column = entry.start(3)
            said = [entry[3]]
            place += 1
            while place < len(lines) and lines[place].strip() and _margin(lines[place]) >= column:
                said.append(lines[place][column:])
                place += 1
            if not any(text.startswith("- ") for text in said):
                said = [text.strip() for text in said]  # more columns
            found += ["", f"``{entry[2]}``", *(("    " + text) for text in _apart(said)), ""]
        elif line.startswith("    ") and (place == 0 or not lines[place - 1].strip()):
            found += ["::", ""]
            while place < len(lines) and (lines[place].startswith("    ") or not lines[place].strip()):
                found.append(lines[place])
                place += 1
            found.append("")
        else:
            found.append(line)
            place += 1
    return found


def _apart(lines: list[str]) -> Iterator[str]:
    """Lists want an empty line before them."""
    for before, line in zip(["", *lines], lines):
        if line.startswith("- ") and not before.startswith(("- ", "  ")):
            yield ""
        yield line


def set_apart(lines: list[str]) -> list[str]:
    """Where text is set in, or no longer is, an empty line before it."""
    found: list[str] = []
    in_example = False
    for line in lines:
        before = found[-1] if found else ""
        in_example = (in_example and bool(line.strip())) or line.lstrip().startswith(">>>")
        deeper = _margin(line) - _margin(before)
        goes_on = before.lstrip().startswith("``") or (before.lstrip().startswith("- ") and deeper == 2)
        begins = line.lstrip().startswith("- ") and not before.lstrip().startswith(("- ", "``"))
        if before.strip() and line.strip() and ((deeper and not goes_on) or begins) and not in_example:
            found.append("")
        found.append(line)
    return found


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def process_docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = set_apart(arrange_docstring(lines))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    app.add_directive("notebook", Notebook)
    app.add_directive("idea", Idea)
    app.connect("autodoc-process-docstring", process_docstring)
    return {"parallel_read_safe": True}
