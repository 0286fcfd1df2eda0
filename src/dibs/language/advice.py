"""What to tell people who write what the language does not have."""

from __future__ import annotations

import difflib

from dibs.language.problems import Refused
from dibs.language.tokens import Token, quote_name, show_token

FUNCTIONS = ("STARTSWITH", "ENDSWITH", "CONTAINS")

_COMPUTE = "only the attribute itself can be tested: put the computed value into the events as an attribute of its own"
_LISTED = "the functions are STARTSWITH, ENDSWITH and CONTAINS"
_CONSTANT = "work out the value and write it as a constant"
_CASE = "to ignore case, use RLIKE with (?i), as in name RLIKE '(?i)^phone$'"
_MEMBER = "an array has all its elements as values, so write attribute = value"
_EACH = (
    "write the tests one by one, joined by OR (for ANY, SOME) or AND (for ALL); "
    "of earlier documents, EXISTS d or FORALL d"
)
LAST_FORM = "write (SELECT MAX_BY(d.price, d.time) FROM history d WHERE d.sku = sku) for the price of the latest"
LAST_WORDS = ("LAST", "LAST_VALUE", "LATEST", "LAG", "FIRST", "MAX_BY")
_OF_DOCUMENTS = (
    "of earlier documents it is asked in a subquery, as in (SELECT MIN(d.price) FROM history d WHERE d.sku = sku)"
)

_FUNCTION_ADVICE = {
    **dict.fromkeys(["LOWER", "UPPER", "LCASE", "UCASE"], _CASE),
    **dict.fromkeys(["ARRAY_CONTAINS", "ARRAYS_OVERLAP", "ELEMENT_AT"], _MEMBER),
    **dict.fromkeys(["ANY", "ALL", "SOME"], _EACH),
    **dict.fromkeys(LAST_WORDS, LAST_FORM),
    **dict.fromkeys(["COUNT", "MIN", "MAX"], _OF_DOCUMENTS),
    **dict.fromkeys(["ISNULL", "ISNOTNULL"], "write attribute IS NULL or attribute IS NOT NULL"),
    **dict.fromkeys(["RLIKE", "REGEXP", "REGEXP_LIKE"], "write attribute RLIKE 'pattern'"),
    "LIKE": "write attribute LIKE 'pattern'",
    "ISNAN": "write attribute = CAST('NaN' AS DOUBLE)",
    **dict.fromkeys(["NOW", "CURDATE", "TO_DATE", "TO_TIMESTAMP", "MAKE_DATE", "DATE_ADD", "DATE_SUB"], _CONSTANT),
    **dict.fromkeys(["STARTS_WITH", "PREFIX"], "write STARTSWITH(attribute, 'text')"),
    **dict.fromkeys(["ENDS_WITH", "SUFFIX"], "write ENDSWITH(attribute, 'text')"),
    **dict.fromkeys(["INSTR", "LOCATE", "POSITION", "CHARINDEX"], "write CONTAINS(attribute, 'text')"),
}

_SIGN_PROBLEMS = {
    **dict.fromkeys("+-*/%", ("arithmetic is not supported", _CONSTANT + ", or put the result into the events")),
    **dict.fromkeys("&|^~", ("bit operations are not supported", _COMPUTE)),
    **dict.fromkeys(["[", "]"], ("brackets are not supported", _MEMBER + "; a field of an object is reached by a dot")),
    **dict.fromkeys(["{", "}"], ("braces are not supported", "fill in templates before the text is parsed")),
    **dict.fromkeys(
        ["?", ":", "@", "$", "#"],
        ("this sign is not supported", "fill in parameters before; a name that holds the sign needs backticks"),
    ),
    ";": ("one condition is expected, without ;", "leave out the ; and add other conditions as subscriptions"),
    "<=>": ("the operator <=> is not supported", "write attribute = value, or attribute IS NULL"),
    "||": ("joining strings is not supported", "write the whole string as a constant"),
    "&&": ("&& is not supported", "write AND"),
    "::": ("casts are not supported", "write the constant with the type that the events have"),
    "->": ("-> is not supported", "a field of an object is reached by a dot, as in item.price"),
    ".": ("a dot is not expected here", "a path is written item.price, a number 0.5"),
}

_RESERVED_PROBLEMS = {
    "SELECT": ("queries are not supported", "write only the condition that would stand after WHERE"),
    "WHERE": ("a condition is expected, without WHERE", "leave out the word WHERE"),
    "CASE": ("CASE is not supported", "write the cases as conditions joined by AND and OR"),
    "EXISTS": ("EXISTS is a condition of its own", "leave out what stands before it"),
    "FORALL": ("FORALL is a condition of its own", "leave out what stands before it"),
    "INTERVAL": (
        "an interval is not expected here",
        "write a DATE or TIMESTAMP constant; inside EXISTS (...) an interval is added to an attribute of the event",
    ),
    "ILIKE": ("ILIKE is not supported", _CASE),
    "XOR": ("XOR is not supported", "write (a AND NOT b) OR (b AND NOT a)"),
    "DIV": ("arithmetic is not supported", _CONSTANT),
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
        near = difflib.get_close_matches(name.word, FUNCTIONS, n=1, cutoff=0.75)
        advice = f"did you mean {near[0]}?" if near else f"{_LISTED}; {_COMPUTE}"
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
