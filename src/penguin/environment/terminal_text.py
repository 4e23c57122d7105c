"""Turn the bytes of a command into the text a person would see, piece by piece (N11)."""

from __future__ import annotations

import codecs
import re

LINE_LIMIT = 1024 * 1024
"""Characters kept of one line; the rest is counted, not kept."""

# An OSC or DCS string of more than 4,096 characters is taken for text.
_ESCAPE = re.compile(
    r"""\x1b(?:
        \[ [0-?]{0,256} [ -/]{0,16} [@-~]                                       # CSI: colours, cursor, erase
      | [\]PX^_] [^\x07\x1b\n]{0,4096} (?: \x07 | \x1b\\ | (?=\x1b[^\\]) ) # strings: title, hyperlink
      | [ -/]{1,16} [0-~]                                                       # character sets
      | [0-OQ-WYZ\\`-~]                                                         # two characters
      )?                                                                        # or a lone escape
    """,
    re.VERBOSE,
)
_BROKEN_OFF = re.compile(
    r"\x1b(?: \[ [0-?]{0,256} [ -/]{0,16} | [\]PX^_] [^\x07\x1b\n]{0,4096} \x1b? | [ -/]{0,16} )\Z",
    re.VERBOSE,
)
_LOOK_BACK = 4096 + 3
# All but tab and the line ends; and ESC and BEL, but these begin and may end a string that is looked for later.
_DROPPED_CONTROLS = "".join(chr(code) for code in (*range(32), 127) if chr(code) not in "\t\n\r\x1b\x07")
_REPLACED_FRAMES = re.compile(r"^(?:[^\r\n]*\r)+(?=[^\r\n])", re.MULTILINE)
_ESCAPES_BEFORE_AN_ESCAPE = re.compile(r"\x1b+(?=\x1b)")  # each alone would be a match of its own


class TerminalText:
    r"""Bytes in, finished lines out.

    Undecodable bytes become U+FFFD, escapes and control characters but tab and line ends go. An unfinished line is
    held until it ends or :meth:`flush` is called; a carriage return that does not end a line drops what is held, so a
    progress bar shows its last state only. What was returned is never taken back: after a flush the next state starts
    a new line.

    Example::

        text = TerminalText()
        text.feed(b"50%\r100%\ndone")  # "100%\n"
        text.flush()                   # "done"
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._escape = ""
        self._frame: list[str] = []
        self._room = LINE_LIMIT
        self._left_out = 0
        self._returned = False  # the return that drops the frame, if no newline follows it
        self._delivered = False  # part of the current line was handed out
        self._new_line_owed = False  # the frame replaces one that was handed out

    @property
    def holding(self) -> bool:
        """Whether :meth:`flush` would return something."""
        return bool(self._frame)

    def feed(self, data: bytes) -> str:
        """Take the next bytes; returns the lines they finish, with their line ends."""
        return self._advance(self._decoder.decode(data))

    def flush(self) -> str:
        """Hand out the unfinished line as it stands. An unfinished character or escape stays held."""
        shown = self._shown_frame()
        self._frame.clear()
        if shown:
            self._delivered, self._new_line_owed = True, False
        return shown

    def close(self) -> str:
        """Hand out everything; no more bytes follow."""
        rest = self._advance(self._decoder.decode(b"", final=True))
        self._escape = ""
        shown = rest + self.flush() + self._left_out_mark()
        self._left_out = 0
        return shown

    def _advance(self, text: str) -> str:
        text = self._without_escapes(_without(_DROPPED_CONTROLS, text))
        start, end = text.find("\n") + 1, text.rfind("\n") + 1
        if not end:
            self._take_frames(text)
            return ""
        self._take_frames(text[: start - 1])
        finished = self._ended_line() + self._whole_lines(text[start:end])
        self._take_frames(text[end:])
        return finished

    def _without_escapes(self, text: str) -> str:
        text, self._escape = self._escape + text, ""
        if "\x1b" not in text:
            return _without("\x07", text)
        if "\x1b\x1b" in text:
            text = _ESCAPES_BEFORE_AN_ESCAPE.sub("", text)
        clean = _ESCAPE.sub("", text)
        broken_off = _BROKEN_OFF.search(text, max(0, len(text) - _LOOK_BACK))
        if broken_off:
            # Cut off only now: an escape that begins here is also what ends an unterminated string before it.
            self._escape = broken_off.group()
            clean = clean[: len(clean) - len(self._escape.replace("\x1b", ""))]
        return _without("\x07", clean)

    def _whole_lines(self, text: str) -> str:
        """Lines of which nothing came before: nearly always they can be handed out without looking at each."""
        if not _only_ends_lines("\r", text):
            text = _REPLACED_FRAMES.sub("", text)
        if len(text) <= LINE_LIMIT and _only_ends_lines("\r", text):
            return text
        finished: list[str] = []
        for line in text.split("\n")[:-1]:
            self._take_frames(line)
            finished.append(self._ended_line())
        return "".join(finished)

    def _take_frames(self, text: str) -> None:
        """Take part of a line. Of frames that follow each other only the last is looked at: there may be millions."""
        frames = text.rstrip("\r")
        if frames:
            _, returned, last = frames.rpartition("\r")
            self._returned = self._returned or bool(returned)
            self._extend_frame(last)
        self._returned = self._returned or len(frames) < len(text)

    def _ended_line(self) -> str:
        ending = "\r\n" if self._returned else "\n"
        line = self._shown_frame() + self._left_out_mark() + ending
        self._start_line()
        return line

    def _extend_frame(self, text: str) -> None:
        if self._returned:
            self._start_frame()
        kept = text[: self._room]
        self._room -= len(kept)
        self._left_out += len(text) - len(kept)
        if kept:
            self._frame.append(kept)

    def _start_frame(self) -> None:
        self._frame.clear()
        self._room, self._left_out, self._returned = LINE_LIMIT, 0, False
        self._new_line_owed = self._delivered

    def _start_line(self) -> None:
        self._delivered = False
        self._start_frame()

    def _shown_frame(self) -> str:
        text = "".join(self._frame)
        return "\n" + text if text and self._new_line_owed else text

    def _left_out_mark(self) -> str:
        return f" [… {self._left_out:,} more characters in this line]" if self._left_out else ""


def _only_ends_lines(character: str, text: str) -> bool:
    return character not in text or text.count(character) == text.count(f"{character}\n")


def _without(controls: str, text: str) -> str:
    # Searched one by one: a few memchr cost a hundredth of one translate over a gigabyte that has none.
    present = "".join(control for control in controls if control in text)
    if present and text.isascii():
        return text.encode().translate(None, present.encode()).decode()
    for control in present:
        text = text.replace(control, "")
    return text
