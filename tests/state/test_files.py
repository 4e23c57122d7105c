from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penguin.protocol.errors import ConfigError
from penguin.state.files import read_config_text, replace_file


def test_D56_a_missing_file_is_none_and_an_existing_one_comes_unchanged(tmp_path: Path) -> None:
    assert read_config_text(tmp_path / "none") is None
    (tmp_path / "some").write_bytes(b"\xef\xbb\xbfa\r\nb")
    assert read_config_text(tmp_path / "some") == "\ufeffa\r\nb"


def test_D56_a_directory_a_fifo_and_a_path_through_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory; a file is expected here"):
        read_config_text(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_config_text(tmp_path / "fifo")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="Not a directory"):
        read_config_text(tmp_path / "file" / "config")


def test_D56_an_unreadable_file_is_an_error_and_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text("x")
    path.chmod(0)
    if os.geteuid() == 0:  # root reads everything, so the refusal is injected
        monkeypatch.setattr(Path, "read_bytes", _refused)
    with pytest.raises(ConfigError, match=r"config: cannot be read: Permission denied"):
        read_config_text(path)


def _refused(path: Path) -> bytes:
    raise PermissionError(13, "Permission denied", str(path))


def test_D56_what_is_not_utf_8_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("a = 1\nä = '".encode() + b"\xe9'")
    with pytest.raises(ConfigError, match=r"latin:2:6: byte 0xe9 is not UTF-8"):
        read_config_text(tmp_path / "latin")


def test_S2_a_write_replaces_the_file_whole_and_keeps_mode_and_symlink(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles" / "real", tmp_path / "link"
    real.parent.mkdir()
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    before = real.stat().st_ino
    replace_file(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_ino != before  # a reader that had it open still sees the old text
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    replace_file(link, "newer", mode=0o600)
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert list(real.parent.iterdir()) == [real]


def test_S2_a_new_file_is_private(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        replace_file(tmp_path / "a/b", "x")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_S2_a_write_that_fails_leaves_the_old_file_and_no_debris(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text("old")
    with pytest.raises(ConfigError, match="cannot hold the character"):
        replace_file(path, "bad \ud800")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        replace_file(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
