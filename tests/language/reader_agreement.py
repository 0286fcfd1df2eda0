"""Random texts of the whole language, read by templates and by the grammar: they must say the same, and what the
grammar refuses must be refused in the same words.

    python tests/language/reader_agreement.py [texts] [seed]

Two rows say the same if they have the same predicates (attribute, spans of cells, jumps) once both are coded over the
same constants. Where constants are repeated the normal form has fewer of them, so rows that differ are run instead:
they must accept the same cells.
"""

from __future__ import annotations

import re
import sys
from random import Random
from typing import Any

import pyarrow as pa

from dibs.coding.clauses import Clauses, code_clauses
from dibs.errors import ExpressionError
from dibs.language.normal_form import normal_form
from dibs.language.reading import read
from dibs.language.rows import fill_rows, read_row
from dibs.language.sql import parse
from dibs.language.table import ACCEPT, PredicateTable, concatenate
from dibs.segments.compile import compile_forms, compile_texts

NAMES = [
    *("a", "b", "c", "A", "price", "item.price", "a.b.c", "_x", "x_1", "date", "model", "timestamp", "end", "as"),
    *("`a`", "`a b`", "`a``b`", "a.`b c`", "`select`", "é", "日本", "a . b", "a.select", "`in`.x", "contains"),
]
BAD_NAMES = ["select", "case", "a.1", "a.", "``", "5a", "a\u200b", "in", "", "a b", "current_date", "a..b", "`a"]
NUMBERS = [
    *("0", "1", "2", "-1", "- 1", "007", "1.5", "-0.5", "1.50", "1.0", "-0", "-0.0", ".5", "5.", "-.5", "0.1", "1e5"),
    *("1E-3", "1.5e+3", "10L", "-128Y", "5S", "1.5BD", "2D", "0.1F", "999999999999999999", "9007199254740993"),
    *("1234567890123456789", "18446744073709551615", "18446744073709551616", "123456789012345678901234567890", "+5"),
    *("9007199254740993.0", "0.1234567890123456", "123456789.123456", "1e308", "4.9e-324", "+ 5", "(5)", "-(5)"),
]
BAD_NUMBERS = ["1e999", "128Y", "0x1F", "1_000", "1.5.5", "1e", "--5", "10LL", "1..2", "5²", "- - 5", "-(-129Y)", "-a"]
STRINGS = [
    *("'x'", "'y'", "''", "'é😀'", "'it''s'", "'it\\'s'", "'a' 'b'", '"x"', '"it\'s"', "r'\\d'", 'R"x"', "'a\\nb'"),
    *("'\\u00e9'", "'\\uD83D\\uDE00'", "'\\101'", "'%'", "'_'", "'a%'", "'%a'", "'%a%'", "'a%b'", "'a_'", "'%%'"),
    *(
        "'a\\\\%b'",
        "'a\\%b'",
        "'-- no comment'",
        "'/* none */'",
        "'\t'",
        "'\x01'",
        "'' ''",
        "'.*+?[('",
        "('x')",
        "'\\0'",
    ),
]
BAD_STRINGS = ["'x", "'\\uD83D'", "'\\UFFFFFFFF'", "n'x'", "b'x'", "x'1F'", '"x', "'a\\"]
TIMES = [
    *(
        "DATE '2024-02-29'",
        "date'2024-5-1'",
        "TIMESTAMP '2024-05-01 10:00:00'",
        "TIMESTAMP '2024-05-01T10:00:00.123456'",
    ),
    *("TIMESTAMP '2024-05-01'", "timestamp '2024-12-31 23:59:59.5'", "TIMESTAMP '2024-05-01 10:00:00+02:00'"),
    *("TIMESTAMP '0001-01-01 00:00:00'", "DATE '9999-12-31'", "DATE '1970-01-01'", "TIMESTAMP_NTZ '2024-05-01 10:00'"),
    *("TIMESTAMP '2024-05-01 10:00:00.1234567'", "DATE ' 2024-05-01 '", "TIMESTAMP('2024-05-01')", "DATE '1600-03-01'"),
]
BAD_TIMES = ["DATE '2023-02-29'", "TIMESTAMP '12:30'", "DATE '2024-05-01 10:00:00'", "TIMESTAMP '2024-13-01 00:00:00'"]
ODD = ["TRUE", "false", "NULL", "CAST('NaN' AS DOUBLE)", "DOUBLE('-Infinity')", "CAST(5 AS FLOAT)", "CAST('x' AS INT)"]
REGEXES = ["'a.b'", "'^a$'", "r'\\d+'", "'[a'", "'(?i)x'", "'a{1001}'", "''", "'\\\\d'", "'(?=a)'"]
NETWORKS = [
    *(
        "'10.0.0.0/8'",
        "'10.1.2.0/24'",
        "'10.1.3.0/24'",
        "'10.1.2.3'",
        "'10.1.2.3/32'",
        "'0.0.0.0/0'",
        "'::/0'",
        "'::/80'",
    ),
    *(
        "'::/80'",
        "'2001:db8::/32'",
        "'::1'",
        "'::ffff:10.0.0.0/104'",
        "'::ffff:0:0/96'",
        "'::fffe:0:0/95'",
        "'10.1.' '2.0/24'",
    ),
]
BAD_NETWORKS = ["'10.1.2.3/24'", "'10.0.0.0/33'", "'x'", "''", "5", "'10.0.0.0/'", "'10.0.0.0/ 8'", "'::%1'", "'/8'"]
VARIABLES = [*["x", "y", "a", "item", "price"] * 3, "`a b`", "X"]
BLANKS = [" ", " ", " ", " ", "", "  ", "\n", "\t", " /* c */ ", " -- c\n", "\u00a0", "\r\n"]
OPERATORS = ["=", "==", "<>", "!=", "<", "<=", ">", ">="]


class Texts:
    """Makes random texts. clean: the share of texts that are not made bad on purpose."""

    def __init__(self, random: Random):
        self.random = random
        self.bad = 0.0
        self.last = "a = 1"

    def pick(self, good: list[str], bad: list[str]) -> str:
        return self.random.choice(bad if self.random.random() < self.bad else good)

    def name(self) -> str:
        few = NAMES[:4] if self.random.random() < 0.6 else NAMES
        return self.pick(few, BAD_NAMES)

    def number(self) -> str:
        random = self.random
        if random.random() < 0.3:
            return str(random.choice([random.randint(-9, 9), random.randint(-(10**20), 10**20), random.uniform(-9, 9)]))
        return self.pick(NUMBERS, BAD_NUMBERS)

    def constant(self) -> str:
        kind = self.random.random()
        if kind < 0.5:
            return self.number()
        if kind < 0.8:
            return self.pick(STRINGS, BAD_STRINGS)
        return self.pick(TIMES, BAD_TIMES) if kind < 0.92 else self.random.choice(ODD)

    def predicate(self) -> str:
        random, name, negation = self.random, self.name(), self.random.choice(["", "", "NOT", "not"])
        kind = random.randrange(17)
        if kind == 16:
            return self.timed()
        if kind == 13:
            networks = [self.pick(NETWORKS, BAD_NETWORKS) for _ in range(random.choice([1, 1, 1, 2, 3]))]
            return self.join(random.choice(["ip_in", "IP_IN"]), "(", self.argument(), ",", " , ".join(networks), ")")
        if kind == 14:
            return self.quantified([], 2)
        if kind == 15:
            return (
                self.subquery() if random.random() < 0.4 else self.join(name, random.choice(OPERATORS), self.number())
            )
        if kind == 12:
            name, kind = self.value(2), random.choice([0, 4, 5, 6, 7, 8, 9, 10, 11])
        if kind < 4:
            return self.join(name, random.choice(OPERATORS), self.constant())
        if kind == 4:
            return self.join(self.constant(), random.choice(OPERATORS), random.choice([name, name, f"({name})", "5"]))
        if kind == 5:
            return self.join(name, negation, "BETWEEN", self.constant(), "AND", self.constant())
        if kind == 6:
            one = (
                self.constant
                if random.random() < 0.3
                else random.choice([self.number, lambda: self.pick(STRINGS, BAD_STRINGS)])
            )
            items = [one() for _ in range(random.choice([0, 1, 1, 2, 2, 3, 5, 20]) or int(random.random() > self.bad))]
            return self.join(name, negation, "IN", "(", " , ".join(items), ")")
        if kind == 7:
            escape = random.choice(["", "", "", "ESCAPE '!'", "ESCAPE 'ab'"])
            return self.join(name, negation, random.choice(["LIKE", "like"]), self.pick(STRINGS, BAD_STRINGS), escape)
        if kind == 8:
            return self.join(name, negation, random.choice(["RLIKE", "REGEXP"]), random.choice(REGEXES))
        if kind == 9:
            return self.join(name, "IS", random.choice(["", "NOT"]), random.choice(["NULL", "NULL", self.truth()]))
        if kind == 10:
            function = random.choice(["STARTSWITH", "endswith", "CONTAINS", "Contains"])
            return self.join(function, "(", name, ",", self.pick(STRINGS, BAD_STRINGS), ")")
        rare = [
            f"({name})={self.number()}",
            "EXISTS d (d.sku = sku AND d.n > 5)",
            "1 = 1",
            f"lower({name}) = 'x'",
            "NULL",
        ]
        return random.choice([name, name, name, "TRUE", "FALSE", *rare])

    def value(self, depth: int) -> str:
        """A computed value."""
        random = self.random
        kind = random.randrange(9) if depth else random.randrange(2)
        if kind == 0:
            return self.name()
        if kind == 1:
            return self.constant()
        one, other = self.value(depth - 1), self.value(depth - 1)
        if kind < 5:
            return self.join(one, random.choice(["+", "-", "*", "/", "%", "DIV", "||", "&", "<", "=", "<=>"]), other)
        if kind == 5:
            return self.join("(", one, ")")
        if kind == 6:
            function = random.choice(["lower", "LENGTH", "abs", "hour", "Round", "regexp_extract", "foo", "nullif"])
            return self.join(function, "(", *random.choice([[one], [one], [one, ",", other]]), ")")
        if kind == 7:
            return self.join("CASE WHEN", one, "THEN", other, random.choice(["", "ELSE 1"]), "END")
        return self.join("CAST(", one, "AS", random.choice(["DOUBLE", "STRING", "foo"]), ")")

    def argument(self) -> str:
        """What a function is applied to: mostly a name or a path."""
        random = self.random
        return random.choice(["a", "item.price", "a.b.c", "price"] * 2 + [self.name(), self.value(1), "`a b`.c"])

    def quantified(self, variables: list[str], depth: int) -> str:
        """EXISTS or FORALL of an array; variables: of those around it."""
        random, own = self.random, self.pick(VARIABLES, ["a.b", "5", "select", ""])
        inner = [*variables, own]
        parts = [self.element_test(inner, depth) for _ in range(random.choice([1, 1, 2, 3]))]
        array = self.element(variables) if variables else self.argument()
        body = f" {random.choice(['AND', 'or'])} ".join(parts)
        return self.join(random.choice(["exists", "FORALL"]), "(", array, ",", own, "->", body, ")")

    def element(self, variables: list[str]) -> str:
        random = self.random
        if random.random() < 0.1:
            return self.argument()
        path = random.choice([*["", "", ".price", ".b.c", ".x"] * 2, ".`b c`", ". price"])
        return random.choice(variables) + path

    def element_test(self, variables: list[str], depth: int) -> str:
        random, value = self.random, self.element(variables)
        kind = random.randrange(8)
        if kind == 0 and depth > 0:
            return self.quantified(variables, depth - 1)
        if kind == 1:
            return self.join(value, random.choice(["", "NOT"]), "IN", "(", self.constant(), ",", self.constant(), ")")
        if kind == 2:
            return self.join(value, "BETWEEN", self.constant(), "AND", self.constant())
        if kind == 3:
            networks = [self.pick(NETWORKS, BAD_NETWORKS) for _ in range(random.choice([1, 2]))]
            return self.join("ip_in", "(", value, ",", " , ".join(networks), ")")
        if kind == 4:
            value = self.join(random.choice(["round", "coalesce"]), "(", value, ",", self.number(), ")")
        if kind == 5:
            return self.join(
                random.choice(["contains", "startswith"]), "(", value, ",", self.pick(STRINGS, BAD_STRINGS), ")"
            )
        if kind == 6:
            value = self.join(random.choice(["lower", "abs", "NOT", "hour"]), "(", value, ")")
        return self.join(value, random.choice(OPERATORS), random.choice([self.constant(), self.element(variables)]))

    def timed(self) -> str:
        """A test with a length of time."""
        random = self.random
        number = random.choice(["5", "1", "30", "'10'", "-1", "0", self.number()])
        unit = random.choice(["MINUTES", "hour", "DAY", "Seconds", "MONTH", "weeks", "foo"])
        length = self.join(random.choice(["INTERVAL", "interval"]), number, unit)
        time = random.choice(["now()", "at", "created.at", "NOW ( )", "current_timestamp", self.constant()])
        sign, operator = random.choice("+-"), random.choice(OPERATORS)
        kind = random.randrange(4)
        if kind == 0:
            return self.join("at", operator, time, sign, length)
        if kind == 1:
            return self.join("at", "-", time, operator, length)
        if kind == 2:
            return self.join("hour", "(", "at", sign, length, ")", operator, self.number())
        return self.join("at", sign, length, "BETWEEN", self.constant(), "AND", self.constant())

    def subquery(self) -> str:
        """A join over history."""
        random = self.random
        name = random.choice(["sku", "price", "item.price", self.name()])
        pairs = [self.join("d.sku", "=", name)] * (random.random() < 0.9)
        for _ in range(random.choice([0, 1, 1, 2])):
            own = random.choice(["d.n", "d.price", "d.`b c`", "lower(d.s)", "d.n * 2"])
            pairs.append(
                random.choice(
                    [
                        self.join(own, random.choice(OPERATORS), random.choice([self.constant(), name])),
                        self.join(own, "IN", "(", self.constant(), ",", self.constant(), ")"),
                        self.join(own, "BETWEEN", self.number(), "AND", self.number()),
                        self.join(own, "LIKE", self.pick(STRINGS, BAD_STRINGS)),
                    ]
                )
            )
        where = f" {random.choice(['AND', 'AND', 'OR'])} ".join(pairs) or "TRUE"
        kind = random.randrange(4)
        if kind == 0:
            return self.join(random.choice(["EXISTS", "FORALL"]), "d", "(", where, ")")
        if kind == 1:
            return self.join("EXISTS", "(", "SELECT 1 FROM history d WHERE", where, ")")
        asked = random.choice(["COUNT(*)", "MAX(d.price)", "AVG(d.n)", "MAX_BY(d.s, d.n)"])
        query = self.join("(", f"SELECT {asked} FROM history d WHERE", where, ")")
        if kind == 2:
            return self.join(query, random.choice(OPERATORS), self.constant())
        return self.join(name, random.choice(OPERATORS), random.choice(["", self.number() + " * "]) + query)

    def truth(self) -> str:
        return self.pick(["TRUE", "FALSE", "UNKNOWN", "true", "Unknown"], ["`UNKNOWN`", "unknown.x", "NULL", "5", ""])

    def condition(self, depth: int) -> str:
        random = self.random
        kind = random.random()
        if depth == 0 or kind < 0.4:
            return self.predicate()
        if kind < 0.55:
            return self.join(random.choice(["NOT", "not", "!"]), self.condition(depth - 1))
        if kind < 0.7:
            truth = ["IS", random.choice(["", "NOT"]), self.truth()] if random.random() < 0.3 else []
            return self.join("(", self.condition(depth - 1), ")", *truth)
        if kind < 0.75:
            return self.join(self.predicate(), "IS", random.choice(["", "not"]), self.truth())
        word = random.choice(["AND", "OR", "and", "Or"])
        return f" {word} ".join(self.condition(depth - 1) for _ in range(random.choice([2, 2, 3, 4])))

    def join(self, *parts: str) -> str:
        """With blanks between words, and something or nothing between others."""
        result = ""
        for part in parts:
            if not part:
                continue
            touching = (
                bool(result) and (result[-1].isalnum() or result[-1] == "_") and (part[0].isalnum() or part[0] == "_")
            )
            result += self.random.choice(BLANKS[:4] if touching else BLANKS) if result else ""
            result += part
        return result

    def variant(self, text: str) -> str:
        """The text with some other numbers and strings in it: such texts are read by way of the one before."""
        random = self.random

        def other(found: re.Match[str]) -> str:
            pool = [found[0], str(random.randint(0, 10**9)), str(random.randint(0, 99) / 8), *NUMBERS[:6], "1L", "2e3"]
            return random.choice(
                pool if found[0][0] != "'" else [found[0], f"'{random.random()}'", "'it''s'", "''", "'\\\\'"]
            )

        return re.sub(r"(?<![\w.`])\d+(?![\w`])|'[^'\\]*'", other, text)

    def text(self) -> str:
        if self.random.random() < 0.4:
            self.last = self.variant(self.last)
            return self.last
        self.last = self.fresh()
        return self.last

    def fresh(self) -> str:
        self.bad = self.random.choice([0.0, 0.0, 0.0, 0.05])
        text = self.condition(self.random.choice([0, 1, 2, 3]))
        if self.random.random() < 0.05 and text:
            at = self.random.randrange(len(text))
            text = (
                text[:at] + self.random.choice(["", "(", ")", "'", " AND ", "\0", ".", "-", "`", ","]) + text[at + 1 :]
            )
        return text


def check(texts: list[str], random: Random) -> tuple[int, int]:
    """How many of the texts templates took, and how many are accepted at all."""
    column = pa.array(texts, pa.large_string())
    bulk = read(column)
    forms: dict[int, Any] = {}
    errors: dict[int, ExpressionError] = {}
    for i, text in enumerate(texts):
        try:
            forms[i] = normal_form(parse(text))
        except ExpressionError as e:
            errors[i] = e
    for i in bulk.order.tolist():
        assert i in forms, f"{texts[i]!r} is taken and refused: {errors[i]}"
    compiled = compile_texts(column)
    assert compiled.errors.keys() == errors.keys()
    for i, error in errors.items():
        assert compiled.errors[i].problems == error.problems, texts[i]
        assert read_row(texts[i]) is None
    own = bulk.order.tolist()
    by_grammar = compile_forms([forms[i] for i in own])
    compare(texts, random, (bulk.table, own), (by_grammar.table, [own[i] for i in by_grammar.order.tolist()]))
    rows = {i: row for i in sorted(own) if (row := read_row(texts[i])) is not None}
    assert len(rows) == len(own)
    if rows:
        table, order = fill_rows(list(rows.values()), column.take(pa.array(list(rows))))
        compare(texts, random, (bulk.table, own), (table, [list(rows)[i] for i in order.tolist()]))
    return len(own), len(forms)


def compare(texts: list[str], random: Random, *tables: tuple[PredicateTable, list[int]]) -> None:
    """Two tables, and which texts their rows are, say the same."""
    (one, own), (two, places) = tables
    plain, other = one.conjunctions, two.conjunctions
    domains, clauses = code_clauses(concatenate([one, two]))
    rows: dict[int, list[int]] = {}
    for row, i in enumerate([*own[:plain], *places[:other], *own[plain:], *places[other:]]):
        rows.setdefault(i, []).append(row)
    cells = [int(n) for n in domains.cells]
    for i, (first, second) in rows.items():
        if steps_of(clauses, first) != steps_of(clauses, second):
            for _ in range(60):
                event = [random.randrange(n) for n in cells]
                assert holds(clauses, first, event) == holds(clauses, second, event), texts[i]


def steps_of(clauses: Clauses, row: int) -> list[Any]:
    """Its predicates: attribute, spans, and jumps."""
    steps = []
    base, end = int(clauses.offsets[clauses.conjunctions]), int(clauses.offsets[row + 1])
    for p in range(int(clauses.offsets[row]), end):
        lo, hi = int(clauses.lo[p]), int(clauses.hi[p])
        side = slice(lo, lo - hi)
        spans = [(lo, hi)] if hi >= 0 else list(zip(clauses.span_lo[side].tolist(), clauses.span_hi[side].tolist()))
        jumps = (ACCEPT if p + 1 == end else p + 1 - int(clauses.offsets[row]), -2)
        if row >= clauses.conjunctions:
            jumps = int(clauses.on_true[p - base]), int(clauses.on_false[p - base])
        steps.append((int(clauses.attribute[p]), spans, jumps))
    return steps


def holds(clauses: Clauses, row: int, cells: list[int]) -> bool:
    steps = steps_of(clauses, row)
    at = 0 if steps else ACCEPT
    while at >= 0:
        attribute, spans, jumps = steps[at]
        at = jumps[0 if any(lo <= cells[attribute] <= hi for lo, hi in spans) else 1]
    return at == ACCEPT


def main(count: int, seed: int) -> None:
    random = Random(seed)
    taken = accepted = done = 0
    texts = Texts(random)
    while done < count:
        some = check([texts.text() for _ in range(min(1_000, count - done))], random)
        done, taken, accepted = done + min(1_000, count - done), taken + some[0], accepted + some[1]
    print(f"{done:,} texts agree: {accepted:,} accepted, {taken:,} of them by templates; {done - accepted:,} refused")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
