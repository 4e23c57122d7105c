"""N14 over all kinds of files: what a tool does not change stays, byte for byte, or the tool refuses."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from penguin.environment.text_file import TextFile
from penguin.environment.tool import ToolError

# A word of each encoding; in Shift-JIS, GBK and Big5 one whose second byte is a backslash.
WORDS = {
    "ascii": "word",
    "utf-8": "表é😀",
    "utf-16-le": "表é😀",
    "utf-16-be": "表é😀",
    "latin-1": "é",
    "shift-jis": "表",
    "gbk": "誠",
    "big5": "功",
    "euc-jp": "表",
}
BOMS = {"utf-8": b"\xef\xbb\xbf", "ascii": b"\xef\xbb\xbf", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
ENDS = {
    "lf": ["\n"] * 4,
    "crlf": ["\r\n"] * 4,
    "cr": ["\r"] * 4,
    "mostly crlf": ["\r\n", "\n", "\r\n", "\r\n"],
    "mostly lf": ["\n", "\r\n", "\n", "\n"],
}
DOMINANT = {"crlf": "\r\n", "mostly crlf": "\r\n", "cr": "\r"}
MODES = (0o644, 0o755, 0o600)
EDITS = {
    "edit_file": ("plain", "PLAIN, and more"),
    "edit_file with replace_all": ("\\", "/"),
    "edit_file over a line end": ("here\nsecond", "here\n2nd"),
}
TOOLS = (*EDITS, "write_file")
KINDS = [(encoding, bom) for encoding in WORDS for bom in ("BOM", "no BOM") if bom == "no BOM" or encoding in BOMS]


@dataclass(frozen=True)
class Case:
    encoding: str
    bom: str
    ends: str
    final: bool
    mode: int
    linked: bool
    tool: str

    def __str__(self) -> str:
        final, linked = "final newline" if self.final else "no final newline", "link" if self.linked else "file"
        return f"{self.encoding}, {self.bom}, {self.ends}, {final}, {self.mode:o}, {linked}, {self.tool}"

    @property
    def text(self) -> str:
        word = WORDS[self.encoding]
        lines = [f"first {word}", f"{word} plain and here", f"second {word}", rf"path {word} C:\dir"]
        whole = "".join(line + end for line, end in zip(lines, ENDS[self.ends], strict=True))
        return whole if self.final else whole.rstrip("\r\n")

    def encoded(self, text: str) -> bytes:
        return (BOMS[self.encoding] if self.bom == "BOM" else b"") + text.encode(self.encoding)

    @property
    def arguments(self) -> dict[str, Any]:
        if self.tool == "write_file":
            return {"content": "other\nwords\n" if self.final else "other\nwords"}
        old, new = EDITS[self.tool]
        return {"old_string": old, "new_string": new, "replace_all": "replace_all" in self.tool}

    @property
    def expected(self) -> bytes:
        """What somebody who knows the encoding would have made of the file."""
        if self.tool == "write_file":
            end = DOMINANT.get(self.ends, "\n")
            return self.encoded(self.arguments["content"].replace("\n", end))
        end = ENDS[self.ends][1]
        old, new = (each.replace("\n", end) for each in EDITS[self.tool])
        assert old in self.text
        return self.encoded(self.text.replace(old, new))

    @property
    def may_be_refused(self) -> bool:
        """UTF-16 without a BOM looks like binary data; a backslash may be half a character."""
        wide = self.encoding.startswith("utf-16") and self.bom == "no BOM"
        return wide or (self.encoding in {"shift-jis", "gbk", "big5"} and "replace_all" in self.tool)


def cases(encoding: str, bom: str) -> Iterator[Case]:
    for ends, final, mode, linked, tool in product(ENDS, (True, False), MODES, (False, True), TOOLS):
        yield Case(encoding, bom, ends, final, mode, linked, tool)


def test_N14_the_matrix_is_large() -> None:
    assert sum(1 for kind in KINDS for _ in cases(*kind)) >= 3_000


@pytest.mark.anyio
@pytest.mark.parametrize(("encoding", "bom"), KINDS)
async def test_N14_every_kind_of_file_is_kept_byte_for_byte_or_refused(
    make_desk: Any, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, bom: str
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # thousands of them; whether it lasts is not asked here
    desk = make_desk()
    wrong: list[str] = []
    for number, case in enumerate(cases(encoding, bom)):
        path = lay_down(case, workspace / f"d{number}", tmp_path / "elsewhere")
        shown = str(path.relative_to(workspace))
        if case.tool == "write_file":
            await desk.call("read_file", file_path=shown)
        answer = await desk.call(case.tool.split()[0], file_path=shown, **case.arguments)
        refused = answer.stop_reason == "failed"
        wrong += [f"{case}: {each}: {answer.output}" for each in differences(case, path, refused=refused)]
    assert wrong == []


def lay_down(case: Case, directory: Path, elsewhere: Path) -> Path:
    """The case's file in a directory of its own, perhaps by way of a link."""
    directory.mkdir()
    elsewhere.mkdir(exist_ok=True)
    path = directory / "f.txt"
    real = elsewhere / f"{directory.name}.txt" if case.linked else path
    real.write_bytes(case.encoded(case.text))
    real.chmod(case.mode)
    if case.linked:
        path.symlink_to(real)
    return path


def differences(case: Case, path: Path, *, refused: bool) -> Iterator[str]:
    found = path.read_bytes()
    if found != (case.encoded(case.text) if refused else case.expected):
        yield f"{found!r}"
    if refused and not case.may_be_refused:
        yield "refused"
    if path.is_symlink() != case.linked:
        yield "the link is gone"
    if stat.S_IMODE(path.stat().st_mode) != case.mode:
        yield f"mode {path.stat().st_mode:o}"
    if [each.name for each in path.parent.iterdir()] != ["f.txt"]:
        yield "something is left"


# --- halves of characters --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoding", ["shift-jis", "cp932", "gbk", "gb18030", "big5", "cp950", "euc-jp", "euc-kr", "johab"]
)
def test_N14_no_edit_begins_or_ends_inside_a_character(encoding: str) -> None:
    """Every span of bytes around every third character there is, which covers all second bytes."""
    checked = 0
    for code in range(0xA0, 0x10000, 3):
        try:
            pieces = [character.encode(encoding) for character in f"a{chr(code)}b{chr(code)}"]
        except UnicodeEncodeError:
            continue
        content = TextFile.decode(b"".join(pieces))
        if content.is_valid:
            continue  # neither we nor anybody could tell
        borders = {sum(map(len, pieces[:count])) for count in range(len(pieces) + 1)}
        if len(content.text) != max(borders):
            continue  # part of it is UTF-8 by chance, and then one character to us
        for at in set(range(max(borders))) - borders:
            with pytest.raises(ToolError, match="one half of a character"):
                content.refuse_halves("f.txt", [(at, max(borders))])
            with pytest.raises(ToolError, match="one half of a character"):
                content.refuse_halves("f.txt", [(0, at)])
            checked += 1
    assert checked > 1_000


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("before", "old", "replace_all"),
    [
        (b"\x95\x5c\n", "\\", False),
        (b"path \x95\x5c C:\\dir\n", "\\", True),
        (b"\x95\x5cdir\n", "\\dir", False),
        (b"\xb0\xa1\x30\n", "0", False),
        (b"\xc3\xa9\xff \xe8\xa1\xa8\xe9\n", "表", False),
    ],
)
async def test_N14_what_may_be_half_a_character_is_not_edited(
    make_desk: Any, workspace: Path, before: bytes, old: str, *, replace_all: bool
) -> None:
    (workspace / "f.txt").write_bytes(before)
    answer = await make_desk().call(
        "edit_file", file_path="f.txt", old_string=old, new_string="x", replace_all=replace_all
    )
    assert answer.stop_reason == "failed"
    assert "one half of a character (as in Shift-JIS, GBK or Big5)" in answer.output
    assert "begin and end at a space or a line end" in answer.output
    assert (workspace / "f.txt").read_bytes() == before
