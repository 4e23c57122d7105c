"""The text in a file's bytes, and back, without changing what was not touched (N14)."""

from __future__ import annotations

import codecs
from io import FileIO
from typing import Literal, TypeAlias

from msgspec import Struct

from penguin.environment.tool import ToolError

Encoding: TypeAlias = Literal["utf-8", "utf-16-le", "utf-16-be"]
LineEnd: TypeAlias = Literal["\n", "\r\n", "\r"]

SNIFFED = 8192
"""Bytes from the beginning of a file that tell whether it is text."""
_CHUNK = 1024 * 1024
_SIGNATURES = {
    b"\x7fELF": "an ELF executable or library",
    b"PK\x03\x04": "a zip archive (or a format based on zip)",
    b"\x1f\x8b": "gzip data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ\x00": "xz data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"%PDF-": "a PDF document",
    b"\x89PNG\r\n": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"SQLite format 3\x00": "an SQLite database",
    b"\xff\xfe\x00\x00": "UTF-32 text",
}


def binary_kind(head: bytes) -> str | None:
    """What a file is, judged by its first bytes, when it is not text; else ``None``."""
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return kind
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return None
    return "binary data" if b"\0" in head[:SNIFFED] else None


class TextForm(Struct, frozen=True, kw_only=True):
    """What a file looks like apart from what it says, so that other words can be put into it.

    ``line_end`` is the dominant one. ``is_valid`` is false for bytes that are not in ``encoding``.
    """

    encoding: Encoding = "utf-8"
    bom: bytes = b""
    line_end: LineEnd = "\n"
    is_valid: bool = True

    @classmethod
    def of(cls, file: FileIO) -> TextForm:
        """Read ``file`` to its end in bounded memory.

        Raises:
            ToolError: UTF-16 that cannot be written back as it is.
        """
        head = file.read(_CHUNK)
        encoding, bom = told_by_bom(head)
        decoder = codecs.getincrementaldecoder(encoding)()
        counts = _LineEnds()
        chunk: bytes | None = head[len(bom) :]
        is_valid = True
        while chunk is not None:
            try:
                counts.add(decoder.decode(chunk, final=not chunk))
            except UnicodeDecodeError:
                _refuse_damaged(encoding, file.tell() - len(chunk))
                is_valid = False
                decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
                counts.add(decoder.decode(chunk))
            chunk = file.read(_CHUNK) if chunk else None
        return cls(encoding=encoding, bom=bom, line_end=counts.dominant(), is_valid=is_valid)

    def encode(self, text: str) -> bytes:
        """The bytes of the file when its text becomes ``text``."""
        return self.bom + text.encode(self.encoding, "surrogateescape")

    def with_own_line_ends(self, text: str) -> str:
        """``text`` as it belongs into this file; text that brings such line ends of its own knows what it does."""
        return text if self.line_end in text else text.replace("\n", self.line_end)

    def peculiarities(self) -> list[str]:
        """What is worth telling, in a few words each."""
        ends = {"\n": [], "\r\n": ["CRLF line ends"], "\r": ["CR line ends"]}
        return [
            *([self.encoding.upper()] if self.encoding != "utf-8" else []),
            *(["BOM"] if self.bom else []),
            *ends[self.line_end],
        ]

    def refuse_foreign(self, shown: str, text: str) -> None:
        """Check that ``text`` can be put into a file that is not UTF-8.

        Raises:
            ToolError: The file's encoding is unknown and ``text`` is not plain ASCII.
        """
        if not self.is_valid and not text.isascii():
            raise ToolError(
                f"{shown} is not UTF-8 (an older encoding such as Latin-1?); only ASCII text can be put into it. "
                "Convert it first, with iconv for example."
            )


class TextFile(TextForm, frozen=True, kw_only=True):
    """Decoded content: ``text`` has no BOM and the file's own line ends.

    Bytes that are not UTF-8 are lone surrogates in ``text`` and come back as they were.
    """

    text: str

    @classmethod
    def decode(cls, data: bytes) -> TextFile:
        """Read ``data``; never fails for UTF-8 with damage.

        Raises:
            ToolError: UTF-16 that cannot be written back as it is.
        """
        encoding, bom = told_by_bom(data)
        body = data[len(bom) :]
        is_valid = True
        try:
            text = body.decode(encoding)
        except UnicodeDecodeError as error:
            _refuse_damaged(encoding, error.start)
            is_valid = False
            text = body.decode(encoding, "surrogateescape")
        counts = _LineEnds()
        counts.add(text)
        return cls(text=text, encoding=encoding, bom=bom, line_end=counts.dominant(), is_valid=is_valid)

    def refuse_halves(self, shown: str, spans: list[tuple[int, int]]) -> None:
        """Check that no span begins or ends inside a character, as far as an unknown encoding lets us see.

        Shift-JIS, GBK, Big5 and others write many characters as a byte from 0x80 up and one that may look like an
        ASCII letter, digit or backslash: a change of that "letter" would make another character of it.

        Raises:
            ToolError: One may.
        """
        if self.is_valid:
            return
        for start, end in spans:
            if self._may_split(start) or self._may_split(end):
                raise ToolError(
                    f"{shown} is not UTF-8, and on line {self.text.count(chr(10), 0, start) + 1} old_string touches a"
                    " byte that may be one half of a character (as in Shift-JIS, GBK or Big5); the edit could damage"
                    " it. Let old_string begin and end at a space or a line end, or convert the file with iconv, edit"
                    " it, and convert it back."
                )

    def _may_split(self, at: int) -> bool:
        before, after = self.text[:at][-1:], self.text[at : at + 1]
        if not before or not after:
            return False
        if not before.isascii():
            return after >= _LEAST_SECOND_BYTE
        # GB18030 has characters of four bytes, in which a digit is followed by the second half.
        return before.isdigit() and not after.isascii() and not self.text[max(at - 2, 0) : at - 1].isascii()


class _LineEnds:
    """Counts line ends in text that comes in pieces."""

    def __init__(self) -> None:
        self._lf = self._crlf = self._cr = 0
        self._last = ""

    def add(self, text: str) -> None:
        joined = self._last + text  # a CRLF may lie across the border
        self._crlf += joined.count("\r\n")
        self._lf += text.count("\n")
        self._cr += text.count("\r")
        self._last = text[-1:] or self._last

    def dominant(self) -> LineEnd:
        if self._crlf * 2 > self._lf:
            return "\r\n"
        return "\r" if self._cr and not self._lf else "\n"


# In none of the encodings that use two bytes for a character can the second be lower; space and line end are.
_LEAST_SECOND_BYTE = "0"
_BOMS: dict[bytes, Encoding] = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def told_by_bom(head: bytes) -> tuple[Encoding, bytes]:
    """The encoding and the BOM itself, which is empty where there is none; UTF-8 then."""
    return next(((encoding, bom) for bom, encoding in _BOMS.items() if head.startswith(bom)), ("utf-8", b""))


def _refuse_damaged(encoding: Encoding, place: int) -> None:
    if encoding != "utf-8":
        raise ToolError(f"The file starts like UTF-16 but is damaged at byte {place}; use a command.") from None
