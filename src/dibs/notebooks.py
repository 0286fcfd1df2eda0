"""Results as HTML, for notebooks: tables and bars in the colours of the page that they stand on."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

BLUE = "#2a78b8"  # of bars; reads on light and on dark pages
SHOWN = 10  # rows of a table
BAR = 160  # pixels of the longest bar
CHART = (560, 90)  # pixels of a chart


class Text(str):
    """Text of several lines, which a notebook shows as such and not as one line with escapes."""

    def _repr_html_(self) -> str:
        return f'<pre style="white-space:pre-wrap">{html.escape(self)}</pre>'


def headline(text: str) -> str:
    return f"<strong>{html.escape(text)}</strong>"


def lines_of(lines: Iterable[str]) -> str:
    found = "\n".join(lines)
    return f'<pre style="margin:4px 0;white-space:pre-wrap">{html.escape(found)}</pre>' if found else ""


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], more: int = 0) -> str:
    """more: rows that are not shown. Numbers stand on the right, `Bar`s are drawn."""
    cells = "".join(f'<th style="text-align:left">{html.escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    rest = f'<tr><td colspan="{len(head)}">and {more:,} more</td></tr>' if more else ""
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}{rest}</tbody></table>"


class Bar(float):
    """A share, from 0 to 1, that is drawn."""


def _cell(value: Any) -> str:
    if isinstance(value, Bar):
        width = max(round(BAR * value), 1 if value else 0)
        bar = f'<span style="display:inline-block;height:10px;width:{width}px;background:{BLUE}"></span>'
        return f'<td style="text-align:left;min-width:{BAR}px">{bar}</td>'
    if isinstance(value, (int, float)):
        return f'<td style="text-align:right">{value:,}</td>'
    return f'<td style="text-align:left;font-family:monospace">{html.escape(str(value))}</td>'


def chart(labels: Sequence[str], counts: Sequence[int]) -> str:
    """Bars side by side, with the first and the last label; each tells its own, and its count, when pointed at."""
    if not counts or not max(counts):
        return ""
    width, height = CHART
    each, most = width / len(counts), max(counts)
    bars = []
    for place, (label, count) in enumerate(zip(labels, counts)):
        tall = max(height * count / most, 1) if count else 0
        box = f'x="{place * each:.1f}" y="{height - tall:.1f}" width="{max(each - 1, 0.5):.1f}" height="{tall:.1f}"'
        bars.append(f'<rect {box} fill="{BLUE}"><title>{html.escape(label)}: {count:,}</title></rect>')
    style = 'font-size="11" fill="currentColor"'
    words = [f'<text x="0" y="{height + 14}" {style}>{html.escape(labels[0])}</text>']
    if len(labels) > 1:
        words.append(f'<text x="{width}" y="{height + 14}" text-anchor="end" {style}>{html.escape(labels[-1])}</text>')
    words.append(f'<text x="{width + 6}" y="10" {style}>{most:,}</text>')
    box = f'viewBox="0 0 {width + 60} {height + 20}" width="{width + 60}" style="max-width:100%"'
    return f'<svg {box} role="img">{"".join(bars + words)}</svg>'
