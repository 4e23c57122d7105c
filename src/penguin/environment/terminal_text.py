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
_TOKEN = re.compile(r"\r|\n|[^\r\n]+")


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
        cut = text.rfind("\n") + 1
        if self._is_plain(text, cut):
            finished = "".join([*self._frame, text[:cut]])
            self._start_line()
            return finished + self._take_tokens(text[cut:])
        return self._take_tokens(text)

    def _without_escapes(self, text: str) -> str:
        text, self._escape = self._escape + text, ""
        if "\x1b" not in text:
            return _without("\x07", text)
        clean = _ESCAPE.sub("", text)
        broken_off = _BROKEN_OFF.search(text, max(0, len(text) - _LOOK_BACK))
        if broken_off:
            # Cut off only now: an escape that begins here is also what ends an unterminated string before it.
            self._escape = broken_off.group()
            clean = clean[: len(clean) - len(self._escape.replace("\x1b", ""))]
        return _without("\x07", clean)

    def _is_plain(self, text: str, cut: int) -> bool:
        """Whether the lines up to ``cut`` can be handed out as they are, without looking at each."""
        if not cut or self._returned or self._left_out or self._new_line_owed or cut > self._room:
            return False
        return "\r" not in text or text.count("\r", 0, cut) == text.count("\r\n", 0, cut)

    def _take_tokens(self, text: str) -> str:
        if "\n" not in text and "\r" not in text:
            if text:
                self._extend_frame(text)
            return ""
        finished: list[str] = []
        for token in _TOKEN.findall(text):
            match token:
                case "\n":
                    finished.append(self._ended_line())
                case "\r":
                    self._returned = True
                case _:
                    self._extend_frame(token)
        return "".join(finished)

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


def _without(controls: str, text: str) -> str:
    # Searched one by one: a few memchr cost a hundredth of one translate over a gigabyte that has none.
    present = "".join(control for control in controls if control in text)
    if present and text.isascii():
        return text.encode().translate(None, present.encode()).decode()
    for control in present:
        text = text.replace(control, "")
    return text
