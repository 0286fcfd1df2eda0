"""Reading the calls within a value: functions with their special forms, CASE, CAST, and tests such as IN.

A call is one of

    function ( value, ... )
    CAST ( value AS type ) | TRY_CAST ( value AS type ) | type ( value )
    CASE [value] WHEN value THEN value ... [ELSE value] END
    TRIM ( [BOTH | LEADING | TRAILING] [value] FROM value ) | POSITION ( value IN value )
    SUBSTRING ( value FROM value [FOR value] ) | EXTRACT ( unit FROM value )
    TIMESTAMPDIFF ( unit, value, value ) | TIMESTAMPADD ( unit, value, value )
    NOW ( ) | CURRENT_TIMESTAMP [( )] | CURRENT_DATE [( )]
    (EXISTS | FORALL) ( value, name -> logic ) | ANY ( * )

and a test

    value [NOT] IN ( value, ... ) | value [NOT] BETWEEN value AND value
    value IS [NOT] (NULL | TRUE | FALSE | UNKNOWN) | value IS [NOT] DISTINCT FROM value
    value [NOT] (LIKE | ILIKE | RLIKE) value [ESCAPE 'c']
    value [NOT] (LIKE | ILIKE) (ANY | SOME | ALL) ( value, ... )
"""

from __future__ import annotations

from dibs.language.expression import Kind, Literal
from dibs.language.literals import TIME_WORDS
from dibs.language.printer import EVERY, HAS_KEY
from dibs.language.problems import Problems, Refused, refuse_function
from dibs.language.regex import LikeError, like_regex, refusal
from dibs.language.scalars import Field, Lambda, Scalar, Value
from dibs.language.scanner import scan
from dibs.language.tokens import Token, show_token
from dibs.language.values import (
    ARITHMETIC,
    MAX_SIZE,
    OR,
    PRESENT_WORDS,
    ValueReader,
    functions,
    kinds_of,
    may_be_true,
    text_value,
)
from dibs.language.values import QUANTIFIERS as _QUANTIFIERS

QUANTIFIERS = ("ANY", "SOME", "ALL")
_TYPES = "the types are BOOLEAN, BIGINT, INT, DOUBLE, FLOAT, STRING, DATE and TIMESTAMP"
_CAST_FORM = "write CAST(value AS type), as in CAST(code AS STRING); " + _TYPES
_CASE_FORM = "write CASE WHEN price < 10 THEN 'low' ELSE 'high' END"
# What may stand in place of the comma behind an argument.
_SEPARATORS = {
    ("TRIM", 1): "FROM",
    ("POSITION", 1): "IN",
    **{(word, 1): "FROM" for word in ("SUBSTRING", "SUBSTR")},
    **{(word, 2): "FOR" for word in ("SUBSTRING", "SUBSTR")},
}
_TRIMS = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}
# Functions that take a unit of time in front, and what they are then.
_WITH_UNITS = {
    **dict.fromkeys(["TIMESTAMPDIFF", "DATEDIFF", "DATE_DIFF"], "TIMESTAMPDIFF"),
    **dict.fromkeys(["TIMESTAMPADD", "DATEADD", "DATE_ADD"], "TIMESTAMPADD"),
}


def read_scalar(text: str) -> Scalar:
    """The value of a canonical text."""
    problems = Problems(text)
    return CallReader(scan(text, problems), problems).value(OR, 0)


class CallReader(ValueReader):
    """Values with calls."""

    # -- functions ---------------------------------------------------------------------------------------------------

    def function(self, depth: int) -> Scalar:
        name = self.next
        if name.word in ("CAST", "TRY_CAST"):
            return self.cast_call(depth)
        if name.word in _QUANTIFIERS:
            return self.quantified(depth)
        if name.word == "ANY" and self.tokens[self.at + 2].value == "*":
            self.move_to(self.at + 3)
            self.take(")", ")", "write ANY(*) for all strings of the event")
            return Field(EVERY)
        known = functions().FUNCTIONS.get(name.word)
        is_type = name.word in TIME_WORDS or name.word in functions().casts.TYPES
        if known is None and not is_type:
            raise refuse_function(name)
        self.advance()
        self.advance()
        arguments, called = self.arguments(name, depth)
        if called in PRESENT_WORDS:
            self.check_count(functions().FUNCTIONS[called], len(arguments), name)
            return self.present(called, name)
        if known is None:  # DATE(x) and the like
            if len(arguments) != 1:
                message = f"{show_token(name)} takes 1 argument, not {len(arguments)}"
                raise Refused(message, _CAST_FORM, name.start, name.end)
            return self.cast_value(arguments[0], name)
        if called in ("LIKE", "ILIKE", "RLIKE", "REGEXP_LIKE", "REGEXP"):
            return self.pattern_call(called, arguments, name)
        if called in ("DATE_PART", "DATEPART", "EXTRACT"):
            return self.part_of_time(arguments, name)
        if called in ("TIMESTAMPDIFF", "TIMESTAMPADD"):
            self.check_unit(arguments, name)
        if called == "IS_PRESENT":
            arguments = [self.as_present(argument, name) for argument in arguments]
        if called in _CHECKED and len(arguments) > 1:
            self.check_count(functions().FUNCTIONS[called], len(arguments), name)
            arguments = _CHECKED[called](self, arguments, name)
        return self.make_call(called, arguments, name)

    def texts_of_constants(self, arguments: list[Scalar], place: Token) -> list[Scalar]:
        """Constants of SAME_TEXT behind its first argument, as strings."""
        return arguments[:1] + [
            self.make_call("CAST", [each, text_value("STRING")], place)
            if isinstance(each, Value) and each.literal is not None and each.literal.kind != Kind.STRING
            else each
            for each in arguments[1:]
        ]

    def checked_networks(self, arguments: list[Scalar], place: Token) -> list[Scalar]:
        """Constant networks of IP_IN: a bad one is told."""
        networks = functions().networks
        try:
            for text in map(constant_text, arguments[1:]):
                if text is not None:
                    networks.span_of(text)
        except networks.BadNetwork as bad:
            raise Refused(bad.message, bad.advice, place.start, self.tokens[self.at - 1].end) from None
        return arguments

    def checked_regex(self, arguments: list[Scalar], place: Token) -> list[Scalar]:
        """A constant regular expression in the second place: a bad one is told."""
        self.check_pattern(constant_text(arguments[1]), place)
        return arguments

    def checked_format(self, arguments: list[Scalar], place: Token) -> list[Scalar]:
        """A constant format of times in the second place: a bad one is told."""
        text, formats = constant_text(arguments[1]), functions().time_formats
        try:
            if text is not None:
                formats.parts_of(text, place.word != "DATE_FORMAT")
        except formats.BadFormat as bad:
            raise Refused(bad.message, bad.advice, place.start, self.tokens[self.at - 1].end) from None
        return arguments

    def check_pattern(self, pattern: str | None, place: Token, escape: str | None = None) -> None:
        """Of a regular expression or, with an escape character, of LIKE."""
        try:
            regex = pattern if pattern is None or escape is None else like_regex(pattern, escape)
            reason = None if regex is None else refusal(regex)
        except LikeError as error:
            reason = str(error)
        if reason is not None:
            raise Refused(f"the pattern cannot be used: {reason}", "patterns follow RE2", place.start, place.end)

    def as_present(self, argument: Scalar, place: Token) -> Scalar:
        """What tells whether the event has an attribute."""
        if not isinstance(argument, Field) or argument.name == EVERY:
            message = f"{show_token(place)} takes an attribute"
            raise Refused(message, "write is_present(price)", place.start, place.end)
        return Field(HAS_KEY + argument.name)

    def quantified(self, depth: int) -> Scalar:
        """EXISTS or FORALL of an array: the variable is an element within the condition."""
        place, form = self.advance(), "write exists(items, x -> x.price < 10)"
        self.advance()
        array = self.value(OR, depth + 2)
        self.take(",", ",", form)
        variable = self.take("name", "a name", form)
        if "." in variable.value:
            raise Refused("the element has a name without dots", form, variable.start, variable.end)
        if self.next.value != "->":
            raise self.refuse_unexpected("->", form)
        self.advance()
        self.variables.append(variable.value)
        try:
            body = self.value(OR, depth + 2)
        finally:
            self.variables.pop()
        self.check_condition(body, place, form)
        self.take(")", ")", form)
        return self.make_call(place.word, [array, Lambda(len(self.variables) + 1, body)], place)

    def arguments(self, name: Token, depth: int) -> tuple[list[Scalar], str]:
        """Up to the parenthesis that closes them; also the function that they are of."""
        word, first = name.word, self.next
        found: list[Scalar] = []
        if word == "EXTRACT":
            unit = self.take("name", "a part of a time", "write EXTRACT(HOUR FROM at)")
            self.take_named("FROM", "write EXTRACT(HOUR FROM at)")
            found.append(text_value(unit.word))
        elif word == "TRIM" and self.is_keyword(*_TRIMS):
            return self.trim_arguments(depth)
        while self.next.kind != ")" or found:
            found.append(self.value(ARITHMETIC if word == "POSITION" else OR, depth + 2))
            if self.next.word and self.next.word == _SEPARATORS.get((word, len(found))):
                self.advance()
                continue
            found[-1] = self.rest_of_value(found[-1], OR, depth + 2)
            if self.next.kind != ",":
                break
            self.advance()
        self.take(")", ", or )", f"the arguments of {name.value} are separated by commas, and ) ends them")
        if word in _WITH_UNITS and len(found) == 3 and first.kind == "name" and first.word:
            found[0] = text_value(first.word)
            return found, _WITH_UNITS[word]
        return found, word

    def trim_arguments(self, depth: int) -> tuple[list[Scalar], str]:
        """TRIM(BOTH 'x' FROM name), TRIM(LEADING FROM name)."""
        form = "write TRIM(BOTH 'x' FROM name)"
        function = _TRIMS[self.advance().word]
        found = [] if self.is_keyword("FROM") else [self.value(OR, depth + 2)]
        self.take_named("FROM", form)
        found.append(self.value(OR, depth + 2))
        self.take(")", ")", form)
        return found, function

    def is_keyword(self, *words: str) -> bool:
        """Whether one of these words comes next, and a value behind it: else it is an attribute."""
        return self.next.word in words and self.tokens.kind(self.at + 1) in ("name", "string", "(")

    def part_of_time(self, arguments: list[Scalar], place: Token) -> Scalar:
        """EXTRACT and DATE_PART: where a function gives the same part, that one."""
        parts = functions().times.PARTS
        form = "the part is a constant: YEAR, QUARTER, MONTH, WEEK, DAY, DAYOFWEEK, DOY, HOUR, MINUTE or SECOND"
        self.check_count(functions().FUNCTIONS["DATE_PART"], len(arguments), place)
        part = constant_text(arguments[0])
        if part is None or part.upper() not in parts:
            message = f"{show_token(place)} takes a part of a time first" + (f", not {part}" if part else "")
            raise Refused(message, form, place.start, place.end)
        name = parts[part.upper()]
        if name == "SECOND":  # with its fraction here
            return self.make_call("DATE_PART", [text_value(name), arguments[1]], place)
        return self.make_call(name, arguments[1:], place)

    def check_unit(self, arguments: list[Scalar], place: Token) -> None:
        unit = constant_text(arguments[0]) if arguments else None
        if len(arguments) == 3 and (unit is None or unit.upper() not in functions().times.UNITS):
            advice = f"write {place.value}(HOUR, ...), with YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE or SECOND"
            raise Refused(f"{show_token(place)} takes a unit of time first", advice, place.start, place.end)
        if unit is not None:
            arguments[0] = text_value(unit.upper())

    def take_named(self, word: str, form: str) -> None:
        if self.next.word != word:
            raise self.refuse_unexpected(word, form)
        self.advance()

    # -- CAST and CASE -----------------------------------------------------------------------------------------------

    def cast_call(self, depth: int) -> Scalar:
        name = self.advance()
        self.take("(", "(", _CAST_FORM)
        inner = self.value(OR, depth + 2)
        if self.next.word != "AS":
            raise self.refuse_unexpected("AS", _CAST_FORM)
        self.advance()
        to = self.advance()
        result = self.cast_value(inner, to, may_fail=name.word == "TRY_CAST")
        self.take(")", ")", _CAST_FORM)
        return result

    def cast_value(self, value: Scalar, to: Token, may_fail: bool = False) -> Scalar:
        types: dict[str, str] = functions().casts.TYPES
        if to.word not in types:
            message = f"CAST to {show_token(to) or 'nothing'} is not supported"
            raise Refused(message, _TYPES, to.start, to.end)
        made = self.make_call("CAST", [value, text_value(types[to.word])], to, may_fail=True)
        if isinstance(made, Value) and made.literal is None and value != made and not may_fail:
            advice = "write another constant, or TRY_CAST if NULL is meant"
            self.problems.add(f"this constant cannot be cast to {show_token(to)}", advice, to.start, to.end)
        return made

    def case(self, depth: int) -> Scalar:
        """CASE WHEN condition THEN value ..., or CASE value WHEN value THEN value ..."""
        place = self.advance()
        subject = None if self.next.word == "WHEN" else self.value(OR, depth + 2)
        arguments: list[Scalar] = []
        size = 0
        while self.next.word == "WHEN" and size <= MAX_SIZE:
            self.advance()
            condition = self.value(OR, depth + 2)
            if subject is not None:
                condition = self.make_call("=", [subject, condition], place)
            self.take_named("THEN", _CASE_FORM)
            arguments += [condition, self.value(OR, depth + 2)]
            size += self.measure(condition)[0]
        if not arguments:
            raise self.refuse_unexpected("WHEN", _CASE_FORM)
        if size <= MAX_SIZE:  # else it is refused anyway
            if self.next.word == "ELSE":
                self.advance()
                arguments.append(self.value(OR, depth + 2))
            self.take_named("END", _CASE_FORM)
        for condition in arguments[: len(arguments) // 2 * 2 : 2]:
            self.check_condition(condition, place)
        return self.make_call("CASE", arguments, place)

    def check_condition(self, scalar: Scalar, place: Token, form: str = _CASE_FORM) -> None:
        given = kinds_of(scalar)
        if given and not may_be_true(scalar):
            message = f"{show_token(place)} takes a condition here, not {functions().describe_kinds(given)}"
            self.problems.add(message, form, place.start, place.end)

    # -- tests within values -----------------------------------------------------------------------------------------

    def test(self, left: Scalar, depth: int) -> Scalar:
        """IS [NOT] NULL, IS [NOT] DISTINCT FROM, [NOT] IN, BETWEEN, LIKE, ILIKE, RLIKE behind a value."""
        place = self.advance()
        negated = False
        if place.kind == "IS":
            if self.next.kind == "NOT":
                self.advance()
                negated = True
            if self.next.word == "DISTINCT":
                self.advance()
                self.take_named("FROM", "write a IS DISTINCT FROM b")
                same = self.make_call("<=>", [left, self.value(ARITHMETIC, depth + 1)], place)
                return same if negated else self.make_call("NOT", [same], place)
            if self.next.word in ("TRUE", "FALSE", "UNKNOWN"):
                found = self.is_true(left, place)
                return self.make_call("NOT", [found], place) if negated else found
            advice = "within a value IS is used in IS [NOT] NULL, TRUE, FALSE, UNKNOWN and DISTINCT FROM"
            self.take("NULL", "NULL", advice)
            return self.make_call("ISNOTNULL" if negated else "ISNULL", [left], place)
        if place.kind == "NOT":
            negated, place = True, self.advance()
        kind = "ILIKE" if place.word == "ILIKE" else place.kind
        if kind == "IN":
            self.take("(", "a list in parentheses", "write value IN (1, 2, 3)")
            items = self.arguments(place, depth)[0]
            if not items:
                raise Refused("IN needs at least one value", "write value IN (1, 2, 3)", place.start, place.end)
            found = self.make_call("IN", [left, *items], place)
        elif kind == "BETWEEN":
            low = self.value(ARITHMETIC, depth + 1)
            self.take("AND", "AND", "write value BETWEEN 1 AND 5")
            high = self.value(ARITHMETIC, depth + 1)
            found = self.make_call("BETWEEN", [left, low, high], place)
        elif kind in ("LIKE", "ILIKE", "RLIKE"):
            return self.pattern_test(kind, left, negated, place, depth)
        else:
            self.move_to(self.at - 1)
            raise self.refuse_unexpected("IN, BETWEEN, LIKE or RLIKE", "NOT stands before a condition")
        return self.make_call("NOT", [found], place) if negated else found

    def is_true(self, left: Scalar, place: Token) -> Scalar:
        """IS TRUE, FALSE or UNKNOWN."""
        word = self.advance().word
        self.check_condition(left, place)
        if word == "UNKNOWN":
            return self.make_call("ISNULL", [left], place)
        return self.make_call("<=>", [left, Value(Literal(Kind.BOOLEAN, word == "TRUE"))], place)

    def pattern_test(self, kind: str, left: Scalar, negated: bool, place: Token, depth: int) -> Scalar:
        if self.next.word in QUANTIFIERS and self.tokens.kind(self.at + 1) == "(" and kind != "RLIKE":
            joint = "AND" if self.advance().word == "ALL" else "OR"
            self.advance()
            patterns = self.arguments(place, depth)[0]
            if not patterns:
                raise self.no_patterns(place)
            each = [self.pattern_call(kind, [left, pattern], place) for pattern in patterns]
            each = [self.make_call("NOT", [one], place) if negated else one for one in each]
            return each[0] if len(each) == 1 else self.make_call(joint, each, place)
        arguments = [left, self.value(ARITHMETIC, depth + 1)]
        if kind != "RLIKE" and self.next.kind == "ESCAPE":
            self.advance()
            arguments.append(self.value(ARITHMETIC, depth + 1))
        found = self.pattern_call(kind, arguments, place)
        return self.make_call("NOT", [found], place) if negated else found

    def no_patterns(self, place: Token) -> Refused:
        return Refused("a pattern is expected", "write LIKE ANY ('a%', 'b%')", place.start, place.end)

    def pattern_call(self, kind: str, arguments: list[Scalar], place: Token) -> Scalar:
        """LIKE, ILIKE or RLIKE of a text, a pattern, and an escape character perhaps; the pattern is checked."""
        if kind in ("LIKE", "ILIKE"):
            self.check_count(functions().FUNCTIONS[kind], len(arguments), place)
            if kind == "ILIKE":
                arguments[:2] = [self.make_call("LOWER", [each], place) for each in arguments[:2]]
            arguments = [*arguments, text_value("\\")][:3]
            if len(constant_text(arguments[2]) or "") != 1:
                advice = "write one character, as in LIKE '10!%' ESCAPE '!'"
                raise Refused("ESCAPE takes one character", advice, place.start, place.end)
        made = self.make_call("LIKE" if kind == "ILIKE" else kind, arguments, place)
        escape = constant_text(arguments[2]) if kind in ("LIKE", "ILIKE") else None
        self.check_pattern(constant_text(arguments[1]), place, escape)
        return made


def constant_text(scalar: Scalar) -> str | None:
    """The string that a constant is."""
    if not isinstance(scalar, Value) or scalar.literal is None or not isinstance(scalar.literal.value, str):
        return None
    return scalar.literal.value


# Functions of which constants behind the first argument are looked at.
_CHECKED = {
    "SAME_TEXT": CallReader.texts_of_constants,
    "IP_IN": CallReader.checked_networks,
    **dict.fromkeys(["SPLIT", "REGEXP_EXTRACT", "REGEXP_REPLACE"], CallReader.checked_regex),
    **dict.fromkeys(["TO_DATE", "TO_TIMESTAMP", "DATE_FORMAT"], CallReader.checked_format),
    **dict.fromkeys(["UNIX_TIMESTAMP", "TO_UNIX_TIMESTAMP"], CallReader.checked_format),
}
