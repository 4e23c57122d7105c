from __future__ import annotations

import io

import pytest

from penguin.cli.render.look import Look


class Screen(io.StringIO):
    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._terminal = terminal
        self._encoding = encoding

    def isatty(self) -> bool:
        return self._terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


@pytest.mark.parametrize(
    ("terminal", "environment", "colour"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {}, False),
        (False, {"TERM": "xterm"}, False),
    ],
)
def test_D54_colour_only_on_a_terminal_that_wants_it(terminal: bool, environment: dict[str, str], colour: bool) -> None:
    look = Look.of(Screen(terminal=terminal), environment)
    assert look.colour is colour
    assert ("\x1b" in look.dim("x") + look.bold("x") + look.good("x") + look.bad("x")) is colour


@pytest.mark.parametrize(
    ("encoding", "unicode"), [("utf-8", True), ("UTF8", True), ("ascii", False), ("latin-1", False)]
)
def test_symbols_fit_the_encoding(encoding: str, unicode: bool) -> None:
    assert Look.of(Screen(terminal=False, encoding=encoding), {}).unicode is unicode


def test_the_width_follows_COLUMNS_where_there_is_no_terminal() -> None:
    assert Look.of(Screen(terminal=False), {"COLUMNS": "33"}).width() == 33
    assert Look.of(Screen(terminal=False), {"COLUMNS": "1"}).width() == 20
    assert Look.of(Screen(terminal=False), {}).width() == 80
