"""S6 and N10: what a command writes, as it may be shown, from its first byte to its last."""

from __future__ import annotations

from penguin.environment.command_text import CommandText, addresses_in
from penguin.environment.masking import Secrets

TOKEN = "secretvalue-0123456789abcdef"


def text_with_token() -> CommandText:
    return CommandText(Secrets({"TOKEN": TOKEN}))


def test_S6_a_value_split_by_a_pause_comes_masked_afterwards() -> None:
    text = text_with_token()
    assert text.feed(b"it is secretval") == ""
    assert text.pause() == "it is "
    assert not text.holding
    assert text.feed(b"ue-0123456789abcdef!\n") == "[vault:TOKEN]!\n"
    assert text.close() == ""


def test_S6_a_beginning_that_never_ends_is_shown_at_the_end() -> None:
    text = text_with_token()
    assert text.feed(b"secretval") + text.pause() == ""
    assert text.close() == "secretval"


def test_S6_the_prompt_tells_nothing_of_a_value() -> None:
    text = text_with_token()
    assert text.feed(f"{TOKEN} {TOKEN[:12]}".encode()) + text.pause() == "[vault:TOKEN] "
    assert text.prompt == "[vault:TOKEN] "
    long = text_with_token()
    long.feed(f"{TOKEN} {'x' * 180} ".encode())
    long.pause()
    assert TOKEN[-4:] not in long.prompt


def test_S6_halves_of_a_value_around_a_gap_are_not_shown() -> None:
    text = text_with_token()
    assert text.feed(b"before secretval") + text.gap() == "before "
    after = text.feed(f"ue-0123456789abcdef{'.' * 100}{TOKEN}\n".encode()) + text.close()
    assert after.endswith("...[vault:TOKEN]\n")
    assert "0123" not in after


def test_S6_a_preview_changes_nothing_and_knows_what_went_before() -> None:
    text = text_with_token()
    text.feed(b"secretval")
    text.pause()
    assert text.preview("ue-0123456789abcdef\nsecretv", ended=False) == "[vault:TOKEN]\n"
    assert text.preview(" other secretv", ended=True) == "secretval other secretv"
    assert text.feed(b"ue-0123456789abcdef\n") == "[vault:TOKEN]\n"


def test_N10_the_prompt_is_the_end_of_the_unfinished_line() -> None:
    text = CommandText()
    text.feed(b"one\ntwo? ")
    assert text.holding
    assert text.pause() == "two? "
    assert text.prompt == "two? "
    text.feed(b"[y] ")
    text.pause()
    assert text.prompt == "two? [y] "
    text.feed(b"yes\n")
    assert text.prompt == ""


def test_addresses_of_this_machine_are_remembered_with_their_ports() -> None:
    text = CommandText()
    text.feed(
        b"\x1b[32mLocal\x1b[0m: \x1b[36mhttp://localhost:\x1b[1m5173\x1b[22m/\x1b[39m\nsee https://example.com/x.\n"
    )
    assert text.addresses == {"http://localhost:5173/": 5173}
    assert addresses_in("on http://127.0.0.1:8000. https://[::1]/a?b=c http://localhost") == {
        "http://127.0.0.1:8000": 8000,
        "https://[::1]/a?b=c": 443,
        "http://localhost": 80,
    }
    assert len(addresses_in(" ".join(f"http://localhost:{port}" for port in range(100)))) == 8
