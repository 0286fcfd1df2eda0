"""The texts that a match of a regular expression must contain, at least one of them.

One pass over the expression. A run of plain characters is such a text. Of a sequence the best of its parts is taken
(that whose worst text is the rarest), of an alternation all that its branches need, of what may be left out nothing.
What this reader does not know makes it give up: then nothing is needed.

How rare a text is, in bits: a longer one is rarer, but one that a share of all expressions has is expected in that
share of the strings, however long it is (`.php` of a set of rules about web servers). So a first reading counts the
runs of all expressions, in `Runs.counts` by hash, and a second one knows.

With (?i) a run holds ASCII letters in lower case, and strings are compared likewise. Two letters have relatives beyond
ASCII: where a run has an s or a k, the long s or the Kelvin sign in a string count as a match, too.

The sets of texts that are still in play lie behind each other in `found`: for each open group those of the branches
behind it, then the best of the branch so far. So a new candidate always stands at the end, and is moved down or
dropped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.hashing import hash_slice
from dibs.jit.kernel import phase

DEEPEST = 32  # groups within groups
MOST = 64  # texts that are needed; of larger alternations nothing is
LONG_S, KELVIN = (0, 2), (2, 5)  # where they lie in every text
FOLDING = np.frombuffer("ſ\u212a".encode(), np.uint8)
_GIVEN_UP = np.int64(-1)
_FROM, _BRANCHES, _SCORE, _BEST, _BEST_SCORE, _FOLD = range(6)  # of a frame; a score of 0: nothing is needed
_ONCE, _REPEATED, _OPTIONAL, _DOUBTFUL = range(4)  # how often what stands before must occur
_UNKNOWN = np.int64(1) << 40  # the score before the first branch
# What stands for a class of characters or for a place, behind a backslash
_CLASSES = np.zeros(256, np.bool_)
_CLASSES[np.frombuffer(b"dDsSwWbBAz", np.uint8)] = True
_CONTROLS = np.zeros(256, np.uint8)
for _letter, _code in zip(b"tnrfva", b"\t\n\r\f\v\a"):
    _CONTROLS[_letter] = _code
_PLAIN_ESCAPED = np.array([c < 128 and not chr(c).isalnum() for c in range(256)])
_BITS = np.array([0, 1, 4, 9, 16, 20, 24, 28, 32], np.int64)  # how rare a text of so many bytes is, by itself
_SHARED_BITS = 8  # how rare a text is that all expressions have: as one of three bytes, or nearly


class Runs(NamedTuple):
    """The runs of plain characters of all expressions."""

    counts: NDArray[np.uint32]  # by hash; a power of two of them
    expressions: int  # that were counted; 0: they are being counted


@phase(inline=False)
def read_needs(data, at, stop, space, end):
    """How many texts are needed: the first rows of `found`, each a piece of `text` from `end` on. space: (text, frames,
    found, runs)."""
    text, frames, found, runs = space
    depth = 0
    _open(frames, 0, 0, 0)
    run = end  # where the current run starts; it ends at `end`
    while at < stop:
        byte = data[at]
        if byte == 124:  # |
            _end_run(frames, depth, found, text, run, end, runs)
            _end_branch(frames, depth, found)
            run, at = end, at + 1
        elif byte == 40:  # (
            _end_run(frames, depth, found, text, run, end, runs)
            run = end
            at, fold, opens = _group_start(data, at, stop, frames[depth, _FOLD])
            if at < 0 or depth == DEEPEST:
                return 0
            if opens:
                depth += 1
                _open(frames, depth, _top(frames, depth - 1), fold)
            else:
                frames[depth, _FOLD] = fold
        elif byte == 41:  # )
            _end_run(frames, depth, found, text, run, end, runs)
            _end_branch(frames, depth, found)
            times, at = _times(data, at + 1, stop)
            if times == _DOUBTFUL or depth == 0:
                return 0
            depth -= 1
            run = end
            inner = frames[depth + 1, _SCORE]
            if inner > 0 and times != _OPTIONAL:
                _offer(frames, depth, found, frames[depth + 1, _BRANCHES], inner)
        else:
            before = end
            kind, at, end = _character(data, at, stop, text, end)
            times, at = _times(data, at, stop)
            if kind == _GIVEN_UP or times == _DOUBTFUL:
                return 0
            if frames[depth, _FOLD] and end > before and text[before] >= 128:
                kind = 0
            if kind == 0 or times == _OPTIONAL:
                end = before
            if kind == 0 or times != _ONCE:
                _end_run(frames, depth, found, text, run, end, runs)
                run = end
    if depth > 0:
        return 0
    _end_run(frames, 0, found, text, run, end, runs)
    _end_branch(frames, 0, found)
    return frames[0, _BRANCHES] if frames[0, _SCORE] > 0 else 0


@phase
def _open(frames, depth, top, fold):
    frames[depth, _FROM], frames[depth, _FOLD] = top, fold
    frames[depth, _BRANCHES], frames[depth, _SCORE] = 0, _UNKNOWN
    frames[depth, _BEST], frames[depth, _BEST_SCORE] = 0, 0


@phase
def _top(frames, depth):
    """Where the next candidate goes."""
    return frames[depth, _FROM] + frames[depth, _BRANCHES] + frames[depth, _BEST]


@phase(inline=False)
def _offer(frames, depth, found, texts, score):
    """A set of texts, at the top: is it better than the best of this branch?"""
    best = frames[depth, _BEST_SCORE]
    if score > best or (score == best and texts < frames[depth, _BEST]):
        top = _top(frames, depth)
        to = frames[depth, _FROM] + frames[depth, _BRANCHES]
        for i in range(texts):
            found[to + i, 0], found[to + i, 1] = found[top + i, 0], found[top + i, 1]
        frames[depth, _BEST], frames[depth, _BEST_SCORE] = texts, score


@phase(inline=False)
def _end_branch(frames, depth, found):
    """The best of the branch joins those of the branches before it."""
    score = frames[depth, _BEST_SCORE]
    if frames[depth, _BRANCHES] + frames[depth, _BEST] > MOST:
        score = np.int64(0)
    frames[depth, _SCORE] = min(frames[depth, _SCORE], score)
    frames[depth, _BRANCHES] += frames[depth, _BEST]
    if frames[depth, _SCORE] == 0:
        frames[depth, _BRANCHES] = 0
    frames[depth, _BEST], frames[depth, _BEST_SCORE] = 0, 0


@phase(inline=False)
def _end_run(frames, depth, found, text, run, end, runs):
    if end == run:
        return
    top, texts = _top(frames, depth), 1
    found[top, 0], found[top, 1] = run, end
    long_s, kelvin = False, False
    for i in range(run, end):
        if 65 <= text[i] <= 90:
            text[i] += np.uint8(32)
        long_s |= text[i] == 115
        kelvin |= text[i] == 107
    if frames[depth, _FOLD] and long_s:
        found[top + texts, 0], found[top + texts, 1] = LONG_S
        texts += 1
    if frames[depth, _FOLD] and kelvin:
        found[top + texts, 0], found[top + texts, 1] = KELVIN
        texts += 1
    _offer(frames, depth, found, texts, _rareness(text, run, end, runs))


@phase(inline=False)
def _rareness(text, run, end, runs):
    """Of a run, in bits, at least one."""
    size = end - run
    bits = _BITS[min(size, 8)] + max(size - 8, 0)
    place = np.int64(hash_slice(text, run, end - run) & np.uint64(len(runs.counts) - 1))
    if runs.expressions == 0:
        runs.counts[place] += np.uint32(1)
    elif runs.counts[place] > 1:
        share = max(np.int64(1), np.int64(runs.expressions) // np.int64(runs.counts[place]))
        bits = min(bits, _SHARED_BITS + np.int64(np.log2(share)))
    return bits


@phase(inline=False)
def _group_start(data, at, stop, fold):
    """(what is behind the start of the group, whether case is ignored then, whether something is to be closed).
    -1: something else begins here."""
    if at + 1 >= stop or data[at + 1] != 63:  # (
        return at + 1, fold, True
    at += 2
    if at < stop and data[at] == 80:  # (?P<
        at += 1
    if at < stop and data[at] == 60:  # (?<name>
        while at < stop and data[at] != 62:
            at += 1
        return (at + 1 if at < stop else _GIVEN_UP), fold, True
    on = np.int64(1)
    while at < stop:
        byte = data[at]
        at += 1
        if byte == 58:  # :
            return at, fold, True
        if byte == 41:
            return at, fold, False
        if byte == 45:  # -
            on = np.int64(0)
        elif byte == 105:  # i
            fold = on
        elif byte != 109 and byte != 115 and byte != 85:  # m s U
            break
    return _GIVEN_UP, fold, False


@phase(inline=False)
def _character(data, at, stop, text, end):
    """(1 for a plain character, 0 for a class of them or a place, or _GIVEN_UP; what is behind it; the end of the text,
    to which a plain character was added)."""
    byte = data[at]
    if byte == 92:
        return _read_escape(data, at, stop, text, end)
    if byte == 91:  # [
        return np.int64(0), _class_end(data, at, stop), end
    if byte == 46 or byte == 94 or byte == 36:  # . ^ $
        return np.int64(0), at + 1, end
    if byte == 42 or byte == 43 or byte == 63 or byte == 123:  # * + ? {: nothing that it repeats
        return _GIVEN_UP, at, end
    text[end] = byte
    at, end = at + 1, end + 1
    while at < stop and data[at] & 0xC0 == 0x80:
        text[end] = data[at]
        at, end = at + 1, end + 1
    return np.int64(1), at, end


@phase(inline=False)
def _read_escape(data, at, stop, text, end):
    if at + 1 >= stop:
        return _GIVEN_UP, at, end
    byte = data[at + 1]
    if _CLASSES[byte]:
        return np.int64(0), at + 2, end
    if byte == 112 or byte == 80:  # \p \P
        at += 2
        if at < stop and data[at] == 123:
            while at < stop and data[at] != 125:
                at += 1
        return np.int64(0), at + 1, end
    if _PLAIN_ESCAPED[byte]:
        text[end] = byte
        return np.int64(1), at + 2, end + 1
    if _CONTROLS[byte] != 0:
        text[end] = _CONTROLS[byte]
        return np.int64(1), at + 2, end + 1
    return _GIVEN_UP, at, end


@phase(inline=False)
def _class_end(data, at, stop):
    """What is behind the class of characters that starts here."""
    at += 1
    if at < stop and data[at] == 94:  # ^
        at += 1
    if at < stop and data[at] == 93:  # a ] that stands first
        at += 1
    while at < stop and data[at] != 93:
        if data[at] == 92:
            at += 2
        elif data[at] == 91 and at + 1 < stop and data[at + 1] == 58:  # [:
            close = at + 2
            while close + 1 < stop and not (data[close] == 58 and data[close + 1] == 93):
                close += 1
            at = close + 2 if close + 1 < stop else at + 1
        else:
            at += 1
    return at + 1


@phase(inline=False)
def _times(data, at, stop):
    """(how often what stands before must occur, what is behind)."""
    if at >= stop:
        return np.int64(_ONCE), at
    byte = data[at]
    if byte == 42 or byte == 63:  # * ?
        times, at = np.int64(_OPTIONAL), at + 1
    elif byte == 43:  # +
        times, at = np.int64(_REPEATED), at + 1
    elif byte == 123:
        times, at = _repetition(data, at + 1, stop)
    else:
        return np.int64(_ONCE), at
    if at < stop and data[at] == 63:  # as little as possible: the same matches
        at += 1
    if at < stop and (data[at] == 42 or data[at] == 43 or data[at] == 63 or data[at] == 123):
        return np.int64(_DOUBTFUL), at
    return times, at


@phase
def _repetition(data, at, stop):
    """The same for {n}, {n,} and {n,m}, behind the brace; doubtful for anything else."""
    digits, least = 0, np.int64(0)
    while at < stop and 48 <= data[at] <= 57 and digits < 6:
        least = 10 * least + (data[at] - 48)
        at, digits = at + 1, digits + 1
    if digits and at < stop and data[at] == 44:
        at += 1
        while at < stop and 48 <= data[at] <= 57:
            at += 1
    if digits and at < stop and data[at] == 125:
        return np.int64(_REPEATED if least > 0 else _OPTIONAL), at + 1
    return np.int64(_DOUBTFUL), at
