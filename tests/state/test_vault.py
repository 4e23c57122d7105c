from __future__ import annotations

import stat
from pathlib import Path

import pytest

from penguin.protocol.errors import ConfigError
from penguin.state.vault import VaultFile


@pytest.fixture
def vault(tmp_path: Path) -> VaultFile:
    return VaultFile(tmp_path / "agent_state" / ".vault.toml")


def test_S6_set_get_remove_in_a_private_file(vault: VaultFile) -> None:
    assert (vault.names(), vault.get("A")) == ([], None)
    assert not vault.path.exists()
    vault.set("TOKEN_2", 'quotes " and \n lines')
    vault.set("_a", "ä")
    vault.set("TOKEN_2", "new")
    assert vault.read() == {"TOKEN_2": "new", "_a": "ä"}
    assert vault.names() == ["TOKEN_2", "_a"]
    assert stat.S_IMODE(vault.path.stat().st_mode) == 0o600
    vault.remove("TOKEN_2")
    assert vault.get("TOKEN_2") is None
    with pytest.raises(ConfigError, match="there is no entry TOKEN_2; there are: _a"):
        vault.remove("TOKEN_2")


def test_S6_a_wide_open_file_is_closed_and_its_comments_stay(vault: VaultFile) -> None:
    vault.path.parent.mkdir()
    vault.path.write_text('# for the deploy script\nA = "secret-a"  # rotates in May\n')
    vault.path.chmod(0o644)
    vault.set("B", "secret-b")
    assert vault.path.read_text() == '# for the deploy script\nA = "secret-a"  # rotates in May\nB = "secret-b"\n'
    assert stat.S_IMODE(vault.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A.B", "A B", "Ä", "A\n", "A="])
def test_S6_names_are_those_of_environment_variables(vault: VaultFile, name: str) -> None:
    with pytest.raises(ConfigError, match="is no name"):
        vault.set(name, "secret-value")
    assert not vault.path.exists()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('A = "x"\nB = 1234567\n', ":2:1: B: found a int"),
        ('"A-B" = "1234567"\n', ":1:2: A-B: 'A-B' is no name"),
        ('[A]\nB = "1234567"\n', ":1:2: A: found a dict"),
        ('A = "1234567\n', ":1:13: not valid TOML"),
        ('A = "1234567"\nA = "1234567"\n', ":2:14: not valid TOML: the key A is given twice"),
        ('A = "1234567\\u0000"\n', ":1:1: A: the value of A has a NUL"),
    ],
)
def test_S6_a_broken_vault_is_named_without_its_values(vault: VaultFile, text: str, place: str) -> None:
    vault.path.parent.mkdir()
    vault.path.write_text(text)
    for attempt in (vault.read, lambda: vault.set("NEW", "v")):
        with pytest.raises(ConfigError) as caught:
            attempt()
        assert str(caught.value).startswith(f"{vault.path}{place}")
        assert "1234567" not in str(caught.value)
    assert vault.path.read_text() == text


@pytest.mark.parametrize("value", ["secret\0value", "secret\ud800value"])
def test_S6_a_value_that_no_environment_can_hold_is_refused_without_showing_it(vault: VaultFile, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        vault.set("A", value)
    assert "secret" not in str(caught.value)
    assert not vault.path.exists()
