"""The text in a file's bytes, and back, without changing what was not touched (N14)."""

from __future__ import annotations

import codecs
from typing import Literal, TypeAlias

from msgspec import Struct

from penguin.environment.tool import ToolError

Encoding: TypeAlias = Literal["utf-8", "utf-16-le", "utf-16-be"]

_SNIFFED = 8192
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
    return "binary data" if b"\0" in head[:_SNIFFED] else None


class TextFile(Struct, frozen=True):
    """Decoded content: ``text`` has no BOM and the file's own line ends.

    Bytes that are not UTF-8 are lone surrogates in ``text`` and come back as they were.
    """

    text: str
    encoding: Encoding = "utf-8"
    bom: bytes = b""
    is_valid: bool = True

    @classmethod
    def decode(cls, data: bytes) -> TextFile:
        """Read ``data``; never fails for UTF-8 with damage.

        Raises:
            ToolError: UTF-16 that cannot be written back as it is.
        """
        for bom, encoding in _UTF16.items():
            if data.startswith(bom):
                return cls._decode_utf16(data, bom, encoding)
        bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        body = data[len(bom) :]
        try:
            return cls(body.decode(), "utf-8", bom)
        except UnicodeDecodeError:
            return cls(body.decode("utf-8", "surrogateescape"), "utf-8", bom, is_valid=False)

    @classmethod
    def _decode_utf16(cls, data: bytes, bom: bytes, encoding: Encoding) -> TextFile:
        try:
            return cls(data[len(bom) :].decode(encoding), encoding, bom)
        except UnicodeDecodeError as error:
            raise ToolError(
                f"The file starts like UTF-16 but is damaged at byte {error.start}; use a command."
            ) from None

    def encode(self, text: str) -> bytes:
        """The bytes of the file when its text becomes ``text``."""
        return self.bom + text.encode(self.encoding, "surrogateescape")

    @property
    def ends_lines_with_crlf(self) -> bool:
        """Whether CRLF is the dominant line end."""
        crlf = self.text.count("\r\n")
        return crlf * 2 > self.text.count("\n")

    def with_own_line_ends(self, text: str) -> str:
        """``text`` as it belongs into this file; text that brings its own CRLF knows what it does."""
        return text.replace("\n", "\r\n") if self.ends_lines_with_crlf and "\r\n" not in text else text

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


_UTF16: dict[bytes, Encoding] = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
