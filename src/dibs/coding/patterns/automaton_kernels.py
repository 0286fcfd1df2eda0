"""Regular expressions as automata of at most 64 positions, which kernels run over strings of ASCII.

A position is a character of the expression (Glushkov). A row of `automata` holds, as sets of positions in a word each:
which may follow a position (FOLLOW), which a symbol satisfies (SYMBOLS), which may begin a match and which may end one.
The state is the set of positions that the last symbol satisfied. A symbol is a byte of ASCII, or BEGIN or END, which
stand before and behind every string: `^` and `$` are positions that they satisfy.

Semantics are RE2's, and RE2 decides wherever there is doubt. Not read: counted groups, word boundaries, (?m), Unicode
classes, names of classes, letters beyond ASCII where case is ignored, and what needs more positions. Not run: a string
with a byte beyond ASCII, unless it is decided before that byte.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.coding.patterns.groups import BEGIN, END, FIRST, FOLLOW, IS_NULLABLE, LAST, POSITIONS, SYMBOLS, WIDTH
from dibs.coding.patterns.like_kernels import NO, TOO_MUCH, YES
from dibs.coding.patterns.needs_kernels import DEEPEST
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import lowest_bit

# The columns of an open group: what its finished branches are together, what the current one is so far, its flags
_BRANCHES_FIRST, _BRANCHES_LAST, _BRANCHES_NULLABLE, _OWN_FIRST, _OWN_LAST, _OWN_NULLABLE, _FLAGS = range(7)
FRAME = 7
_FOLD, _DOT_ALL = 1, 2  # flags

_GIVEN_UP = np.int64(-1)
_ENDLESS = np.int64(1) << 30
_NONE, _ONE = np.uint64(0), np.uint64(1)
_ALL = ~np.uint64(0)
_BEYOND = np.int64(128)  # a character that is not ASCII
_CLASS = np.int64(256)  # in place of a character: a class of them


def _words(characters: bytes) -> tuple[np.uint64, np.uint64]:
    """A set of ASCII characters as two words."""
    low, high = (sum(1 << (c & 63) for c in set(characters) if c >> 6 == half) for half in (0, 1))
    return np.uint64(low), np.uint64(high)


_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_DIGIT_LOW, _ = _words(b"0123456789")
_WORD_LOW, _WORD_HIGH = _words(_LETTERS + _LETTERS.upper() + b"0123456789_")
_SPACE_LOW, _ = _words(b"\t\n\f\r ")
_NEWLINE_LOW, _ = _words(b"\n")
_, _UPPER_HIGH = _words(_LETTERS.upper())
_, _LOWER_HIGH = _words(_LETTERS)
_CASE = np.uint64(32)  # between the bits of a letter in its two cases
_CONTROLS = np.zeros(256, np.uint8)
for _letter, _code in zip(b"tnrfva", b"\t\n\r\f\v\a"):
    _CONTROLS[_letter] = _code
_HEX = np.full(256, 255, np.uint8)
for _digit in b"0123456789abcdefABCDEF":
    _HEX[_digit] = int(chr(_digit), 16)


def read_automata(
    starts: NDArray[np.int64], data: NDArray[np.uint8], wanted: NDArray[np.int64], most: int
) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """The row of each pattern's automaton, or -1; the automata. wanted: patterns that are tried, until there are so
    many."""
    row = np.full(len(starts) - 1, -1, np.int32)
    automata = np.zeros((min(most, len(wanted)), WIDTH), np.uint64)  # memory that is not touched costs nothing
    made = _read_automata(starts, data, wanted, row, automata, np.empty((DEEPEST + 1, FRAME), np.uint64))
    return row, automata[:made].copy()


@kernel
def _read_automata(starts, data, wanted, row, automata, frames):
    """Fills row and automata, and returns how many there are."""
    made = 0
    for p in wanted:
        if made == len(automata):
            break
        if _read(data, starts[p], starts[p + 1], automata[made], frames):
            row[p] = made
            made += 1
        else:
            automata[made, :] = _NONE
    return made


# --- running ---


@phase(inline=False)
def accepts(automata, row, data, start, end):
    """YES, NO or TOO_MUCH, for the string data[start:end]."""
    first, last = automata[row, FIRST], automata[row, LAST]
    if automata[row, IS_NULLABLE] != _NONE:
        return YES
    state = first & automata[row, SYMBOLS + BEGIN]
    if state & last != _NONE:
        return YES
    from_the_start = first & ~automata[row, SYMBOLS + BEGIN] == _NONE
    for i in range(start, end + 1):
        symbol = np.int64(data[i]) if i < end else np.int64(END)
        if symbol >= 128 and i < end:
            return TOO_MUCH
        following = first
        while state != _NONE:
            following |= automata[row, FOLLOW + lowest_bit(state)]
            state &= state - _ONE
        state = following & automata[row, SYMBOLS + symbol]
        if state & last != _NONE:
            return YES
        if from_the_start and state == _NONE:
            return NO
    return NO


# --- reading ---


@phase(inline=False)
def _read(data, at, stop, automaton, frames):
    """Whether the expression data[at:stop] is an automaton, which is written over a row of zeros."""
    depth, positions = 0, np.int64(0)
    _open(frames, 0, 0)
    while at < stop:
        byte = data[at]
        if byte == 124:  # |
            _end_branch(frames, depth)
            at += 1
            continue
        if byte == 40:  # (
            at, flags, opens = _group_start(data, at, stop, frames[depth, _FLAGS])
            if at < 0 or depth == DEEPEST:
                return False
            if opens:
                depth += 1
                _open(frames, depth, flags)
            else:
                frames[depth, _FLAGS] = flags
            continue
        if byte == 41:  # )
            least, most, at = _read_times(data, at + 1, stop)
            if depth == 0 or least < 0 or least > 1 or (most != 1 and most != _ENDLESS):
                return False
            _end_branch(frames, depth)
            first, last = frames[depth, _BRANCHES_FIRST], frames[depth, _BRANCHES_LAST]
            nullable = frames[depth, _BRANCHES_NULLABLE] != _NONE or least == 0
            depth -= 1
            if most == _ENDLESS:
                _let_follow(automaton, last, first)
            _append(automaton, frames, depth, first, last, nullable)
            continue
        low, high, anchor, at = _read_atom(data, at, stop, frames[depth, _FLAGS])
        if at < 0:
            return False
        least, most, at = _read_times(data, at, stop)
        copies = max(least, np.int64(1)) if most == _ENDLESS else most
        if least < 0 or positions + copies > POSITIONS:
            return False
        for i in range(copies):
            own = _ONE << np.uint64(positions)
            positions += 1
            _satisfy(automaton, own, low, high, anchor)
            if most == _ENDLESS and i == copies - 1:
                _let_follow(automaton, own, own)
            _append(automaton, frames, depth, own, own, i >= least)
    if depth > 0:
        return False
    _end_branch(frames, 0)
    automaton[FIRST], automaton[LAST] = frames[0, _BRANCHES_FIRST], frames[0, _BRANCHES_LAST]
    automaton[IS_NULLABLE] = frames[0, _BRANCHES_NULLABLE]
    return _anchors_are_apart(automaton)


@phase(inline=False)
def _anchors_are_apart(automaton):
    """BEGIN and END come once: two anchors at one place, ^^ or $$ or $^, would need them twice."""
    begins, ends = automaton[SYMBOLS + BEGIN], automaton[SYMBOLS + END]
    left = begins | ends
    while left != _NONE:
        p = lowest_bit(left)
        wrong = begins if begins >> np.uint64(p) & _ONE else begins | ends
        if automaton[FOLLOW + p] & wrong != _NONE:
            return False
        left &= left - _ONE
    return True


@phase(inline=False)
def _open(frames, depth, flags):
    frames[depth, _BRANCHES_FIRST], frames[depth, _BRANCHES_LAST], frames[depth, _BRANCHES_NULLABLE] = 0, 0, 0
    frames[depth, _OWN_FIRST], frames[depth, _OWN_LAST], frames[depth, _OWN_NULLABLE] = 0, 0, 1
    frames[depth, _FLAGS] = flags


@phase(inline=False)
def _end_branch(frames, depth):
    """The branch joins those before it, and another begins."""
    frames[depth, _BRANCHES_FIRST] |= frames[depth, _OWN_FIRST]
    frames[depth, _BRANCHES_LAST] |= frames[depth, _OWN_LAST]
    frames[depth, _BRANCHES_NULLABLE] |= frames[depth, _OWN_NULLABLE]
    frames[depth, _OWN_FIRST], frames[depth, _OWN_LAST], frames[depth, _OWN_NULLABLE] = 0, 0, 1


@phase(inline=False)
def _append(automaton, frames, depth, first, last, nullable):
    """A part behind what the branch has so far."""
    _let_follow(automaton, frames[depth, _OWN_LAST], first)
    if frames[depth, _OWN_NULLABLE] != _NONE:
        frames[depth, _OWN_FIRST] |= first
    frames[depth, _OWN_LAST] = last | frames[depth, _OWN_LAST] if nullable else last
    if not nullable:
        frames[depth, _OWN_NULLABLE] = 0


@phase(inline=False)
def _let_follow(automaton, before, behind):
    while before != _NONE:
        automaton[FOLLOW + lowest_bit(before)] |= behind
        before &= before - _ONE


@phase(inline=False)
def _satisfy(automaton, position, low, high, anchor):
    """These characters, or the anchor if there is one, satisfy the position."""
    if anchor > 0:
        automaton[SYMBOLS + anchor] |= position
        return
    while low != _NONE:
        automaton[SYMBOLS + lowest_bit(low)] |= position
        low &= low - _ONE
    while high != _NONE:
        automaton[SYMBOLS + 64 + lowest_bit(high)] |= position
        high &= high - _ONE


@phase(inline=False)
def _group_start(data, at, stop, flags):
    """(what is behind the start of the group, the flags then, whether something is to be closed). -1: something else
    begins here."""
    if at + 1 >= stop or data[at + 1] != 63:  # (
        return at + 1, flags, True
    at += 2
    if at < stop and data[at] == 80:  # (?P<
        at += 1
    if at < stop and data[at] == 60:  # (?<name>
        while at < stop and data[at] != 62:
            at += 1
        return (at + 1 if at < stop else _GIVEN_UP), flags, True
    on = True
    while at < stop:
        byte = data[at]
        at += 1
        flag = np.uint64(_FOLD if byte == 105 else _DOT_ALL if byte == 115 else 0)  # i s
        if byte == 58:  # :
            return at, flags, True
        if byte == 41:
            return at, flags, False
        if byte == 45:  # -
            on = False
        elif flag != _NONE:
            flags = flags | flag if on else flags & ~flag
        elif byte != 85:  # U: as little as possible, which finds the same
            break
    return _GIVEN_UP, flags, False


@phase(inline=False)
def _read_atom(data, at, stop, flags):
    """(characters as two words, an anchor or 0, what is behind it or _GIVEN_UP)."""
    byte = data[at]
    if byte == 94:  # ^
        return _NONE, _NONE, np.int64(BEGIN), at + 1
    if byte == 36:  # $
        return _NONE, _NONE, np.int64(END), at + 1
    if byte == 46:  # .
        return (_ALL if flags & np.uint64(_DOT_ALL) else _ALL & ~_NEWLINE_LOW), _ALL, np.int64(0), at + 1
    if byte == 92 and at + 1 < stop and (data[at + 1] == 65 or data[at + 1] == 122):  # \A \z
        return _NONE, _NONE, np.int64(BEGIN if data[at + 1] == 65 else END), at + 2
    if byte == 42 or byte == 43 or byte == 63 or byte == 123:  # * + ? {: nothing that it repeats
        return _NONE, _NONE, np.int64(0), _GIVEN_UP
    if byte == 91:  # [
        low, high, at = _read_class(data, at + 1, stop, flags)
        return low, high, np.int64(0), at
    character, low, high, at = _read_character(data, at, stop)
    if character == _BEYOND and flags & np.uint64(_FOLD):
        at = _GIVEN_UP
    if character < _BEYOND:
        low, high = _fold(*_range(character, character), flags)
    return low, high, np.int64(0), at


@phase(inline=False)
def _read_class(data, at, stop, flags):
    """(characters as two words, what is behind the bracket or _GIVEN_UP). at: behind the first bracket."""
    low, high = _NONE, _NONE
    negated = at < stop and data[at] == 94
    at += np.int64(negated)
    begin = at
    while at < stop and (data[at] != 93 or at == begin):
        if data[at] == 91 and at + 1 < stop and data[at + 1] == 58:  # [:
            return low, high, _GIVEN_UP
        character, class_low, class_high, at = _read_character(data, at, stop)
        if at < 0:
            return low, high, _GIVEN_UP
        last = character
        if at + 1 < stop and data[at] == 45 and data[at + 1] != 93:  # -
            last, _, _, at = _read_character(data, at + 1, stop)
            if at < 0 or character == _CLASS or last == _CLASS:
                return low, high, _GIVEN_UP
        if (character == _BEYOND or last == _BEYOND) and flags & np.uint64(_FOLD):
            return low, high, _GIVEN_UP
        if character != _CLASS:
            class_low, class_high = _range(character, last)
        low, high = low | class_low, high | class_high
    if at >= stop:
        return low, high, _GIVEN_UP
    low, high = _fold(low, high, flags)
    if negated:
        low, high = ~low, ~high
    return low, high, at + 1


@phase(inline=False)
def _read_character(data, at, stop):
    """(the character, _BEYOND, or _CLASS and its characters as two words; what is behind or _GIVEN_UP)."""
    byte = np.int64(data[at])
    if byte >= 128:
        at += 1
        while at < stop and data[at] & 0xC0 == 0x80:
            at += 1
        return _BEYOND, _NONE, _NONE, at
    if byte != 92:
        return byte, _NONE, _NONE, at + 1
    if at + 1 >= stop:
        return byte, _NONE, _NONE, _GIVEN_UP
    byte = np.int64(data[at + 1])
    lower = byte | 32
    if lower == 100 or lower == 119 or lower == 115:  # \d \w \s, and what is none of them
        low = _DIGIT_LOW if lower == 100 else _WORD_LOW if lower == 119 else _SPACE_LOW
        high = _WORD_HIGH if lower == 119 else _NONE
        return _CLASS, (low if byte == lower else ~low), (high if byte == lower else ~high), at + 2
    if _CONTROLS[byte] != 0:
        return np.int64(_CONTROLS[byte]), _NONE, _NONE, at + 2
    if byte == 120 and at + 3 < stop and _HEX[data[at + 2]] < 8 and _HEX[data[at + 3]] < 16:  # \x41
        return np.int64(_HEX[data[at + 2]]) * 16 + np.int64(_HEX[data[at + 3]]), _NONE, _NONE, at + 4
    is_alphanumeric = 48 <= byte <= 57 or 97 <= lower <= 122
    return byte, _NONE, _NONE, (at + 2 if byte < 128 and not is_alphanumeric else _GIVEN_UP)


@phase(inline=False)
def _range(first, last):
    """The ASCII characters from first to last, as two words."""
    low, high = _NONE, _NONE
    for c in range(first, min(last, np.int64(127)) + 1):
        if c < 64:
            low |= _ONE << np.uint64(c)
        else:
            high |= _ONE << np.uint64(c - 64)
    return low, high


@phase(inline=False)
def _fold(low, high, flags):
    if flags & np.uint64(_FOLD):
        high |= (high & _UPPER_HIGH) << _CASE | (high & _LOWER_HIGH) >> _CASE
    return low, high


@phase(inline=False)
def _read_times(data, at, stop):
    """(how often what stands before must occur, how often it may, what is behind). -1: there is doubt."""
    if at >= stop:
        return np.int64(1), np.int64(1), at
    byte = data[at]
    least, most = np.int64(1), np.int64(1)
    if byte == 42:  # *
        least, most, at = np.int64(0), _ENDLESS, at + 1
    elif byte == 43:  # +
        most, at = _ENDLESS, at + 1
    elif byte == 63:  # ?
        least, at = np.int64(0), at + 1
    elif byte == 123:
        least, most, at = _read_braces(data, at + 1, stop)
        if least < 0:
            return least, most, at
    else:
        return least, most, at
    if at < stop and data[at] == 63:  # as little as possible: the same matches
        at += 1
    if at < stop and (data[at] == 42 or data[at] == 43 or data[at] == 63 or data[at] == 123):
        return _GIVEN_UP, most, at
    return least, most, at


@phase(inline=False)
def _read_braces(data, at, stop):
    """The same for {n}, {n,} and {n,m}, behind the first brace."""
    least, at = _read_count(data, at, stop)
    most = least
    if at < stop and data[at] == 44:
        most, at = _read_count(data, at + 1, stop)
        if most < 0:
            most = _ENDLESS
    if least < 0 or most < least or at >= stop or data[at] != 125:
        return _GIVEN_UP, most, at
    return least, most, at + 1


@phase(inline=False)
def _read_count(data, at, stop):
    """(a number, or -1 where there is none; what is behind it)."""
    number, begin = np.int64(0), at
    while at < stop and 48 <= data[at] <= 57 and at < begin + 6:
        number = 10 * number + (np.int64(data[at]) - 48)
        at += 1
    return (number if at > begin else _GIVEN_UP), at
