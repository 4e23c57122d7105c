from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penguin.protocol.errors import ConfigError
from penguin.state.checking import FieldPath
from penguin.state.toml_file import locate, parse_toml

DOCUMENT = '''\
# comment: a = 1
title = "x"

[[models]]
provider = "a"
text = """
[[models]]
provider = "not here"
"""
list = [
  1,
  2,
]

[[models]]
  provider = "b"
[models.pricing]
"output" = 1
[a.b]
c.d = 1
'''


@pytest.mark.parametrize(
    ("field", "place"),
    [
        (("title",), (2, 1)),
        (("models",), (4, 3)),
        (("models", 0, "provider"), (5, 1)),
        (("models", 0, "text"), (6, 1)),
        (("models", 0, "list"), (10, 1)),
        (("models", 0, "list", 1), (10, 1)),
        (("models", 1), (15, 3)),
        (("models", 1, "provider"), (16, 3)),
        (("models", 1, "pricing", "output"), (18, 2)),
        (("a",), (19, 2)),
        (("a", "b", "c", "d"), (20, 3)),
        (("nowhere",), None),
        (("models", 2), None),
        (("title", "x"), None),
    ],
)
def test_S2_a_field_is_found_where_it_is_written(field: FieldPath, place: tuple[int, int] | None) -> None:
    assert locate(DOCUMENT, field) == place
    assert locate(DOCUMENT.replace("\n", "\r\n"), field) == place


@given(st.lists(st.sampled_from(["", "# c", "{} = 1", '{} = """\nx = 1\n"""', "{} = [\n1,\n\n2]"]), max_size=30))
def test_S2_every_statement_is_found_at_its_first_line(statements: list[str]) -> None:
    text, expected = "", {}
    for number, statement in enumerate(statements):
        if "{}" in statement:
            expected[f"k{number}"] = text.count("\n") + 1
        text += statement.format(f"k{number}") + "\n"
    assert {name: (locate(text, (name,)) or (None,))[0] for name in expected} == expected


def problem(path: Path, text: str) -> str:
    path.write_bytes(text.encode())
    with pytest.raises(ConfigError) as caught:
        parse_toml(path)
    assert caught.value.problem.file == path
    return str(caught.value).removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[agent]\nmodel = "m\n[server]\nport = 8080\n', "2:11: not valid TOML: the text is not closed before the end"),
        ("a = 1\nb = 2\na = 's3cret'\n", "3:13: not valid TOML: the key a is given twice"),
        ("a = 1\nb = 2\na = 's3cret'", "3: not valid TOML: the key a is given twice"),
        ("[a]\nx = 1\n[a]\ny = 2\n", "3:3: not valid TOML: the table [a] is given twice"),
        ("a = [1,\n2\n\n", "2: not valid TOML: Unclosed array"),
        ("\ufeff\ufeffa = 1", "1:1: not valid TOML: Invalid statement"),
    ],
)
def test_D56_broken_toml_is_named_with_line_and_reason(tmp_path: Path, text: str, said: str) -> None:
    message = problem(tmp_path / "c.toml", text)
    assert message.startswith(said)
    assert "s3cret" not in message


def test_D56_a_bom_is_accepted_and_a_missing_file_is_empty(tmp_path: Path) -> None:
    assert parse_toml(tmp_path / "none.toml")[0] == {}
    (tmp_path / "bom.toml").write_text("\ufeffa = 1\r\n")
    assert parse_toml(tmp_path / "bom.toml")[0] == {"a": 1}
