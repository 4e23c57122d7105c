"""N13-N16 and the cases D23-D29: real files, real tools, through the environment."""

# ruff: noqa: ASYNC221 - a test may look at a file while nothing else runs

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from penguin.environment import text_file
from penguin.environment.atomic_write import temporary_name
from penguin.environment.environment import Environment, EnvironmentConfig
from penguin.environment.file_paths import Within
from penguin.environment.text_file import TextFile, TextForm
from penguin.environment.tools.builtin import BUILTIN_TOOL_DEFINITIONS, builtin_definition
from penguin.protocol.builders import tool_call
from penguin.protocol.errors import ConfigError
from penguin.protocol.interfaces import ToolExecutionRequest


@pytest.fixture
def desk(make_desk: Any) -> Any:
    return make_desk()


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def leftovers(directory: Path) -> list[Path]:
    return list(directory.rglob("*penguin-tmp*"))


# --- D23-D26, N14: what is not edited stays ---------------------------------------------------------


@pytest.mark.anyio
async def test_D23_a_crlf_file_is_edited_with_lf_text(desk: Any, workspace: Path) -> None:
    path = workspace / "crlf.txt"
    path.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    answer = await desk.call("edit_file", file_path="crlf.txt", old_string="one\ntwo", new_string="one\n2\n2b")
    assert path.read_bytes() == b"one\r\n2\r\n2b\r\nthree\r\n"
    diff = answer.output.partition("@@\n")[2].split("\n")
    assert diff == [" one", "-two", "+2", "+2b", " three"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\nc\r\nd\r\n", "a\nb\nc", "a\nb\nC", b"a\r\nb\nC\r\nd\r\n"),
        (b"a\r\nb\nc\r\nd\r\n", "b\n", "b\nnew\n", b"a\r\nb\nnew\r\nc\r\nd\r\n"),
        (b"a\nb\r\nc\nd\n", "c\n", "c\nnew\n", b"a\nb\r\nc\nnew\nd\n"),
        (b"a\r\nb\r\n", "a\r\nb", "a\r\nB", b"a\r\nB\r\n"),
        (b"a\r\nb\r\n", "\nb", "\nx\nb", b"a\r\nx\r\nb\r\n"),
        (b"old\rmac\r", "old\rmac", "new\rmac", b"new\rmac\r"),
        (b"a\\\r\nb\r\n", "a\\\nb", "a\\\nc", b"a\\\r\nc\r\n"),
        (b"x.*+?\r\n", "x.*+?", "y", b"y\r\n"),
    ],
)
async def test_D23_line_ends_of_untouched_lines_stay(
    desk: Any, workspace: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    path = workspace / "mixed.txt"
    path.write_bytes(before)
    answer = await desk.call("edit_file", file_path="mixed.txt", old_string=old, new_string=new)
    assert answer.stop_reason is None, answer.output
    assert path.read_bytes() == after


@pytest.mark.anyio
async def test_D23_lf_text_that_occurs_with_both_line_ends_is_ambiguous(desk: Any, workspace: Path) -> None:
    path = workspace / "mixed.txt"
    path.write_bytes(b"a\nb\na\r\nb\n")
    args = {"file_path": "mixed.txt", "old_string": "a\nb", "new_string": "a\nc"}
    answer = await desk.call("edit_file", **args)
    assert "occurs 2 times in mixed.txt (lines 1, 3)" in answer.output
    await desk.call("edit_file", **args, replace_all=True)
    assert path.read_bytes() == b"a\nc\na\r\nc\n"


@pytest.mark.anyio
async def test_D23_overwriting_a_crlf_file_keeps_crlf(desk: Any, workspace: Path) -> None:
    path = workspace / "crlf.txt"
    path.write_bytes(b"one\r\ntwo\r\n")
    read = await desk.call("read_file", file_path="crlf.txt")
    assert "\r" not in read.output
    assert "CRLF" in read.output
    answer = await desk.call("write_file", file_path="crlf.txt", content="one\n2\n")
    assert path.read_bytes() == b"one\r\n2\r\n"
    assert "kept CRLF line ends" in answer.output
    await desk.call("write_file", file_path="crlf.txt", content="mine\r\nknows\n")
    assert path.read_bytes() == b"mine\r\nknows\n"


@pytest.mark.anyio
async def test_D24_the_bom_stays(desk: Any, workspace: Path) -> None:
    path = workspace / "bom.txt"
    path.write_bytes(b"\xef\xbb\xbfhello\n\xe4\xb8\xad\xe6\x96\x87\n")
    await desk.call("edit_file", file_path="bom.txt", old_string="hello\n中", new_string="hello2\n中")
    assert path.read_bytes() == b"\xef\xbb\xbfhello2\n\xe4\xb8\xad\xe6\x96\x87\n"
    await desk.call("write_file", file_path="bom.txt", content="new\n")
    assert path.read_bytes() == b"\xef\xbb\xbfnew\n"
    await desk.call("write_file", file_path="bom.txt", content="\ufeffnew\n")
    assert path.read_bytes() == b"\xef\xbb\xbfnew\n"
    answer = await desk.call("read_file", file_path="bom.txt", limit=1)
    assert answer.output == "     1\tnew"


def write_large(path: Path, start: bytes, line: bytes, end: bytes = b"") -> None:
    """A file a little larger than what is held in memory."""
    with path.open("wb") as file:
        file.write(start)
        for _ in range(17):
            file.write(line * (1024 * 1024 // len(line)))
        file.write(end)


@pytest.mark.anyio
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
async def test_D24_the_bom_and_the_line_ends_of_a_large_file_stay(desk: Any, workspace: Path, line_end: str) -> None:
    end = line_end.encode()
    path = workspace / "large.txt"
    write_large(path, b"\xef\xbb\xbffirst" + end, "中文 words".encode() + end)
    tracemalloc.start()
    try:
        read = await desk.call("read_file", file_path="large.txt", limit=1)
        answer = await desk.call("write_file", file_path="large.txt", content="one\ntwo\n")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read.output.startswith("     1\tfirst")
    assert path.read_bytes() == b"\xef\xbb\xbfone" + end + b"two" + end
    name = {"\n": "BOM", "\r\n": "BOM, CRLF line ends", "\r": "BOM, CR line ends"}[line_end]
    assert f"; kept {name})" in answer.output
    assert peak < 16_000_000


@pytest.mark.anyio
async def test_N14_a_large_file_of_unknown_encoding_takes_ascii_only(desk: Any, workspace: Path) -> None:
    path = workspace / "large.txt"
    write_large(path, b"", b"plain words\n", b"caf\xe9")
    await desk.call("read_file", file_path="large.txt", limit=1)
    answer = await desk.call("write_file", file_path="large.txt", content="né")
    assert "large.txt is not UTF-8" in answer.output
    await desk.call("write_file", file_path="large.txt", content="ascii")
    assert path.read_bytes() == b"ascii"


@pytest.mark.anyio
async def test_N14_large_utf16_is_refused_with_advice(desk: Any, workspace: Path) -> None:
    write_large(workspace / "wide.txt", b"\xff\xfe", "words\n".encode("utf-16-le"))
    answer = await desk.call("read_file", file_path="wide.txt")
    assert answer.stop_reason == "failed"
    assert "is UTF-16 text and larger than 16 MiB. Look into it with iconv" in answer.output


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b"", TextForm()),
        (b"a\r\nb\r\n", TextForm(line_end="\r\n")),
        (b"a\rb", TextForm(line_end="\r")),
        (b"\xef\xbb\xbf", TextForm(bom=b"\xef\xbb\xbf")),
        (b"\xef\xbb\xbfab\r\ncd\r\n", TextForm(bom=b"\xef\xbb\xbf", line_end="\r\n")),
        (b"caf\xe9\r\n", TextForm(line_end="\r\n", is_valid=False)),
        ("é".encode()[:1], TextForm(is_valid=False)),
        (b"\xff\xfe" + "é\r\n".encode("utf-16-le"), TextForm(encoding="utf-16-le", bom=b"\xff\xfe", line_end="\r\n")),
    ],
)
def test_N14_the_form_of_a_file_is_the_same_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, form: TextForm
) -> None:
    monkeypatch.setattr(text_file, "_CHUNK", 4)
    (tmp_path / "f").write_bytes(data)
    with io.FileIO(tmp_path / "f") as file:
        assert TextForm.of(file) == form
    whole = TextFile.decode(data)
    assert (whole.encoding, whole.bom, whole.line_end, whole.is_valid) == (
        form.encoding, form.bom, form.line_end, form.is_valid
    )  # fmt: skip


@pytest.mark.anyio
async def test_D25_no_final_newline_is_added(desk: Any, workspace: Path) -> None:
    path = workspace / "nonl.txt"
    path.write_bytes(b"line1\nline2\nline3")
    answer = await desk.call("edit_file", file_path="nonl.txt", old_string="line1", new_string="LINE1")
    assert path.read_bytes() == b"LINE1\nline2\nline3"
    assert [line for line in answer.output.split("\n") if line[0] in "+-"] == ["-line1", "+LINE1"]


@pytest.mark.anyio
async def test_D26_modes_stay_and_nothing_is_left(desk: Any, workspace: Path) -> None:
    script, secret = workspace / "cb.sh", workspace / "sec"
    script.write_text("#!/bin/sh\necho X\n")
    script.chmod(0o755)
    secret.write_text("s\n")
    secret.chmod(0o600)
    await desk.call("edit_file", file_path="cb.sh", old_string="X", new_string="Y")
    await desk.call("read_file", file_path="sec")
    await desk.call("write_file", file_path="sec", content="t\n")
    assert subprocess.run([script], capture_output=True, check=True).stdout == b"Y\n"
    assert (script.stat().st_mode & 0o7777, secret.stat().st_mode & 0o7777) == (0o755, 0o600)
    assert names_in(workspace) == ["cb.sh", "sec"]


@pytest.mark.anyio
async def test_N14_a_new_file_has_the_mode_of_the_umask(desk: Any, workspace: Path) -> None:
    old = os.umask(0o027)
    try:
        await desk.call("write_file", file_path="deep/er/new.txt", content="x")
    finally:
        os.umask(old)
    assert (workspace / "deep/er/new.txt").stat().st_mode & 0o777 == 0o640


@pytest.mark.anyio
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
async def test_N14_the_owner_and_set_id_bits_stay(desk: Any, workspace: Path) -> None:
    path = workspace / "owned"
    path.write_text("a")
    os.chown(path, 12345, 23456)
    path.chmod(0o6750)
    await desk.call("edit_file", file_path="owned", old_string="a", new_string="b")
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (12345, 23456, 0o6750)
    assert path.read_text() == "b"


@pytest.mark.anyio
async def test_N14_a_symlink_stays_and_its_target_is_written(desk: Any, workspace: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.txt"
    target.write_text("v1\n")
    (workspace / "link").symlink_to(target)
    (workspace / "dangling").symlink_to("made-later")
    answer = await desk.call("edit_file", file_path="link", old_string="v1", new_string="v2")
    assert f"(a link leads to {target})" in answer.output
    await desk.call("write_file", file_path="link", content="v3\n")
    await desk.call("write_file", file_path="dangling", content="there\n")
    assert (workspace / "link").is_symlink()
    assert target.read_text() == "v3\n"
    assert (workspace / "dangling").is_symlink()
    assert (workspace / "made-later").read_text() == "there\n"
    (workspace / "loop").symlink_to("loop")
    for name, args in (("read_file", {}), ("write_file", {"content": "x"})):
        answer = await desk.call(name, file_path="loop", **args)
        assert answer.stop_reason == "failed"


@pytest.mark.anyio
async def test_N14_extended_attributes_stay(desk: Any, workspace: Path) -> None:
    path = workspace / "tagged"
    path.write_text("a")
    try:
        os.setxattr(path, "user.tag", b"kept")
    except OSError:
        pytest.skip("no user attributes on this file system")
    await desk.call("edit_file", file_path="tagged", old_string="a", new_string="b")
    assert os.getxattr(path, "user.tag") == b"kept"


@pytest.mark.anyio
async def test_N14_hard_links_are_spoken_of(desk: Any, workspace: Path) -> None:
    path = workspace / "one"
    path.write_text("a")
    os.link(path, workspace / "two")
    answer = await desk.call("edit_file", file_path="one", old_string="a", new_string="b")
    assert "it had 2 hard links" in answer.output


@pytest.mark.anyio
async def test_N14_latin1_is_edited_losslessly_or_refused(desk: Any, workspace: Path) -> None:
    path = workspace / "latin1.txt"
    path.write_bytes(b"caf\xe9 one\nplain\n\xff\xfe\xe9\n")
    read = await desk.call("read_file", file_path="latin1.txt")
    assert "caf\ufffd one" in read.output
    assert "not valid UTF-8" in read.output
    await desk.call("edit_file", file_path="latin1.txt", old_string="plain", new_string="PLAIN")
    assert path.read_bytes() == b"caf\xe9 one\nPLAIN\n\xff\xfe\xe9\n"
    for name, args in (
        ("edit_file", {"old_string": "PLAIN", "new_string": "né"}),
        ("write_file", {"content": "né"}),
    ):
        answer = await desk.call(name, file_path="latin1.txt", **args)
        assert "not UTF-8" in answer.output
        assert answer.stop_reason == "failed"
    assert path.read_bytes() == b"caf\xe9 one\nPLAIN\n\xff\xfe\xe9\n"


@pytest.mark.anyio
@pytest.mark.parametrize(("encoding", "bom"), [("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")])
async def test_N14_utf16_stays_utf16(desk: Any, workspace: Path, encoding: str, bom: bytes) -> None:
    path = workspace / "wide.txt"
    path.write_bytes(bom + "héllo\r\n中😀\r\n".encode(encoding))
    read = await desk.call("read_file", file_path="wide.txt")
    assert read.output.startswith("     1\théllo\n     2\t中😀\n[UTF-16")
    await desk.call("edit_file", file_path="wide.txt", old_string="héllo\n", new_string="hi\nthere\n")
    assert path.read_bytes() == bom + "hi\r\nthere\r\n中😀\r\n".encode(encoding)
    await desk.call("write_file", file_path="wide.txt", content="é\n")
    assert path.read_bytes() == bom + "é\r\n".encode(encoding)
    path.write_bytes(bom + b"a")
    assert "damaged" in (await desk.call("read_file", file_path="wide.txt")).output


# --- D27, N16: paths ---------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path, workspace: Path) -> Path:
    path = tmp_path / "out"
    path.mkdir()
    (path / "s.txt").write_text("secret\n")
    (workspace / "etc-link").symlink_to(path)
    (workspace / "inner").mkdir()
    (workspace / "inner-link").symlink_to("inner")
    return path


@pytest.mark.anyio
async def test_D27_without_a_sandbox_the_outside_is_allowed_and_named(desk: Any, outside: Path) -> None:
    read = await desk.call("read_file", file_path="etc-link/s.txt")
    assert read.output == f"     1\tsecret\n[a link leads to {outside / 's.txt'}]"
    wrote = await desk.call("write_file", file_path="etc-link/new.txt", content="x")
    assert f"(a link leads to {outside / 'new.txt'})" in wrote.output
    assert (await desk.call("read_file", file_path=str(outside / "s.txt"))).output == "     1\tsecret"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "path", ["etc-link/s.txt", "etc-link", "../out/s.txt", "{outside}/s.txt", "inner/../../out/s.txt"]
)
async def test_D27_confined_the_outside_is_refused_by_its_real_path(
    make_desk: Any, workspace: Path, outside: Path, path: str
) -> None:
    desk = make_desk(confinement=Within((workspace,)))
    path = path.format(outside=outside)
    for name, args in (
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old_string": "secret", "new_string": "x"}),
    ):
        answer = await desk.call(name, file_path=path, **args)
        assert "not allowed to" in answer.output
        assert answer.stop_reason == "failed"
    answer = await desk.call("read_file", file_path=path)
    assert "secret" not in answer.output
    assert names_in(outside) == ["s.txt"]
    assert (outside / "s.txt").read_text() == "secret\n"
    if path.startswith("etc-link"):
        assert str(outside) in answer.output


@pytest.mark.anyio
async def test_D27_links_that_stay_inside_and_a_linked_workspace_work(
    make_desk: Any, workspace: Path, outside: Path, tmp_path: Path
) -> None:
    linked = tmp_path / "wslink"
    linked.symlink_to(workspace)
    desk = make_desk(confinement=Within((workspace,)))
    desk.environment.setup.workspace_dir = linked
    for path in ("inner-link/a.txt", str(linked / "b.txt"), str(workspace / "c.txt")):
        answer = await desk.call("write_file", file_path=path, content="x")
        assert answer.stop_reason is None, answer.output
    assert (workspace / "inner" / "a.txt").exists()
    assert "(a link" not in (await desk.call("write_file", file_path=str(linked / "d.txt"), content="x")).output


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["", "  ", "a\0b", "x" * 300, "plain.txt/below"])
async def test_N16_what_is_no_path_is_said(desk: Any, workspace: Path, path: str) -> None:
    (workspace / "plain.txt").write_text("x")
    for name, args in (("read_file", {}), ("write_file", {"content": "x"})):
        answer = await desk.call(name, file_path=path, **args)
        assert answer.output.startswith("[tool error] ")
        assert "Traceback" not in answer.output


@pytest.mark.anyio
async def test_N16_the_home_directory_is_known(desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "note").write_text("at home\n")
    assert (await desk.call("read_file", file_path="~/note")).output == "     1\tat home"


# --- D28, N15: stale content -------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("same_size_and_time", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
async def test_D28_a_file_changed_since_it_was_read_is_not_overwritten(
    make_desk: Any, workspace: Path, same_size_and_time: bool, resumed: bool
) -> None:
    desk = make_desk()
    path = workspace / "f.txt"
    path.write_text("v1\n")
    await desk.call("read_file", file_path="f.txt")
    times = path.stat()
    path.write_text("v9\n" if same_size_and_time else "v1 plus user line\n")
    if same_size_and_time:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    users = path.read_text()
    if resumed:
        desk = make_desk()
    answer = await desk.call("write_file", file_path="f.txt", content="v2\n")
    assert "has changed since you last read it" in answer.output
    assert answer.stop_reason == "failed"
    assert path.read_text() == users
    await desk.call("read_file", file_path="f.txt")
    assert (await desk.call("write_file", file_path="f.txt", content="v2\n")).output.startswith("Overwrote f.txt")


@pytest.mark.anyio
async def test_D28_own_writes_are_known_also_after_resume(make_desk: Any, workspace: Path, scratchpad: Path) -> None:
    desk = make_desk()
    for number in range(3):
        answer = await desk.call("write_file", file_path="own.txt", content=f"v{number}\n")
        assert answer.stop_reason is None
    await desk.call("edit_file", file_path="own.txt", old_string="v2", new_string="v3")
    with (scratchpad / "files.jsonl").open("ab") as ledger:
        ledger.write(b'{"path": "torn')
    answer = await make_desk().call("write_file", file_path="own.txt", content="v4\n")
    assert answer.output == "Overwrote own.txt (1 line, 3 bytes)\n@@ -1,1 +1,1 @@\n-v3\n+v4"
    answer = await make_desk().call("write_file", file_path="own.txt", content="v5\n")
    assert answer.stop_reason is None
    lines = (scratchpad / "files.jsonl").read_bytes().splitlines()
    last = msgspec.json.decode(lines[-1])
    assert set(last) == {"path", "size", "mtime_ns", "sha256", "written"}
    assert last["path"] == str(workspace / "own.txt")
    assert (scratchpad / "files.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.anyio
async def test_N15_touching_a_file_does_not_make_it_stale(desk: Any, workspace: Path) -> None:
    path = workspace / "f.txt"
    path.write_text("v1\n")
    await desk.call("read_file", file_path="f.txt")
    os.utime(path, (1, 1))
    assert (await desk.call("write_file", file_path="f.txt", content="v2\n")).stop_reason is None


@pytest.mark.anyio
async def test_N15_an_existing_file_that_was_never_read_is_not_overwritten(desk: Any, workspace: Path) -> None:
    (workspace / "f.txt").write_text("precious\n")
    answer = await desk.call("write_file", file_path="f.txt", content="x")
    assert "you have not read it" in answer.output
    assert (workspace / "f.txt").read_text() == "precious\n"


@pytest.mark.anyio
async def test_N15_an_edit_needs_no_reading_and_tells_of_a_change(desk: Any, workspace: Path) -> None:
    path = workspace / "f.txt"
    path.write_text("a\nb\n")
    answer = await desk.call("edit_file", file_path="f.txt", old_string="a", new_string="A")
    assert "somebody else" not in answer.output
    path.write_text("A\nb\nuser\n")
    answer = await desk.call("edit_file", file_path="f.txt", old_string="b", new_string="B")
    assert "[somebody else changed this file since you last saw it; read it again]" in answer.output
    assert path.read_text() == "A\nB\nuser\n"
    refused = await desk.call("write_file", file_path="f.txt", content="without the user's line\n")
    assert "has changed since you last read it" in refused.output


@pytest.mark.anyio
async def test_N15_parallel_edits_of_one_file_do_not_lose_each_other(make_desk: Any, workspace: Path) -> None:
    path = workspace / "f.txt"
    path.write_text("".join(f"<{number}>\n" for number in range(12)))
    desk = make_desk()
    async with anyio.create_task_group() as group:
        for number in range(12):
            args = {"file_path": "f.txt", "old_string": f"<{number}>", "new_string": f"[{number}]"}
            call = tool_call("edit_file", msgspec.json.encode(args).decode(), f"c{number}")
            group.start_soon(desk.environment.execute_tool, ToolExecutionRequest(call), lambda message: None)
    assert path.read_text() == "".join(f"[{number}]\n" for number in range(12))


@pytest.mark.anyio
async def test_N15_a_change_between_look_and_write_wins(
    desk: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workspace / "f.txt"
    path.write_text("a\n")

    def user_saves(descriptor: int) -> None:
        path.write_text("the user's\n")

    monkeypatch.setattr(os, "fsync", user_saves)
    answer = await desk.call("edit_file", file_path="f.txt", old_string="a", new_string="b")
    assert "was changed by somebody else just now" in answer.output
    assert path.read_text() == "the user's\n"
    path.unlink()
    answer = await desk.call("write_file", file_path="f.txt", content="mine")
    assert "was changed by somebody else just now" in answer.output
    assert path.read_text() == "the user's\n"
    assert leftovers(workspace) == []


@pytest.mark.anyio
async def test_N15_a_full_disk_leaves_the_old_file_and_nothing_else(
    desk: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workspace / "f.txt"
    path.write_text("old\n")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    answer = await desk.call("edit_file", file_path="f.txt", old_string="old", new_string="new")
    assert answer.output == "[tool error] f.txt: No space left on device"
    assert path.read_text() == "old\n"
    assert names_in(workspace) == ["f.txt"]


@pytest.mark.anyio
async def test_N15_without_unnamed_files_writes_work_the_same(
    desk: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    (workspace / temporary_name(Path("f.txt"))).write_text("left by a kill")
    await desk.call("write_file", file_path="f.txt", content="one\n")
    await desk.call("write_file", file_path="f.txt", content="two\n")
    assert (workspace / "f.txt").read_text() == "two\n"
    assert names_in(workspace) == ["f.txt"]


@pytest.mark.anyio
async def test_N15_the_next_write_or_the_next_start_clears_what_a_kill_left(
    make_desk: Any, workspace: Path, scratchpad: Path
) -> None:
    desk = make_desk()
    await desk.call("write_file", file_path="f.txt", content="one\n")
    leftover = workspace / temporary_name(Path("f.txt"))
    leftover.write_text("half")
    await desk.call("write_file", file_path="f.txt", content="two\n")
    assert names_in(workspace) == ["f.txt"]
    leftover.write_text("half")
    (scratchpad / leftover.name).write_text("half")
    with (scratchpad / "files.jsonl").open("ab") as ledger:
        ledger.write(msgspec.json.encode({"path": str(workspace / "f.txt"), "writing": True}) + b"\n")
    make_desk()
    assert names_in(workspace) == ["f.txt"]
    assert leftovers(scratchpad) == []


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.long)])
def test_D26_N15_a_kill_leaves_old_or_new_and_no_debris(workspace: Path, scratchpad: Path, kills: int) -> None:
    script = Path(__file__).with_name("kill_during_writes.py")
    ran = subprocess.run(
        [sys.executable, str(script), str(workspace), str(scratchpad), str(kills)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    assert msgspec.json.decode(ran.stdout)["wrong"] == []
    Environment(EnvironmentConfig(workspace, scratchpad_dir=scratchpad))  # the next start
    assert leftovers(scratchpad) == []


@pytest.mark.anyio
@pytest.mark.parametrize("unnamed", [True, False])
async def test_N15_a_scratchpad_beyond_a_mount_makes_no_difference(
    desk: Any, workspace: Path, scratchpad: Path, monkeypatch: pytest.MonkeyPatch, *, unnamed: bool
) -> None:
    def refuse(call: Any) -> Any:
        def checked(*args: Any, src_dir_fd: int, dst_dir_fd: int, **kwargs: Any) -> None:
            places = {Path(f"/proc/self/fd/{each}").readlink() for each in (src_dir_fd, dst_dir_fd)}
            if scratchpad in places:
                refused.append(call.__name__)
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            call(*args, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **kwargs)

        return checked

    refused: list[str] = []
    await desk.call("write_file", file_path="f.txt", content="one\n")
    monkeypatch.setattr(os, "link", refuse(os.link))
    monkeypatch.setattr(os, "rename", refuse(os.rename))
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE")
    await desk.call("write_file", file_path="f.txt", content="two\n")
    assert (workspace / "f.txt").read_text() == "two\n"
    assert refused == ["link" if unnamed else "rename"]
    assert names_in(workspace) == ["f.txt"]
    assert leftovers(scratchpad) == []


# --- D29, N13: reading -------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_D29_what_is_no_text_is_refused_with_advice(desk: Any, workspace: Path) -> None:
    (workspace / "data.txt").write_bytes(b"PK\x03\x04" + b"\0" * 100)
    (workspace / "packed").write_bytes(gzip.compress(b"x"))
    (workspace / "nul.txt").write_bytes(b"text\0more")
    (workspace / "sub").mkdir()
    (workspace / "sub" / "inner").mkdir()
    (workspace / "sub" / "a.py").write_text("")
    os.mkfifo(workspace / "pipe")
    expected = {
        shutil.which("ls") or "/bin/ls": "an ELF executable",
        "data.txt": "a zip archive",
        "packed": "gzip data",
        "nul.txt": "binary data, 9 bytes",
        "sub": "is a directory. It holds: a.py, inner/",
        "/dev/zero": "is a device, not a file",
        "pipe": "is a fifo, not a file",
        "nowhere.txt": "There is no file nowhere.txt",
        "nowhere/at/all": "no directory for it",
    }
    for path, words in expected.items():
        answer = await desk.call("read_file", file_path=path)
        assert words in answer.output
        assert answer.stop_reason == "failed"
        assert len(answer.output) < 500
    for path in ("sub", "/dev/null", "pipe"):
        assert (await desk.call("write_file", file_path=path, content="x")).stop_reason == "failed"


@pytest.mark.anyio
async def test_D29_huge_files_take_bounded_time_and_memory(desk: Any, workspace: Path) -> None:
    with (workspace / "sparse").open("wb") as file:
        file.truncate(2 * 1024**3)
    with (workspace / "text").open("wb") as file:
        file.write(b"first\n" * 10)
        file.seek(2 * 1024**3)
        file.write(b"\nlast\n")
    (workspace / "long").write_bytes(b"x" * 5_000_000 + b"\nshort\n")
    tracemalloc.start()
    started = time.process_time()
    try:
        sparse = await desk.call("read_file", file_path="sparse")
        head = await desk.call("read_file", file_path="text", limit=10)
        long = await desk.call("read_file", file_path="long")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "binary data" in sparse.output
    assert "binary data" in head.output
    assert long.output == f"     1\t{'x' * 2000}… [line cut, 5,000,000 bytes long]\n     2\tshort"
    assert peak < 24_000_000
    assert time.process_time() - started < 5


@pytest.mark.anyio
async def test_D29_a_text_too_large_to_hold_is_paged(desk: Any, workspace: Path) -> None:
    line = b"0123456789" * 10 + b"\n"
    with (workspace / "big").open("wb") as file:
        for _ in range(200):
            file.write(line * 1000)
        file.write(b"y" * 3_000_000 + b"\nthe end")
    tracemalloc.start()
    try:
        answer = await desk.call("read_file", file_path="big", offset=199_999)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    lines = answer.output.split("\n")
    assert lines[0] == "199999\t" + line.decode().strip()
    assert lines[2].endswith("… [line cut, 3,000,000 bytes long]")
    assert lines[3] == "200002\tthe end"
    assert peak < 16_000_000
    assert "continue with offset=11]" in (await desk.call("read_file", file_path="big", limit=10)).output
    past = await desk.call("read_file", file_path="big", offset=300_000)
    assert past.output == "[tool error] The file has 200,002 lines; there is no line 300,000."
    stale = await desk.call("write_file", file_path="big", content="x")
    assert stale.stop_reason is None
    for name in ("edit_file",):
        with (workspace / "big").open("wb") as file:
            file.truncate(17 * 1024**2)
        answer = await desk.call(name, file_path="big", old_string="a", new_string="b")
        assert "larger than 16 MiB" in answer.output


@pytest.mark.anyio
async def test_N13_lines_are_numbered_and_paged(desk: Any, workspace: Path) -> None:
    (workspace / "f.txt").write_text("".join(f"line {number}\n" for number in range(1, 3001)))
    answer = await desk.call("read_file", file_path="f.txt")
    assert answer.output.startswith("     1\tline 1\n     2\tline 2\n")
    assert answer.output.endswith("  2000\tline 2000\n[lines 1-2000 of 3000; continue with offset=2001]")
    rest = await desk.call("read_file", file_path="f.txt", offset=2001)
    assert rest.output.startswith("  2001\tline 2001\n")
    assert rest.output.endswith("  3000\tline 3000")
    past = await desk.call("read_file", file_path="f.txt", offset=3001)
    assert past.output == "[tool error] The file has 3,000 lines; there is no line 3,001."


@pytest.mark.anyio
async def test_N13_a_window_that_is_too_large_ends_at_a_line_with_a_note(desk: Any, workspace: Path) -> None:
    (workspace / "wide.txt").write_text(("w" * 1000 + "\n") * 500)
    shown: list[str] = []
    offset = 1
    while True:
        answer = await desk.call("read_file", file_path="wide.txt", offset=offset)
        assert "output cut" not in answer.output
        lines = answer.output.split("\n")
        shown += [line.partition("\t")[2] for line in lines if "\t" in line]
        if "continue with offset=" not in lines[-1]:
            break
        offset = int(lines[-1].partition("offset=")[2].rstrip("]"))
    assert shown == ["w" * 1000] * 500


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("content", "output"),
    [
        (b"", "[the file is empty]"),
        (b"\n", "     1\t"),
        (b"\n\n", "     1\t\n     2\t"),
        (b"a", "     1\ta"),
        (b"a\n\nb", "     1\ta\n     2\t\n     3\tb"),
        ("é\u2028x\n".encode(), "     1\té\u2028x"),
        (b"\xef\xbb\xbf", "[the file is empty]"),
    ],
)
async def test_N13_small_files(desk: Any, workspace: Path, content: bytes, output: str) -> None:
    (workspace / "f").write_bytes(content)
    answer = await desk.call("read_file", file_path="f")
    assert answer.output.removesuffix("\n[no output]") == output or answer.output == output


@pytest.mark.anyio
async def test_N13_a_missing_file_is_told_with_what_is_near(desk: Any, workspace: Path) -> None:
    (workspace / "configuration.toml").write_text("")
    answer = await desk.call("read_file", file_path="configuraton.toml")
    assert answer.output == "[tool error] There is no file configuraton.toml. Near it: configuration.toml."


@pytest.mark.anyio
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
async def test_N13_files_that_say_they_are_empty_are_read(desk: Any) -> None:
    assert "Name:" in (await desk.call("read_file", file_path="/proc/self/status")).output


# --- N13: writing and editing ------------------------------------------------------------------------


@pytest.mark.anyio
async def test_N13_write_says_what_it_did(desk: Any, workspace: Path) -> None:
    created = await desk.call("write_file", file_path="a/b/c.py", content="x = 1\ny = 2\n")
    assert created.output == "Created a/b/c.py (2 lines, 12 bytes)"
    over = await desk.call("write_file", file_path="a/b/c.py", content="x = 1\ny = 3")
    assert over.output.startswith(
        "Overwrote a/b/c.py (2 lines, 11 bytes)\n@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n+y = 3\n\\ No newline at end"
    )
    same = await desk.call("write_file", file_path="a/b/c.py", content="x = 1\ny = 3")
    assert "the content is the same as before" in same.output
    assert (await desk.call("write_file", file_path="empty", content="")).output == "Created empty (0 lines, 0 bytes)"
    assert (await desk.call("write_file", file_path="dir/", content="")).stop_reason == "failed"
    notes = desk.environment.context_notes()
    assert notes == f"Files written in this session:\n- {workspace / 'a/b/c.py'}\n- {workspace / 'empty'}"


@pytest.mark.anyio
async def test_N13_edit_echoes_a_diff_with_line_numbers_of_the_file(desk: Any, workspace: Path) -> None:
    (workspace / "f.py").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    answer = await desk.call("edit_file", file_path="f.py", old_string="line 50\n", new_string="fifty\nand a half\n")
    assert answer.output == (
        "Edited f.py\n@@ -47,7 +47,8 @@\n line 47\n line 48\n line 49\n-line 50\n+fifty\n+and a half\n"
        " line 51\n line 52\n line 53"
    )
    every = await desk.call("edit_file", file_path="f.py", old_string="line 9", new_string="LINE 9", replace_all=True)
    assert every.output.startswith("Edited f.py in 11 places\n@@ -6,7 +6,7 @@")
    assert "\n line 12\n@@ -88,14 +88,14 @@\n line 87\n" in every.output
    assert every.output.endswith(
        "-line 99\n+LINE 90\n+LINE 91\n+LINE 92\n+LINE 93\n+LINE 94\n+LINE 95\n+LINE 96\n+LINE 97\n"
        "+LINE 98\n+LINE 99\n line 100"
    )


@pytest.mark.anyio
async def test_N13_edit_wants_exactly_one_place(desk: Any, workspace: Path) -> None:
    path = workspace / "f.txt"
    path.write_text("a\n" * 15)
    answer = await desk.call("edit_file", file_path="f.txt", old_string="a", new_string="b")
    assert "occurs 15 times in f.txt (lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)" in answer.output
    assert path.read_text() == "a\n" * 15
    for old, new, words in (("", "x", "old_string is empty"), ("a", "a", "are the same")):
        assert words in (await desk.call("edit_file", file_path="f.txt", old_string=old, new_string=new)).output
    missing = await desk.call("edit_file", file_path="f.tx", old_string="a", new_string="b")
    assert "There is no file f.tx. Near it: f.txt." in missing.output


SOURCE = (
    "def f(x):\n\tif x:\n\t\treturn 'yes'\n\treturn \u201cno\u201d\n\n\n"
    "class Widget:   \n    size = 10\n    name = 'w'\n"
)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("old", "words"),
    [
        ("    if x:\n        return 'yes'", "lines 2-3, differs in indentation (tabs against spaces)"),
        ("class Widget:\n    size = 10", "lines 7-8, differs in white space at the end of a line"),
        ("    size = 10\n  name = 'w'", "lines 8-9, differs in indentation"),
        ("def f(x):\n\n\tif x:", "differs in blank lines or white space"),
        ('return "no"', "line 4, differs in quotes, dashes or other typographic characters"),
        ("return \u2018yes\u2019", "line 3, differs in quotes"),
        ("Class widget:", "line 7, differs in upper and lower case"),
        ("     8\t    size = 10\n     9\t    name = 'w'", "contains the line numbers of read_file"),
        ("size = 10\\n    name", "send a real line end"),
        ("size = 11\nname", "lines 8-9, has other words"),
        ("    size = 12\n    nom = 'w'", "lines 8-9, has other words"),
        ("completely different thing", "Nothing like it was found"),
        ("\n\n\n\n\n", "Nothing like it was found"),
    ],
)
async def test_N13_a_mismatch_names_the_nearest_place_and_the_reason(
    desk: Any, workspace: Path, old: str, words: str
) -> None:
    (workspace / "f.py").write_text(SOURCE)
    answer = await desk.call("edit_file", file_path="f.py", old_string=old, new_string="x")
    assert answer.output.startswith("[tool error] old_string is not in f.py. ")
    assert words in answer.output
    assert (workspace / "f.py").read_text() == SOURCE


@pytest.mark.anyio
async def test_N13_a_mismatch_in_line_ends_is_named(desk: Any, workspace: Path) -> None:
    (workspace / "f.txt").write_bytes(b"a\nb\n")
    answer = await desk.call("edit_file", file_path="f.txt", old_string="a\r\nb", new_string="x")
    assert "line ends" in answer.output


@pytest.mark.anyio
async def test_N13_a_mismatch_in_a_large_file_is_told_in_bounded_time(desk: Any, workspace: Path) -> None:
    (workspace / "big.txt").write_text("".join(f"some line {number} of text\n" for number in range(60_000)))
    (workspace / "mid.txt").write_text("".join(f"some line {number} of text\n" for number in range(3_000)))
    started = time.process_time()
    for name in ("big.txt", "mid.txt"):
        answer = await desk.call("edit_file", file_path=name, old_string="sum line 77 off test\nx", new_string="x")
        assert answer.stop_reason == "failed"
    assert time.process_time() - started < 5


@pytest.mark.anyio
async def test_S6_the_mask_of_a_secret_is_not_written(make_desk: Any, workspace: Path) -> None:
    desk = make_desk(vault={"TOKEN": "s3cret-value"})
    (workspace / "f").write_text("token = abc\n")
    for name, args in (
        ("write_file", {"content": "token = [vault:TOKEN]\n"}),
        ("edit_file", {"old_string": "abc", "new_string": "[vault:TOKEN]"}),
    ):
        answer = await desk.call(name, file_path="f", **args)
        assert "only stands for a secret value" in answer.output
    assert (workspace / "f").read_text() == "token = abc\n"
    fine = await desk.call("edit_file", file_path="f", old_string="abc", new_string="[vault:OTHER]")
    assert fine.stop_reason is None


@pytest.mark.anyio
@pytest.mark.skipif(os.getuid() == 0, reason="root may write anything")
async def test_N14_a_write_protected_file_is_respected(desk: Any, workspace: Path) -> None:
    (workspace / "f").write_text("a")
    (workspace / "f").chmod(0o444)
    answer = await desk.call("edit_file", file_path="f", old_string="a", new_string="b")
    assert "write-protected" in answer.output


# --- definitions -------------------------------------------------------------------------------------


def test_the_file_tools_cost_few_tokens() -> None:
    tools = [BUILTIN_TOOL_DEFINITIONS[name].for_the_model() for name in ("read_file", "edit_file", "write_file")]
    assert len(msgspec.json.encode(tools)) / 4 <= 450


def test_builtin_entries_are_names_or_changes_to_the_default() -> None:
    assert builtin_definition("read_file") == BUILTIN_TOOL_DEFINITIONS["read_file"]
    changed = builtin_definition({"name": "read_file", "maxOutputLength": 5, "timeout_ms": 7})
    assert (changed.max_output_length, changed.timeout_ms, changed.permission) == (5, 7, "r")
    for wrong, words in (
        ("fly", "there are .*read_file, edit_file"),
        ({"name": "read_file", "timeout_ms": "soon"}, r"Expected `int`"),
        ({"name": "read_file", "colour": "red"}, "colour"),
        ({}, "no built-in tool None"),
    ):
        with pytest.raises(ConfigError, match=words):
            builtin_definition(wrong)
