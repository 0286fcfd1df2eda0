"""Bodies of JSON lines, cut into slices: what is done to one of them takes some milliseconds, so that others have their
turn in between, and nothing of the size of a body is made but the body itself."""

from __future__ import annotations

import re
from time import thread_time

from dibs.coding.lines import BYTE_ORDER_MARK, read_lines
from dibs.errors import EventError, LineTooLong

LEAST, FIRST, MOST = (
    2 << 10,
    8 << 10,
    128 << 10,
)  # bytes of a slice; of the first of a tenant, which nothing is known of
TURN = 0.008  # seconds that a slice should take
BUFFERED = 1 << 20  # bytes of a body whose answer is sent as a whole
MEAN = 1 / 4  # weight of the last slice in the mean
LINE = re.compile(r"line (\d+)")


class Pace:
    """How long the events of a tenant take, by their bytes: so that slices are of a length in time."""

    def __init__(self) -> None:
        self.of_byte = TURN / FIRST  # seconds
        self._is_known = False

    @property
    def size(self) -> int:
        return int(min(max(TURN / self.of_byte, LEAST), MOST))

    def measured(self, size: int, begun: float) -> None:
        """Of some bytes; begun: by thread_time, because how busy others keep the machine says nothing of the events.
        Slower is believed at once, faster by and by."""
        if size >= LEAST:  # of a few bytes, it says little of many
            found = (thread_time() - begun) / size
            usual = self.of_byte + (found - self.of_byte) * MEAN if self._is_known else found
            self.of_byte, self._is_known = max(found, usual), True


class Slices:
    """Where one is in a body of lines."""

    def __init__(self, body: bytes, longest: int):
        """longest: bytes of a line; 0: any number."""
        self.body, self._longest = body, longest
        self.back_to_start()

    def back_to_start(self) -> None:
        self._at = len(BYTE_ORDER_MARK) if self.body.startswith(BYTE_ORDER_MARK) else 0
        self._lines = 0  # before the slice
        self.events = 0  # before it
        self.text = b""  # the slice

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self.body)

    def advance(self, size: int) -> bytes:
        """The next slice, of about so many bytes: whole lines."""
        self._lines += self.text.count(b"\n")
        end = self._at + size
        if end < len(self.body):
            cut = self.body.rfind(b"\n", self._at, end)
            if cut < 0:
                cut = self.body.find(b"\n", end)
            end = cut + 1 or len(self.body)
        self.text = self.body[self._at : end]
        if self._longest and len(self.text) > self._longest:
            for number, line in enumerate(self.text.split(b"\n"), self._lines + 1):
                if len(line) > self._longest:
                    raise LineTooLong("", number, self._longest)
        self._at = end
        return self.text

    def place(self, message: str) -> str:
        """A message about the slice, with the line of the body."""
        found = LINE.match(message)
        return message if found is None else f"line {int(found[1]) + self._lines}{message[found.end() :]}"

    def place_error(self, error: EventError) -> EventError:
        """The same of the event in the body."""
        if error.event is None:
            return error
        front = str(EventError("", error.event, error.attribute))
        message = self.place(str(error).removeprefix(front))
        return EventError(message, error.event + self.events, error.attribute)


def split_lines(text: bytes) -> list[bytes]:
    """The events of it."""
    return [text for lines in read_lines(text) for text in lines.texts]
