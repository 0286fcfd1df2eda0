"""What pages of the site are made of besides Markdown: commands with their help, and the notebook as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

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


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    app.add_directive("notebook", Notebook)
    return {"parallel_read_safe": True}
