"""What a checkpoint covers, and what it names as not covered."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from pathlib import Path

import pytest
from tests.support.checkpoint_kit import Keeper, as_nobody, git, killed_after

from penguin.environment.checkpoints.limits import Limits
from penguin.environment.checkpoints.manifest import Entry
from penguin.environment.checkpoints.objects import Objects
from penguin.environment.checkpoints.scan import IGNORED, OUT_OF_TIME, SPECIAL, UNREADABLE, Stopped
from penguin.environment.checkpoints.stat_cache import Known

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")


def test_every_kind_of_name_is_an_entry(keeper: Keeper) -> None:
    keeper.write("a.txt", "one", 0o640)
    keeper.write(b"d/\xff", "two")
    (keeper.workspace / "link").symlink_to("a.txt")
    found = {entry.path: entry for entry in keeper.manifest(keeper.take()).entries}
    assert sorted(found) == [b"a.txt", b"d", b"d/\xff", b"link"]
    assert (found[b"a.txt"].kind, found[b"a.txt"].mode, found[b"a.txt"].size) == ("file", 0o640, 3)
    assert found[b"link"] == Entry(b"link", "link", 0, 5, b"a.txt")
    assert found[b"d"].kind == "directory"


def test_the_same_tree_has_the_same_name_wherever_and_whenever(keeper: Keeper, tmp_path: Path) -> None:
    keeper.write("b", "x")
    keeper.write("a/c", "y")
    other = Keeper(tmp_path / "other", keeper.directory)
    other.workspace.mkdir()
    other.write("a/c", "y")
    other.write("b", "x")
    os.utime(other.workspace / "b", (1, 1))
    assert keeper.take() == other.take() == keeper.take()
    keeper.write("b", "z")
    assert keeper.take() != other.take()


def test_devices_sockets_and_pipes_are_named_and_nothing_hangs(keeper: Keeper) -> None:
    os.mkfifo(keeper.workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(keeper.workspace)  # the path of a socket may only be short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        name = keeper.take()
    assert keeper.skipped(name) == {b"pipe": SPECIAL, b"socket": SPECIAL}


def test_what_cannot_be_read_is_named_and_the_rest_is_covered(keeper: Keeper) -> None:
    keeper.write("open", "x")
    keeper.write("shut-file", "x", 0)
    keeper.write("shut-directory/inside", "x")
    keeper.write("no-entry/inside", "x")
    (keeper.workspace / "shut-directory").chmod(0)
    (keeper.workspace / "no-entry").chmod(0o444)
    expected = {b"shut-file": UNREADABLE, b"shut-directory": UNREADABLE, b"no-entry/inside": UNREADABLE}

    def work() -> None:
        name = keeper.take()
        assert keeper.skipped(name) == expected, keeper.skipped(name)
        assert b"open" in keeper.paths(name)

    if os.geteuid() == 0:
        for path in (keeper.workspace, *keeper.workspace.iterdir(), keeper.workspace.parent):
            os.chown(path, 65534, 65534)
        for above in keeper.workspace.parents:
            if above.name.startswith(("pytest-", "popen-")):
                above.chmod(above.stat().st_mode | 0o001)
    as_nobody(work)
    for shut in ("shut-directory", "no-entry"):
        (keeper.workspace / shut).chmod(0o755)


def test_git_itself_is_never_part_of_it(keeper: Keeper) -> None:
    keeper.write(".git/config", "x")
    keeper.write("module/.git", "gitdir: ../.git/modules/module")
    keeper.write("module/code", "x")
    name = keeper.take()
    assert keeper.paths(name) == [b"module", b"module/code"]
    assert keeper.skipped(name) == {}


def test_the_harness_keeps_none_of_its_own_files(keeper: Keeper) -> None:
    keeper.write("data/traces/session", "x")
    keeper.write("code", "x")
    name = keeper.take(excluded=(keeper.workspace / "data", keeper.workspace / "not-there"))
    assert keeper.paths(name) == [b"code"]
    assert list(keeper.skipped(name)) == [b"data"]


# ---------------------------------------------------------------- what is ignored


@needs_git
def test_a_large_ignored_tree_is_named_and_a_small_one_covered(keeper: Keeper) -> None:
    git(keeper.workspace, "init", "-q")
    keeper.write(".gitignore", "node_modules/\n.env\nbuild/\n*.o\n/huge.bin\n")
    keeper.write(".env", "KEY=1")
    keeper.write("src/a.c", "int x;")
    keeper.write("src/a.o", "object")
    keeper.write("build/out", "small")
    keeper.write("untracked.txt", "counts too")
    keeper.write("huge.bin", b"\0" * 3_000)
    for number in range(40):
        keeper.write(f"node_modules/p{number}/index.js", "x")
    name = keeper.take(Limits(ignored_files=20, ignored_bytes=2_000))
    assert keeper.skipped(name) == {b"node_modules": IGNORED, b"huge.bin": IGNORED}
    assert keeper.paths(name) == [
        b".env",
        b".gitignore",
        b"build",
        b"build/out",
        b"src",
        b"src/a.c",
        b"src/a.o",
        b"untracked.txt",
    ]


@needs_git
def test_tracked_files_are_covered_whatever_their_name(keeper: Keeper) -> None:
    git(keeper.workspace, "init", "-q")
    for number in range(5):
        keeper.write(f"node_modules/{number}", "checked in")
    git(keeper.workspace, "add", "-f", ".")
    keeper.write(".gitignore", "node_modules\n")
    name = keeper.take(Limits(ignored_files=2))
    assert len([path for path in keeper.paths(name) if path.startswith(b"node_modules/")]) == 5


def test_without_git_what_tools_make_counts_as_ignored(keeper: Keeper) -> None:
    for number in range(10):
        keeper.write(f"node_modules/p{number}/index.js", "x")
        keeper.write(f"src/{number}.py", "x")
    name = keeper.take(Limits(ignored_files=5))
    assert keeper.skipped(name) == {b"node_modules": IGNORED}
    assert len(keeper.paths(name)) == 11


@needs_git
def test_a_repository_inside_the_workspace_is_judged_by_names(keeper: Keeper) -> None:
    git(keeper.workspace, "init", "-q")
    (keeper.workspace / "inner").mkdir()
    git(keeper.workspace / "inner", "init", "-q")
    for number in range(10):
        keeper.write(f"inner/node_modules/{number}", "x")
    keeper.write("inner/code", "x")
    name = keeper.take(Limits(ignored_files=5))
    assert keeper.skipped(name) == {b"inner/node_modules": IGNORED}
    assert b"inner/code" in keeper.paths(name)


@needs_git
def test_a_workspace_that_is_itself_ignored_is_covered(keeper: Keeper) -> None:
    git(keeper.workspace, "init", "-q")
    keeper.write(".gitignore", "out/\n")
    keeper.write("out/work/file", "x")
    inner = Keeper(keeper.workspace / "out" / "work", keeper.directory)
    assert inner.paths(inner.take(Limits(ignored_files=0))) == [b"file"]


@needs_git
def test_a_repository_cannot_have_programs_run(keeper: Keeper, tmp_path: Path) -> None:
    git(keeper.workspace, "init", "-q")
    keeper.write("file", "x")
    git(keeper.workspace, "add", ".")
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    git(keeper.workspace, "config", "core.fsmonitor", str(trap))
    git(keeper.workspace, "status")
    sprung = tmp_path / "sprung"
    assert sprung.exists(), "the trap does not work, so this test proves nothing"
    sprung.unlink()
    keeper.take()
    assert not sprung.exists()


# ---------------------------------------------------------------- limits


def test_a_file_beyond_the_limit_is_named(keeper: Keeper) -> None:
    keeper.write("large", b"\0" * 101)
    keeper.write("fits", b"\0" * 100)
    name = keeper.take(Limits(file_bytes=100))
    assert keeper.paths(name) == [b"fits"]
    assert list(keeper.skipped(name)) == [b"large"]


def test_what_lies_deep_goes_first_when_there_is_too_much(keeper: Keeper) -> None:
    keeper.write("top.txt", "x")
    keeper.write("z-src/main.py", "x")
    for number in range(20):
        keeper.write(f"a-data/{number}", "x")
    name = keeper.take(Limits(files=10))
    assert list(keeper.skipped(name)) == [b"a-data"]
    assert b"z-src/main.py" in keeper.paths(name)


def test_bytes_altogether_are_limited(keeper: Keeper) -> None:
    for name in "abc":
        keeper.write(name, b"\0" * 40)
    assert keeper.skipped(keeper.take(Limits(total_bytes=100))) == {b"c": "the workspace holds more than 100 bytes"}


def test_time_is_limited_but_not_for_what_is_known(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    old = keeper.write("known", "x")
    os.utime(old, (1, 1))
    keeper.write("later/new", "x")
    monkeypatch.setattr("penguin.environment.checkpoints.scan.settled", lambda *_: True)
    keeper.take()
    keeper.write("new", "x")
    seen = keeper.look(Limits(seconds=-1))
    assert not seen.in_time
    assert {each.path: each.why for each in seen.manifest.skipped} == {b"": OUT_OF_TIME}


def test_whatever_must_be_kept_is_covered_beyond_all_limits(keeper: Keeper) -> None:
    for number in range(10):
        keeper.write(f"node_modules/{number}", "x")
        keeper.write(f"data/{number}", "x" * 50)
    kept = frozenset({b"node_modules/3", b"data/7", b"data/not-there"})
    name = keeper.take(Limits(ignored_files=5, files=5, file_bytes=10), kept=kept)
    assert keeper.paths(name) == [b"data", b"data/7", b"node_modules", b"node_modules/3"]
    assert {b"node_modules", b"data"} <= set(keeper.skipped(name))


# ---------------------------------------------------------------- what did not change is not read


class _Counting(Objects):
    reads = 0

    def add_from(self, *args: object) -> tuple[bytes, int]:
        _Counting.reads += 1
        return super().add_from(*args)  # type: ignore[arg-type]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> type[_Counting]:
    monkeypatch.setattr("penguin.environment.checkpoints.store.Objects", _Counting)
    _Counting.reads = 0
    return _Counting


def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if everything had been left alone for long before it was read."""
    monkeypatch.setattr("penguin.environment.checkpoints.scan.settled", lambda *_: True)


def test_only_what_changed_is_read_again(
    keeper: Keeper, reads: type[_Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    _settled(monkeypatch)
    for number in range(10):
        keeper.write(f"{number}", "x")
    keeper.take()
    assert reads.reads == 10
    keeper.take()
    assert reads.reads == 10
    keeper.write("3", "y")
    (keeper.workspace / "4").chmod(0o600)
    name = keeper.take()
    assert reads.reads == 12
    assert keeper.manifest(name).by_path()[b"4"].mode == 0o600


def test_a_file_that_was_just_written_is_read_again_for_its_clock_may_not_have_moved(
    keeper: Keeper, reads: type[_Counting]
) -> None:
    keeper.write("a", "x")
    keeper.take()
    keeper.take()
    assert reads.reads == 2


@pytest.mark.parametrize("member", ["mtime_ns", "ctime_ns", "inode"])
def test_each_part_of_the_stat_counts(keeper: Keeper, member: str) -> None:
    place = keeper.write("a", "x")
    status = place.stat()
    entry = Entry(b"a", "file", 0o644, 1, b"")
    stat = {"mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns, "inode": status.st_ino}
    assert Known(entry, **stat).fits(status)
    assert not Known(entry, **(stat | {member: 1})).fits(status)
    assert not Known(Entry(b"a", "file", 0o644, 2, b""), **stat).fits(status)


def test_a_damaged_cache_only_costs_time(keeper: Keeper) -> None:
    keeper.write("a", "x")
    name = keeper.take()
    keeper.part.cache.path.write_bytes(b"\x00garbage")
    assert keeper.take() == name


# ---------------------------------------------------------------- stopping, killing, two at once


def test_nobody_waiting_stops_it(keeper: Keeper) -> None:
    keeper.write("a", "x")
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(Stopped):
        keeper.take(stopped=stopped)


def test_a_kill_at_any_moment_leaves_a_store_that_works(keeper: Keeper) -> None:
    for name in ("a", "b", "c/d"):
        keeper.write(name, f"content of {name}")
    before = keeper.picture()
    steps = 0
    while killed_after(steps, keeper.take):
        shutil.rmtree(keeper.directory / "sessions", ignore_errors=True)
        steps += 1
    assert steps > 3
    name = keeper.take()
    for path in ("a", "b", "c/d"):
        keeper.write(path, "new")
    assert keeper.restore(name) == []
    assert keeper.picture() == before


def test_two_at_once_keep_the_same(keeper: Keeper) -> None:
    for number in range(200):
        keeper.write(f"{number % 10}/{number}", f"content {number // 2}")
    names: list[str] = []
    threads = [threading.Thread(target=lambda: names.append(keeper.take())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 1
    assert len(names) == 4
    for entry in keeper.manifest(names[0]).entries:
        if entry.kind == "file":
            assert keeper.part.objects.read(entry.content)


def test_contents_and_names_are_private(keeper: Keeper) -> None:
    keeper.write("secret", "x", 0o644)
    keeper.take()
    modes = {path: path.stat().st_mode & 0o077 for path in keeper.directory.rglob("*") if path.is_dir()}
    assert set(modes.values()) == {0}
    assert keeper.directory.stat().st_mode & 0o077 == 0
