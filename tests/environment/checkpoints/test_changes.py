"""Which paths an undo touches, and which it refuses to."""

from __future__ import annotations

import pytest

from penguin.environment.checkpoints.changes import BY_OTHERS, Reversal, Span
from penguin.environment.checkpoints.manifest import Entry, Manifest, Skipped
from penguin.environment.checkpoints.scan import IGNORED, SPECIAL


def tree(*words: str, skipped: dict[str, str] | None = None) -> Manifest:
    """`a=1` is a file with that content, `d/` a directory."""
    entries = []
    for word in words:
        name, _, content = word.partition("=")
        if name.endswith("/"):
            entries.append(Entry(name[:-1].encode(), "directory", 0o755))
        else:
            entries.append(Entry(name.encode(), "file", 0o644, len(content), content.encode()))
    return Manifest(entries, [Skipped(path.encode(), why) for path, why in (skipped or {}).items()])


def plan(present: Manifest, *trees: Manifest | None) -> tuple[dict[str, str | None], list[str]]:
    """What each touched path becomes, and the paths that stand in the way."""
    spans = [Span(before, after) for before, after in zip(trees[::2], trees[1::2], strict=True) if before is not None]
    reversal = Reversal(spans, present)
    becomes = {
        each.path.decode(): None if each.new is None else each.new.content.decode() or each.new.kind
        for each in reversal.todo
    }
    left = {each.path: each for each in reversal.result(present).entries}
    assert {path: left.get(path.encode()) for path in becomes} == {
        each.path.decode(): each.new for each in reversal.todo
    }
    return becomes, [each.path.decode() for each in reversal.conflicts]


def test_only_what_the_work_changed_is_touched() -> None:
    before, after = tree("a=1", "b=1", "gone=1"), tree("a=2", "b=1", "new=2")
    present = tree("a=2", "b=mine", "new=2", "mine=1")
    assert plan(present, before, after) == ({"a": "1", "gone": "1", "new": None}, [])


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (tree("a=2"), ({"a": "1"}, [])),
        (tree("a=1"), ({}, [])),
        (tree("a=mine"), ({"a": "1"}, ["a"])),
        (tree(), ({"a": "1"}, ["a"])),
        (tree("a/", "a/mine=1"), ({"a": "1"}, ["a"])),
    ],
)
def test_what_others_changed_since_stands_in_the_way(
    present: Manifest, expected: tuple[dict[str, str], list[str]]
) -> None:
    assert plan(present, tree("a=1"), tree("a=2")) == expected


def test_what_others_changed_between_two_stretches_counts_where_both_worked() -> None:
    first = tree("a=1", "b=1"), tree("a=2", "b=1")
    second = tree("a=mine", "b=mine"), tree("a=3", "b=3")
    assert plan(second[1], *first, *second) == ({"a": "1", "b": "mine"}, ["a"])


def test_a_state_the_work_went_through_is_nobody_elses() -> None:
    spans = tree("a=1"), tree("a=2"), tree("a=2"), tree("a=3")
    assert plan(tree("a=2"), *spans) == ({"a": "1"}, [])


def test_an_end_nobody_saw_makes_all_of_it_the_work() -> None:
    assert plan(tree("a=2", "b=2"), tree("a=1"), None) == ({"a": "1", "b": None}, [])


def test_what_the_checkpoint_does_not_cover_is_left_alone() -> None:
    before = tree("a=1", skipped={"big": "too large", "dir": IGNORED})
    assert plan(tree("a=1", "big=2", "dir/", "dir/x=2"), before, None) == ({}, [])


def test_what_the_end_does_not_cover_is_restored_if_it_differs() -> None:
    before, after = tree("a=1", "b=1"), tree(skipped={"a": "too large", "b": "too large"})
    assert plan(tree("a=large", "b=1"), before, after) == ({"a": "1"}, [])


def test_what_cannot_be_kept_for_a_redo_stands_in_the_way() -> None:
    reversal = Reversal([Span(tree("a=1"), tree(skipped={"a": SPECIAL}))], tree(skipped={"a": SPECIAL}))
    assert [each.path for each in reversal.conflicts] == [b"a"]
    assert reversal.conflicts[0].why != BY_OTHERS


def test_a_new_directory_stays_while_others_have_something_in_it() -> None:
    after = tree("d/", "d/e/", "d/e/x=1", "f/", "f/x=1")
    present = tree("d/", "d/e/", "d/e/x=1", "d/mine=1", "f/", "f/x=1")
    assert plan(present, tree(), after) == ({"d/e": None, "d/e/x": None, "f": None, "f/x": None}, [])


def test_a_directory_others_removed_comes_back_for_what_needs_it() -> None:
    before, after = tree("d/", "d/e/", "d/e/x=1"), tree("d/", "d/e/", "d/e/x=2")
    assert plan(tree(), before, after) == ({"d": "directory", "d/e": "directory", "d/e/x": "1"}, ["d/e/x"])
