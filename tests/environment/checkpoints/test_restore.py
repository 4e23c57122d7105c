"""Going back: everything as it was, byte for byte, and nothing outside of it touched."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.checkpoint_kit import NOBODY, Keeper, as_nobody, killed_after

from penguin.environment.checkpoints.changes import Change, Reversal, Span
from penguin.environment.checkpoints.manifest import Entry
from penguin.environment.checkpoints.restore import CHANGED_JUST_NOW, Restore
from penguin.environment.checkpoints.scan import Seen


def everything(keeper: Keeper) -> None:
    """One of each kind of thing."""
    keeper.write("plain.txt", "one\n")
    keeper.write("no-newline", "end")
    keeper.write("crlf.txt", b"a\r\nb\r\n")
    keeper.write("empty")
    keeper.write("run.sh", "#!/bin/sh\n", 0o755)
    keeper.write("private", "secret", 0o600)
    keeper.write("read-only", "fixed", 0o444)
    keeper.write("setuid", "x", 0o4755)
    keeper.write(b"caf\xe9 \xff.txt", "not UTF-8")
    keeper.write("line\nbreak", "in a name")
    keeper.write("-rf", "looks like an option")
    keeper.write("deep/er/and/deeper.py", "x = 1\n")
    keeper.write(b"dir \xfe/inside", "y")
    keeper.write("big.bin", os.urandom(3 * 1024 * 1024 + 17))
    for name, target in [("to-file", "plain.txt"), ("dangling", "nowhere"), ("out", "/etc/hostname"), ("dir", "deep")]:
        (keeper.workspace / name).symlink_to(target)
    (keeper.workspace / os.fsdecode(b"link-to-\xe9")).symlink_to(os.fsdecode(b"\xff\xfe"))
    (keeper.workspace / "void" / "in-void").mkdir(parents=True)
    (keeper.workspace / "closed").mkdir(mode=0o700)
    (keeper.workspace / "closed").chmod(0o700)


def exchange(path: Path, make: Callable[[Path], object]) -> None:
    """Put something else under a name."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    make(path)


def test_all_that_was_deleted_comes_back(keeper: Keeper) -> None:
    everything(keeper)
    before, name = keeper.picture(), keeper.take()
    shutil.rmtree(keeper.workspace)
    keeper.workspace.mkdir()
    keeper.write("new", "goes")
    assert keeper.restore(name) == []
    assert keeper.picture() == before
    assert keeper.take() == name


@pytest.mark.parametrize(
    "change",
    [
        lambda ws: (ws / "plain.txt").write_text("two\n"),
        lambda ws: (ws / "plain.txt").write_text("ONE\n"),
        lambda ws: (ws / "run.sh").chmod(0o644),
        lambda ws: (ws / "void").chmod(0o500),
        lambda ws: (ws / "plain.txt").rename(ws / "renamed.txt"),
        lambda ws: (ws / "deep").rename(ws / "shallow"),
        lambda ws: (ws / "void" / "in-void").rmdir(),
        lambda ws: (ws / "new" / "empty" / "tree").mkdir(parents=True),
        lambda ws: exchange(ws / "to-file", lambda path: path.symlink_to("run.sh")),
        lambda ws: exchange(ws / "plain.txt", lambda path: path.symlink_to("run.sh")),
        lambda ws: exchange(ws / "to-file", lambda path: path.write_text("a file now")),
        lambda ws: exchange(ws / "plain.txt", lambda path: (path / "now-a-directory").mkdir(parents=True)),
        lambda ws: exchange(ws / "deep", lambda path: path.write_text("a file now")),
        lambda ws: exchange(ws / "deep", lambda path: path.symlink_to("void")),
        lambda ws: exchange(ws / "dir", lambda path: (path / "real").mkdir(parents=True)),
        lambda ws: (ws / "big.bin").write_bytes(b"\0" * 5),
        lambda ws: os.link(ws / "plain.txt", ws / "second-name"),
    ],
)
def test_any_change_is_taken_back(keeper: Keeper, change: Callable[[Path], object]) -> None:
    everything(keeper)
    before, name = keeper.picture(), keeper.take()
    change(keeper.workspace)
    changed, after = keeper.picture(), keeper.take()
    assert changed != before
    assert keeper.restore(name) == []
    assert keeper.picture() == before
    assert keeper.restore(after) == []
    assert keeper.picture() == changed


names = st.sampled_from(["a", "b", "c", "d\udcff"])
trees = st.recursive(
    st.tuples(st.binary(max_size=3), st.sampled_from([0o644, 0o755, 0o400])) | st.sampled_from(["link-a", "link-b/c"]),
    lambda inside: st.dictionaries(names, inside, max_size=3),
    max_leaves=8,
)


def grow(place: Path, tree: object) -> None:
    match tree:
        case dict():
            place.mkdir(exist_ok=True)
            for name, inside in tree.items():
                grow(place / name, inside)
        case (bytes() as content, int() as mode):
            place.write_bytes(content)
            place.chmod(mode)
        case target:
            place.symlink_to(str(target))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=st.dictionaries(names, trees, max_size=4), other=st.dictionaries(names, trees, max_size=4))
def test_from_any_tree_to_any_other_and_back(keeper: Keeper, one: object, other: object) -> None:
    pictures = []
    for tree in (one, other):
        shutil.rmtree(keeper.workspace)
        grow(keeper.workspace, tree)
        pictures.append((keeper.take(), keeper.picture()))
    for name, shown in (pictures[0], pictures[1], pictures[0]):
        assert keeper.restore(name) == []
        assert keeper.picture() == shown


def test_a_link_never_leads_out_of_the_workspace(keeper: Keeper, tmp_path: Path) -> None:
    keeper.write("deep/plain.txt", "mine")
    keeper.write("deep/gone.txt", "mine too")
    name = keeper.take()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "plain.txt").write_text("somebody else's")
    (outside / "more.txt").write_text("somebody else's")
    shutil.rmtree(keeper.workspace / "deep")
    (keeper.workspace / "deep").symlink_to(outside)
    assert keeper.restore(name) == []
    assert (keeper.workspace / "deep" / "plain.txt").read_text() == "mine"
    assert not (keeper.workspace / "deep").is_symlink()
    assert {path.name: path.read_text() for path in outside.iterdir()} == {
        "plain.txt": "somebody else's",
        "more.txt": "somebody else's",
    }


@pytest.mark.parametrize("path", [b"../outside", b"//outside", b"d/../../outside", b"..", b"d/."])
def test_a_manifest_that_was_tampered_with_leads_nowhere(keeper: Keeper, tmp_path: Path, path: bytes) -> None:
    (keeper.workspace / "d").mkdir()
    content = keeper.part.objects.add(b"x")
    seen = keeper.look()
    change = Change(path, None, Entry(path, "file", 0o644, 1, content))
    before = sorted(path.name for path in tmp_path.iterdir())
    assert [each.path for each in Restore(keeper.workspace, keeper.part.objects, seen).apply([change])] == [path]
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert keeper.picture() == {b"d": keeper.picture()[b"d"]}


def test_a_directory_that_becomes_a_link_in_this_moment_is_not_followed(keeper: Keeper, tmp_path: Path) -> None:
    keeper.write("deep/plain.txt", "mine")
    name = keeper.take()
    keeper.write("deep/plain.txt", "changed")
    seen, wanted = keeper.look(), keeper.manifest(name)
    outside = tmp_path / "outside"
    (keeper.workspace / "deep").rename(outside)
    (keeper.workspace / "deep").symlink_to(outside)
    failures = Restore(keeper.workspace, keeper.part.objects, seen).apply(Reversal([Span(wanted)], seen.manifest).todo)
    assert [failure.path for failure in failures] == [b"deep/plain.txt"]
    assert (outside / "plain.txt").read_text() == "changed"


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda ws: (ws / "changed").write_text("newest"),
        lambda ws: exchange(ws / "changed", lambda path: path.symlink_to("x")),
        lambda ws: (ws / "removed").write_text("newest"),
        lambda ws: (ws / "new").write_text("newest"),
    ],
)
def test_what_changes_in_the_very_moment_is_left_alone_and_named(
    keeper: Keeper, meanwhile: Callable[[Path], object]
) -> None:
    keeper.write("changed", "one")
    keeper.write("removed", "one")
    name = keeper.take()
    keeper.write("changed", "two")
    (keeper.workspace / "removed").unlink()
    keeper.write("new", "two")
    seen, wanted = keeper.look(), keeper.manifest(name)
    meanwhile(keeper.workspace)
    now = keeper.picture()
    failures = Restore(keeper.workspace, keeper.part.objects, seen).apply(Reversal([Span(wanted)], seen.manifest).todo)
    assert [failure.why for failure in failures] == [CHANGED_JUST_NOW]
    path = failures[0].path
    assert keeper.picture()[path] == now[path]


def test_content_that_is_damaged_or_gone_is_not_restored_and_the_rest_is(keeper: Keeper) -> None:
    keeper.write("a", "content a")
    keeper.write("b", "content b")
    keeper.write("c", "content c")
    name = keeper.take()
    contents = {entry.path: keeper.part.objects.path(entry.content) for entry in keeper.manifest(name).entries}
    Path(contents[b"a"]).write_bytes(b"damaged !")
    Path(contents[b"b"]).unlink()
    for path in "abc":
        keeper.write(path, "new")
    failures = keeper.restore(name)
    assert sorted((failure.path, failure.why) for failure in failures) == [
        (b"a", "its kept content is damaged"),
        (b"b", "its content is no longer kept"),
    ]
    shown = keeper.picture()
    assert [shown[path][2] for path in (b"a", b"b", b"c")] == [b"new", b"new", b"content c"]
    assert len(shown) == 3


def test_what_is_not_covered_stays_where_it_is(keeper: Keeper) -> None:
    keeper.write("made/by-task", "x")
    name = keeper.take()
    shutil.rmtree(keeper.workspace / "made")
    keeper.write("tree/covered", "x")
    os.mkfifo(keeper.workspace / "tree" / "pipe")
    (keeper.workspace / "tree" / ".git").mkdir()
    failures = keeper.restore(name)
    assert [failure.path for failure in failures] == [b"tree"]
    assert "still holds what the checkpoint does not cover" in failures[0].why
    assert sorted(path.name for path in (keeper.workspace / "tree").iterdir()) == [".git", "pipe"]
    assert (keeper.workspace / "made" / "by-task").read_text() == "x"


def test_times_are_those_of_the_restoration_so_that_a_build_notices(keeper: Keeper) -> None:
    old = keeper.write("source.c", "one")
    os.utime(old, (1, 1))
    name = keeper.take()
    keeper.write("source.c", "two")
    assert keeper.restore(name) == []
    assert old.stat().st_mtime > 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_run_by_root_files_belong_to_whom_they_did(keeper: Keeper) -> None:
    os.chown(keeper.workspace, 12, 34)
    os.chown(keeper.write("kept", "one"), 56, 78)
    os.chown(keeper.write("removed", "one"), 56, 78)
    name = keeper.take()
    keeper.write("kept", "two")
    (keeper.workspace / "removed").unlink()
    assert keeper.restore(name) == []
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in keeper.workspace.iterdir()}
    assert owners == {"kept": (56, 78), "removed": (12, 34)}


def test_directories_that_forbid_writing_are_written_and_forbid_it_again(keeper: Keeper, tmp_path: Path) -> None:
    keeper.write("shut/file", "one")
    keeper.write("shut/more", "one")
    (keeper.workspace / "shut").chmod(0o555)
    if os.geteuid() == 0:
        tmp_path.chmod(0o755)
        for path in (*tmp_path.rglob("*"), tmp_path):
            os.chown(path, NOBODY, NOBODY)

    def work() -> None:
        os.chdir(keeper.workspace)
        before, name = keeper.picture(), keeper.take()
        Path("shut").chmod(0o755)
        Path("shut/file").unlink()
        Path("shut/more").write_text("two")
        Path("shut/new").write_text("two")
        Path("shut").chmod(0o555)
        failures = keeper.restore(name)
        assert failures == [], failures
        assert keeper.picture() == before

    if _reachable(tmp_path):
        as_nobody(work)
    (keeper.workspace / "shut").chmod(0o755)


def _reachable(path: Path) -> bool:
    """Whether nobody may go there: pytest's own directories are private to whoever runs it."""
    if os.geteuid() != 0:
        return True
    for above in path.parents:
        if above.name.startswith("pytest-"):
            above.chmod(above.stat().st_mode | stat.S_IXOTH)
    return all(above.stat().st_mode & stat.S_IXOTH for above in path.parents)


def test_a_kill_at_any_moment_of_a_restoration_is_made_good_by_the_next(keeper: Keeper) -> None:
    keeper.write("a/changed", "one")
    keeper.write("a/removed", "one")
    keeper.write("was-file", "one")
    (keeper.workspace / "link").symlink_to("one")
    (keeper.workspace / "empty").mkdir(mode=0o750)
    before, name = keeper.picture(), keeper.take()

    def spoil() -> None:
        assert keeper.restore(name) == []
        keeper.write("a/changed", "two")
        (keeper.workspace / "a" / "removed").unlink()
        (keeper.workspace / "was-file").unlink()
        keeper.write("was-file/inside", "two")
        keeper.write("b/c/new", "two")
        (keeper.workspace / "link").unlink()
        (keeper.workspace / "link").symlink_to("two")
        (keeper.workspace / "empty").rmdir()

    spoil()
    spoiled, after = keeper.picture(), keeper.take()
    steps = 0
    while killed_after(steps, lambda: keeper.restore(name)):
        for path, (kind, _, content) in keeper.picture().items():
            if kind == "file" and not path.endswith(b".penguin-tmp"):
                assert content in {b"one", b"two"}, "half a file"
        wanted = (name, before) if steps % 2 else (after, spoiled)  # on to the end, or back again
        assert keeper.restore(wanted[0]) == []
        assert keeper.picture() == wanted[1], steps
        spoil()
        steps += 1
    assert steps > 15
    assert keeper.picture() == before


def test_debris_is_found_but_never_part_of_a_checkpoint(keeper: Keeper) -> None:
    keeper.write(".file.penguin-tmp", "half")
    keeper.write("file", "whole")
    seen: Seen = keeper.look()
    assert [entry.path for entry in seen.manifest.entries] == [b"file"]
    assert seen.debris == [b".file.penguin-tmp"]
