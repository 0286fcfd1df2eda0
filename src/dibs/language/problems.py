"""What is wrong with a text: its problems, and what to tell people who write what the language does not have."""

from __future__ import annotations

import difflib

from dibs.errors import Problem
from dibs.jit.undisturbed import bring
from dibs.language.tokens import Token, quote_name, show_token

MAX_PROBLEMS = 100  # of one text that are reported; nobody reads on


class Refused(Exception):
    """The part of the text that is being read has no meaning; the reader goes on behind it."""

    def __init__(self, message: str, advice: str, start: int, end: int):
        super().__init__(message)
        self.found = (message, advice, start, end)


class Problems:
    """The problems found in a text so far, each with its place."""

    def __init__(self, text: str):
        self.text = text
        self._found: dict[tuple[int, int, str], Problem] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def full(self) -> bool:
        return len(self._found) >= MAX_PROBLEMS

    def add(self, message: str, advice: str, start: int, end: int) -> None:
        """The same message at the same place counts once; beyond MAX_PROBLEMS nothing does."""
        if self.full:
            return
        line = self.text.count("\n", 0, start) + 1
        column = start - self.text.rfind("\n", 0, start)
        problem = Problem(message, advice, start, end, line, column, self.text)
        self._found.setdefault((start, end, message), problem)

    def mark(self) -> int:
        """How many there are: see take_back."""
        return len(self._found)

    def take_back(self, mark: int) -> None:
        """Forgets what was found since then: it is read in another way."""
        for key in list(self._found)[mark:]:
            del self._found[key]

    def in_order(self) -> list[Problem]:
        """All of them, from left to right."""
        return sorted(self._found.values(), key=lambda p: (p.start, p.end))


# ---- advice ----

_CONSTANT = "work out the value and write it as a constant"
_PRESENT = "write it in place of a value, as in at > now() - INTERVAL 1 HOUR"
_MEMBER = "an element is tags[0], with a value before the bracket; an array of constants array(1, 2)"
_EACH = (
    "write the tests one by one, joined by OR (for ANY, SOME) or AND (for ALL), or attribute LIKE ANY ('a%', 'b%'); "
    "of earlier documents, EXISTS d or FORALL d"
)
LAST_FORM = "write (SELECT MAX_BY(d.price, d.time) FROM history d WHERE d.sku = sku) for the price of the latest"
LAST_WORDS = ("LAST", "LAST_VALUE", "LATEST", "LAG", "FIRST", "FIRST_VALUE", "MAX_BY", "MIN_BY")
_OF_DOCUMENTS = (
    "of earlier documents it is asked in a subquery, as in (SELECT MIN(d.price) FROM history d WHERE d.sku = sku)"
)

_FUNCTION_ADVICE = {
    **dict.fromkeys(["ANY", "ALL", "SOME"], _EACH),
    **dict.fromkeys(LAST_WORDS, LAST_FORM),
    **dict.fromkeys(
        ["COUNT", "MIN", "MAX", "SUM", "AVG", "MEAN", "STDDEV", "STDDEV_POP", "STDDEV_SAMP"], _OF_DOCUMENTS
    ),
    "ISNAN": "write attribute = CAST('NaN' AS DOUBLE)",
    **dict.fromkeys(["GETDATE", "SYSDATE", "LOCALTIMESTAMP", "TODAY"], "write now() or current_date()"),
    "MAKE_DATE": "write DATE '2024-01-31'",
    **dict.fromkeys(["STARTS_WITH", "PREFIX"], "write STARTSWITH(attribute, 'text')"),
    **dict.fromkeys(["ENDS_WITH", "SUFFIX"], "write ENDSWITH(attribute, 'text')"),
    "CHARINDEX": "write LOCATE('text', attribute)",
    "STRPOS": "write INSTR(attribute, 'text')",
}

_SIGN_PROBLEMS = {
    **dict.fromkeys(["[", "]"], ("brackets are not expected here", _MEMBER)),
    **dict.fromkeys(["{", "}"], ("braces are not supported", "fill in templates before the text is parsed")),
    **dict.fromkeys(
        ["?", ":", "@", "$", "#"],
        ("this sign is not supported", "fill in parameters before; a name that holds the sign needs backticks"),
    ),
    ";": ("one condition is expected, without ;", "leave out the ; and add other conditions as subscriptions"),
    "&&": ("&& is not supported", "write AND"),
    "->": (
        "-> is not expected here",
        "it stands in exists(items, x -> x.price < 10); a field of an object is reached by a dot, as in item.price",
    ),
    ".": ("a dot is not expected here", "a path is written item.price, a number 0.5"),
}

_RESERVED_PROBLEMS = {
    "SELECT": ("queries are not supported", "write only the condition that would stand after WHERE"),
    "WHERE": ("a condition is expected, without WHERE", "leave out the word WHERE"),
    "CASE": ("CASE is not expected here", "write CASE WHEN price < 10 THEN 'low' ELSE 'high' END in place of a value"),
    "EXISTS": ("EXISTS is a condition of its own", "leave out what stands before it"),
    "FORALL": ("FORALL is a condition of its own", "leave out what stands before it"),
    "INTERVAL": (
        "an interval is not expected here",
        "an interval is added to a time, or compared with the difference of two",
    ),
    "ILIKE": ("ILIKE is not expected here", "write attribute ILIKE 'pattern'"),
    "XOR": ("XOR is not supported", "write (a AND NOT b) OR (b AND NOT a)"),
    **dict.fromkeys(["CURRENT_DATE", "CURRENT_TIMESTAMP"], ("the present time is not expected here", _PRESENT)),
    "DIV": ("DIV is not expected here", "write a DIV b"),
}


NOT_FINITE = {  # names, in upper case, of attributes that were hardly meant
    "NAN": "CAST('NaN' AS DOUBLE)",
    **dict.fromkeys(["INF", "INFINITY"], "CAST('Infinity' AS DOUBLE) or CAST('-Infinity' AS DOUBLE)"),
}


def as_constant(*attributes: str) -> str:
    """How to write as a constant what was read as an attribute."""
    for name in attributes:
        if name.upper() in NOT_FINITE:
            return f"the number is written {NOT_FINITE[name.upper()]}"
    return "a string needs quotes, as in 'red'"


_INFIX = ("ILIKE", "XOR", "DIV")


def refuse_function(name: Token) -> Refused:
    advice = _FUNCTION_ADVICE.get(name.word)
    if advice is None:
        known = bring("dibs.language.functions").FUNCTIONS
        near = difflib.get_close_matches(name.word, filter(str.isidentifier, known), n=1, cutoff=0.8)
        advice = f"did you mean {near[0]}?" if near else "docs/language.md lists the functions that there are"
    return Refused(f"the function {show_token(name)} is not supported", advice, name.start, name.end)


def refuse_word(token: Token) -> Refused:
    """A word of SQL that the language does not have (or has elsewhere) stands for a value or a condition."""
    default = (f"{token.value} is not supported", _CONSTANT)
    message, advice = _RESERVED_PROBLEMS.get(token.word, default)
    if token.word not in _INFIX:
        advice += f"; if it is the name of an attribute, write {quote_name(token.value)}"
    return Refused(message, advice, token.start, token.end)


def refuse_sign(token: Token) -> Refused | None:
    """None when nothing special can be said about the sign."""
    if token.value not in _SIGN_PROBLEMS:
        return None
    message, advice = _SIGN_PROBLEMS[token.value]
    return Refused(message, advice, token.start, token.end)


def refuse_unexpected(token: Token, expected: str, advice: str = "") -> Refused:
    """The token stands where something else is expected."""
    found = "the end" if token.kind == "end" else show_token(token)
    return Refused(f"{expected} is expected, not {found}", advice, token.start, token.end)
