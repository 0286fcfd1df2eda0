"""Drawings of the ideas of structures, as SVG in the colours of the page.

`box` is what is there, `hit` what an event meets, `path` the way it goes.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

DRAWINGS: dict[str, tuple[str, Callable[[Canvas], None]]] = {}


class Canvas:
    def __init__(self, width: int = 640, height: int = 210):
        self.width, self.height = width, height
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, text: str = "", hit: bool = False) -> None:
        kind = "hit" if hit else "box"
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="3"/>')
        if text:
            self.text(x + width / 2, y + height / 2 + 4, text)

    def boxes(self, x: float, y: float, texts: Sequence[str], width: float, hits: Sequence[int] = ()) -> None:
        for place, text in enumerate(texts):
            self.box(x + place * width, y, width - 2, 24, text, place in hits)

    def circle(self, x: float, y: float, text: str, hit: bool = False) -> None:
        self._parts.append(f'<circle class="{"hit" if hit else "box"}" cx="{x}" cy="{y}" r="17"/>')
        self.text(x, y + 4, text, 11)

    def line(self, *points: tuple[float, float], path: bool = False) -> None:
        way = " ".join(f"{x},{y}" for x, y in points)
        self._parts.append(f'<polyline class="{"path" if path else "line"}" points="{way}"/>')

    def text(self, x: float, y: float, text: str, size: int = 12, anchor: str = "middle", soft: bool = False) -> None:
        kind = ' class="soft"' if soft else ""
        style = f'x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}"'
        self._parts.append(f"<text{kind} {style}>{html.escape(text)}</text>")

    def label(self, x: float, y: float, text: str) -> None:
        self.text(x, y, text, 11, "start", soft=True)

    def svg(self, title: str) -> str:
        box = f'viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{html.escape(title)}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{"".join(self._parts)}</svg>'


def drawing(name: str, title: str) -> Callable[[Callable[[Canvas], None]], Callable[[Canvas], None]]:
    def add(draw: Callable[[Canvas], None]) -> Callable[[Canvas], None]:
        DRAWINGS[name] = (title, draw)
        return draw

    return add


def figure(name: str) -> str:
    title, draw = DRAWINGS[name]
    canvas = Canvas()
    draw(canvas)
    return f'<figure class="idea">{canvas.svg(title)}<figcaption>{html.escape(title)}</figcaption></figure>'


@drawing(
    "spans", "A domain is its constants and the gaps between them; a predicate is spans of cells, a value is one cell."
)
def spans(c: Canvas) -> None:
    c.label(20, 40, "price: constants 10, 20, 580")
    cells = ["< 10", "10", "10 to 20", "20", "20 to 580", "580", "> 580"]
    c.boxes(20, 52, cells, 86, hits=(4,))
    c.line((20 + 2 * 86 - 86, 100), (20 + 4 * 86 - 2, 100))
    c.label(20 + 4 * 86 + 8, 104, "BETWEEN 10 AND 20: cells 1 to 3")
    c.line((20, 130), (20 + 6 * 86 - 2, 130), path=True)
    c.label(20 + 6 * 86 + 6, 134, "<= 580")
    c.line((20 + 4 * 86 + 43, 168), (20 + 4 * 86 + 43, 80), path=True)
    c.text(20 + 4 * 86 + 43, 184, "an event with price 550 has cell 4")


@drawing("scan", "scan: every clause against every event, until a predicate fails. The oracle of all others.")
def scan(c: Canvas) -> None:
    c.label(20, 30, "clauses, one after the other")
    for row, (tests, held) in enumerate([(3, 1), (2, 2), (4, 1), (3, 3)]):
        for place in range(tests):
            c.box(
                40 + place * 84,
                44 + row * 36,
                80,
                26,
                ("✓" if place < held else "✗") if place <= held else "",
                place < held,
            )
        if held == tests:
            c.text(60 + tests * 84, 61 + row * 36, "match", 12, "start")


@drawing(
    "counting",
    "counting: each value's list says whose predicate holds; who is named for each of its predicates, matches.",
)
def counting(c: Canvas) -> None:
    c.label(20, 26, "lists by attribute and value")
    for row, (name, rows, hit) in enumerate(
        [
            ("color = red", "1 4 7", True),
            ("color = blue", "2 3", False),
            ("price < 20", "1 3 7 9", True),
            ("size = 5", "7", True),
        ]
    ):
        c.box(20, 40 + row * 34, 110, 26, name, hit)
        c.boxes(140, 41 + row * 34, rows.split(), 36, range(9) if hit else ())
    c.label(380, 26, "counters of rows: predicates left")
    for place, (row, left) in enumerate([(1, "2→0"), (3, "2→1"), (4, "3→2"), (7, "3→0"), (9, "1→0")]):
        c.box(380, 40 + place * 30, 60, 24, f"row {row}")
        c.box(446, 40 + place * 30, 60, 24, left, left.endswith("→0"))
        if left.endswith("→0"):
            c.text(516, 56 + place * 30, "match", 12, "start")


@drawing(
    "kindex",
    "kindex: sorted lists for each number of predicates are merged; what cannot reach that number is skipped.",
)
def kindex(c: Canvas) -> None:
    c.label(20, 26, "rows of 3 predicates: the lists of the event's values, in order of their heads")
    for row, (name, rows, hits) in enumerate(
        [
            ("size = 5", "4 12 19", (1,)),
            ("color = red", "9 12 30", (1,)),
            ("price < 20", "12 14 31", (0,)),
            ("brand = x", "40", ()),
        ]
    ):
        c.text(100, 57 + row * 36, name, 12, "end")
        c.boxes(112, 41 + row * 36, rows.split(), 60, hits)
    c.line((330, 52), (420, 90), path=True)
    c.line((330, 88), (420, 90), path=True)
    c.line((330, 124), (420, 90), path=True)
    c.text(430, 94, "first and third head are 12: match", 12, "start")
    c.label(330, 168, "4 and 9 were skipped: three lists were never at them")


@drawing(
    "propagation",
    "propagation: first which predicates hold, a bit each; then only clauses whose access predicate does.",
)
def propagation(c: Canvas) -> None:
    c.label(20, 26, "1. a bit for each distinct predicate")
    c.boxes(20, 38, list("10110010"), 34, (0, 2, 3, 6))
    c.label(20, 92, "2. clusters under the access predicates that hold")
    for place, (x, tests, good) in enumerate(
        [(20, ("p2", "p3"), True), (200, ("p4", "p0"), False), (380, ("p3", "p6"), True)]
    ):
        c.box(x, 104, 60, 26, ("p0", "p2", "p2")[place], True)
        c.line((x + 60, 117), (x + 76, 117))
        for at, test in enumerate(tests):
            c.box(x + 76 + at * 40, 104, 38, 26, test, good or at == 1)
        c.text(x + 80, 152, "match" if good else "p4 is 0", 11, "start")
    c.label(20, 190, "clauses under p1, p4, p5, p7 are never looked at")


@drawing(
    "gryphon",
    "gryphon: clauses that begin alike share a path; an event follows the edges that hold, and the don't-care edge.",
)
def gryphon(c: Canvas) -> None:
    c.circle(60, 105, "color")
    c.circle(220, 45, "size", True)
    c.circle(220, 165, "size", True)
    c.line((77, 98), (203, 48), path=True)
    c.line((77, 112), (203, 162), path=True)
    c.text(130, 62, "red", 12)
    c.text(130, 158, "*", 14)
    for y, label, hit in [(20, "5", True), (70, "7", False), (140, "5", True), (190, "*", True)]:
        c.line((237, 45 if y < 100 else 165), (360, y), path=hit)
        c.text(300, y + (6 if y in (20, 140) else -4) - 4, label, 12)
        c.box(364, y - 13, 120, 26, {20: "clauses 1, 4", 70: "clause 2", 140: "clause 6", 190: "clause 9"}[y], hit)


@drawing(
    "opindex",
    "opindex: filed under the rarest attribute (pivot); a sorted list for each operator, in segments with signatures.",
)
def opindex(c: Canvas) -> None:
    c.label(20, 24, "pivots of the event")
    c.box(20, 34, 90, 26, "brand", True)
    c.box(20, 70, 90, 26, "rating", True)
    c.box(20, 106, 90, 26, "weight")
    c.line((110, 47), (150, 47), path=True)
    for row, (operator, entries, hits) in enumerate(
        [
            ("=", ["brand 3", "color 1", "color 8", "size 5"], (1, 3)),
            ("≤", ["price 10", "price 20", "price 90", "year 9"], (1, 2)),
            ("≥", ["price 5", "price 8", "year 1", "year 7"], (0, 2)),
        ]
    ):
        c.text(168, 51 + row * 44, operator, 15)
        c.boxes(184, 35 + row * 44, entries, 78, hits)
    c.label(184, 170, "price = 15: of ≤ all from 20 on, of ≥ all up to 8: one run each")
    c.box(520, 35, 100, 112, "counters")
    c.label(184, 190, "a segment whose signature lacks the event's bit is not searched")


@drawing(
    "betree",
    "betree: a node splits its rows by the most selective attribute, then halves that attribute's space, and so on.",
)
def betree(c: Canvas) -> None:
    c.box(250, 10, 140, 26, "p-node: all", True)
    c.box(90, 66, 140, 26, "by color", True)
    c.box(410, 66, 140, 26, "by price", True)
    c.line((290, 36), (160, 66), path=True)
    c.line((350, 36), (480, 66), path=True)
    c.box(410, 112, 140, 24, "price 0 to 100", True)
    c.line((480, 92), (480, 112), path=True)
    c.box(350, 156, 110, 24, "0 to 50", True)
    c.box(500, 156, 110, 24, "50 to 100")
    c.line((450, 136), (405, 156), path=True)
    c.line((510, 136), (555, 156))
    c.box(20, 112, 90, 24, "red: 1 4 7", True)
    c.box(120, 112, 90, 24, "blue: 2 3")
    c.box(220, 112, 110, 24, "others: 5", True)
    c.line((130, 92), (65, 112), path=True)
    c.line((160, 92), (165, 112))
    c.line((190, 92), (275, 112), path=True)
    c.label(20, 196, "color = red, price = 30: only l-nodes along the way are evaluated")


@drawing(
    "pstree",
    "pstree: predicates cut a domain into disjoint spaces; a value's space lists all that it satisfies.",
)
def pstree(c: Canvas) -> None:
    c.label(20, 24, "predicates on price")
    for y, lo, hi, name in [(36, 60, 300, "p1"), (52, 180, 460, "p2"), (68, 380, 600, "p3")]:
        c.line((lo, y), (hi, y))
        c.text(lo - 12, y + 4, name, 11)
    for place, (lo, hi, names) in enumerate(
        [(60, 180, "p1"), (180, 300, "p1 p2"), (300, 380, "p2"), (380, 460, "p2 p3"), (460, 600, "p3")]
    ):
        c.box(lo, 130, hi - lo - 2, 28, names, place == 1)
    c.circle(330, 100, "", True)
    c.line((318, 112), (240, 130), path=True)
    c.line((240, 190), (240, 160), path=True)
    c.text(240, 204, "price = 210: one space, no predicate is tested")


@drawing(
    "pstbloom",
    "pstbloom: under one access predicate, signatures of the others rule a candidate out before it is tested.",
)
def pstbloom(c: Canvas) -> None:
    c.box(20, 40, 110, 28, "space of price", True)
    c.line((130, 54), (170, 54), path=True)
    c.boxes(170, 42, ["1", "4", "7", "9"], 50, (0, 1, 2, 3))
    c.label(170, 34, "candidates by their access predicate")
    c.box(20, 110, 110, 28, "space of color", True)
    c.line((130, 124), (170, 124), path=True)
    c.boxes(170, 112, list("01101001"), 34, (1, 2, 4, 7))
    c.label(450, 128, "its Bloom signature of ids")
    for place, good in enumerate([True, False, True, False]):
        c.line((195 + place * 50, 66), (195 + place * 50, 110), path=good)
    c.label(170, 164, "an id whose bits are not set cannot satisfy color: dropped without a look at its predicates")


@drawing(
    "psthash", "psthash: two access predicates at once; an event looks up the pairs of its spaces in a hash table."
)
def psthash(c: Canvas) -> None:
    c.label(20, 24, "spaces of color")
    c.label(200, 24, "spaces of price")
    for column in range(6):
        for row in range(4):
            c.box(
                140 + column * 44,
                40 + row * 32,
                42,
                30,
                "1 4" if (column, row) == (3, 1) else "",
                (column, row) == (3, 1),
            )
    c.line((40, 87), (138, 87), path=True)
    c.text(60, 80, "red", 12)
    c.line((293, 200), (293, 170), path=True)
    c.text(330, 204, "price 30", 12)
    c.line((320, 87), (430, 87), path=True)
    c.box(434, 70, 180, 34, "candidates satisfy both", True)


def _intervals(c: Canvas) -> None:
    for y, lo, hi, name in [(30, 40, 210, "A"), (46, 120, 330, "B"), (62, 280, 420, "C"), (78, 300, 580, "D")]:
        c.line((lo, y), (hi, y))
        c.text(lo - 12, y + 4, name, 11)


@drawing("cluster", "cluster: keys split overlapping intervals until one is left; what a leaf names is verified.")
def cluster(c: Canvas) -> None:
    _intervals(c)
    c.circle(260, 120, "260", True)
    c.circle(140, 160, "120")
    c.circle(400, 160, "430", True)
    c.line((247, 131), (155, 151))
    c.line((273, 131), (386, 150), path=True)
    for x, names, hit in [(60, "A", False), (180, "A B", False), (320, "B C D", True), (480, "D", False)]:
        c.box(x, 180, 80, 24, names, hit)
    c.label(460, 120, "value 310: below 430: B, C, D")


@drawing(
    "interval",
    "interval: within an elementary interval all values satisfy the same; the search stops where it finds the value's.",
)
def interval(c: Canvas) -> None:
    _intervals(c)
    for place, (lo, hi, names) in enumerate(
        [
            (40, 120, "A"),
            (120, 210, "A B"),
            (210, 280, "B"),
            (280, 300, ""),
            (300, 330, ""),
            (330, 420, "C D"),
            (420, 580, "D"),
        ]
    ):
        c.box(lo, 150, hi - lo - 2, 26, names, place == 4)
    c.label(290, 196, "280: B C   300: B C D")
    c.line((314, 104), (314, 148), path=True)
    c.text(314, 100, "value 310", 12)


@drawing("hybrid", "hybrid: clusters down to a size, then an interval tree of its own in each leaf.")
def hybrid(c: Canvas) -> None:
    c.circle(300, 30, "260", True)
    c.line((286, 40), (150, 80))
    c.line((314, 40), (460, 80), path=True)
    c.box(60, 80, 200, 100, "")
    c.text(160, 98, "interval index of A, B")
    c.box(340, 80, 260, 100, "", True)
    c.text(470, 98, "interval index of B, C, D")
    for place, names in enumerate(["B", "B C", "B C D", "C D", "D"]):
        c.box(350 + place * 48, 120, 46, 26, names, place == 2)
    for place, names in enumerate(["A", "A B", "B"]):
        c.box(80 + place * 54, 120, 52, 26, names)


@drawing(
    "segment-tree",
    "segment-tree: each interval stands at the highest nodes that it covers whole; a value collects on its way down.",
)
def segment_tree(c: Canvas) -> None:
    xs = [80, 180, 280, 380, 480, 580]
    for place, x in enumerate(xs[:4]):
        c.box(x - 40, 160, 80, 26, ["A", "", "C", ""][place], place == 2)
    c.box(90, 100, 120, 26, "A", False)
    c.box(290, 100, 120, 26, "B D", True)
    c.box(190, 40, 120, 26, "", True)
    c.line((230, 66), (150, 100))
    c.line((270, 66), (350, 100), path=True)
    c.line((130, 126), (80, 160))
    c.line((170, 126), (180, 160))
    c.line((340, 126), (280, 160), path=True)
    c.line((370, 126), (380, 160))
    c.label(440, 118, "on the way of the value: B, D, then C")


@drawing(
    "interval-tree", "interval-tree: an interval is kept once, at the highest point that it contains, in two orders."
)
def interval_tree(c: Canvas) -> None:
    c.circle(240, 50, "300", True)
    c.circle(120, 120, "180")
    c.circle(360, 120, "430", True)
    c.line((226, 60), (134, 110))
    c.line((254, 60), (346, 110), path=True)
    c.box(290, 30, 130, 24, "by begin: B C D", True)
    c.box(430, 30, 130, 24, "by end: D C B", True)
    c.box(60, 150, 120, 24, "A")
    c.box(390, 150, 120, 24, "D")
    c.label(290, 76, "310 is above 300: those that end at 310 or later")


@drawing(
    "pbtree",
    "pbtree: a B+tree over constants; each item says where four ordered lists are entered, and a run of each is read.",
)
def pbtree(c: Canvas) -> None:
    c.box(260, 10, 120, 26, "20 | 60", True)
    for place, text in enumerate(["5 | 12", "20 | 35", "60 | 90"]):
        c.box(120 + place * 150, 60, 110, 26, text, place == 1)
        c.line((280 + place * 40, 36), (175 + place * 150, 60), path=place == 1)
    for row, (name, hits) in enumerate([("Equal", (2,)), ("GreaterThan", (0, 1)), ("LessThan", (3, 4, 5))]):
        c.text(110, 127 + row * 32, name, 12, "end")
        c.boxes(120, 110 + row * 32, ["5", "12", "20", "35", "60", "90"], 66, hits)
    c.line((325, 86), (285, 110), path=True)
    c.label(530, 128, "value 20:")
    c.label(530, 158, "all below it")
    c.label(530, 190, "all above it")


@drawing(
    "auto",
    "auto: each clause where it is cheap: records by rare values, vectors by attribute sets, masks over many events.",
)
def auto(c: Canvas) -> None:
    c.label(20, 24, "records: under a rare value")
    c.box(20, 34, 90, 26, "user = 7", True)
    c.line((110, 47), (128, 47), path=True)
    c.boxes(128, 35, ["≤ 5", "= 3", "row"], 44, (0, 1, 2))
    c.label(20, 92, "vectors: a bit for each clause")
    for row, (name, bits) in enumerate([("color = red", "10110"), ("price = 30", "00110"), ("and", "00110")]):
        c.text(92, 117 + row * 30, name, 11, "end")
        c.boxes(
            100, 102 + row * 30, list(bits), 30, [p for p, bit in enumerate(bits) if bit == "1"] if row == 2 else ()
        )
    c.label(340, 24, "masks: a bit for each of 512 events")
    for row, (name, bits) in enumerate([("price ≤ 20", "11010010"), ("stock > 0", "01011110"), ("and", "01010010")]):
        c.text(412, 55 + row * 30, name, 11, "end")
        c.boxes(420, 40 + row * 30, list(bits), 25, [p for p, bit in enumerate(bits) if bit == "1"] if row == 2 else ())
    c.label(340, 164, "neighbours share leading predicates, so their masks are")
    c.label(340, 182, "made once; an empty mask ends a clause")
