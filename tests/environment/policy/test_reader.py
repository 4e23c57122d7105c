from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penguin.environment.policy import reader, words
from penguin.environment.policy.reader import read_command_line


def texts(cmd: str) -> list[str]:
    return [command.text for command in read_command_line(cmd).commands]


@pytest.mark.parametrize(
    ("cmd", "expected"),
    [
        ("ls -l", ["ls -l"]),
        ("/usr/bin/ls  -l\t x", ["ls -l x"]),
        ("a && b || c; d | e & f\ng", ["a", "b", "c", "d", "e", "f", "g"]),
        ("(a; b) && { c; }", ["a", "b", "c"]),
        ("if a; then b; else c; fi", ["a", "b", "c"]),
        ("while a; do b; done; until c; do d; done", ["a", "b", "c", "d"]),
        ("case x in y) a;; z) b;; esac", ["a", "b"]),
        ("echo $(a) `b` <(c)", ["a", "b", "c", "echo '$(a)' `b` '<(c)'"]),
        ('echo "x $(a "$(b)") y"', ["b", "a '$(b)'", "echo 'x $(a \"$(b)\") y'"]),
        ("echo ${x:-$(a)} $((1 + $(b)))", ["a", "b"]),
        ("cat <<E\n$(a)\nE", ["a", "cat"]),
        ("! a", ["a"]),
        ("r''m 'a b' \"c\" d\\ e", ["rm 'a b' c 'd e'"]),
        ("$'\\x72\\155' $'\\u0061'", ["rm a"]),
        ("r\\\nm -\\\nr x", ["rm -r x"]),
        ("rm *.py '*' \\* ~ '~' $HOME ${HOME}", ["rm *.py \\* \\* ~ \\~ $HOME $HOME"]),
        ("rm {a,b{1,2}}/x", ["rm a/x b1/x b2/x"]),
        ("A=1 B=2 a", ["a"]),
        ("a 2>&1 b >f", ["a b > f"]),
        (">f a", ["a > f"]),
        ("a && b | c 2>&1 >f", ["a", "b", "c > f"]),
        ("export A=$(a) B", ["a", "export A=$(a) B"]),
        ("declare -x A; unset B", ["declare -x A", "unset B"]),
        ("{ a; } > f", ["a", "> f"]),
        ("cat <<E && a\nx\nE\nb", ["cat", "a", "b"]),
    ],
)
def test_N12_every_part_of_a_line_is_found_and_normalised(cmd: str, expected: list[str]) -> None:
    found = texts(cmd)
    assert [text for text in expected if text not in found] == []
    assert read_command_line(cmd).opaque == ()


@pytest.mark.parametrize(
    "cmd",
    [
        "sudo -u me -- hit x",
        "sudo -nu me A=1 hit x",
        "doas -u me hit x",
        "env -i -u X A=1 hit x",
        "env -S 'hit x'",
        "nice -n 5 ionice -c2 -n 7 nohup hit x",
        "stdbuf -oL setsid -w hit x",
        "time -p timeout -k 5 -s KILL 10 hit x",
        "timeout --signal KILL 10 hit x",
        "timeout --kill-af 3 10 hit x",
        "watch -n 1 hit x",
        "command hit x",
        "builtin exec -a other hit x",
        "bash -c 'hit x'",
        "/bin/sh -euc 'a; hit x'",
        "bash --norc -o pipefail -lc 'hit x'",
        "bash -c -- 'hit x'",
        "bash <<E\nhit x\nE",
        "bash -s <<'E'\nhit x\nE",
        "bash <<< 'hit x'",
        "echo 'hit x' | sh",
        "printf 'a\\nhit x\\n' | sudo bash",
        "cat <<E | bash\nhit x\nE",
        "eval hit x",
        "eval 'hit x'",
        "trap 'hit x' EXIT",
        "su me -c 'hit x'",
        "su -c 'hit x' me",
        "flock -w 3 /tmp/lock hit x",
        "flock /tmp/lock -c 'hit x'",
        "busybox hit x",
        "coproc hit x",
        "f() { hit x; }; f",
        "bash -c \"bash -c 'hit x'\"",
        "if hit x",
        "hit x )",
        "cat <<E; hit x\nE",
    ],
)
def test_N12_wrappers_are_looked_through(cmd: str) -> None:
    assert "hit x" in texts(cmd)


@pytest.mark.parametrize(
    ("cmd", "found"),
    [
        ("ls | xargs -0 -I {} hit {}", "hit {}"),
        ("find . -name x -exec hit {} \\; -print", "hit {}"),
        ("find . -execdir hit {} +", "hit {}"),
        ("parallel -j 4 hit ::: a b", "hit a b"),
        ("$SUDO hit x", "hit x"),
        ('bash -c "hit $x"', "hit $x"),
        ('eval "$x"', "eval $x"),
        ("$(echo hit) x", "echo hit"),
        ("curl x | sh", "sh"),
        ("bash <(curl x)", "curl x"),
        ("source <(curl x)", "curl x"),
        ("/bin/h?t x", "h?t x"),
        ("hit 'x", "hit x"),
    ],
)
def test_N12_what_is_decided_later_is_opaque_and_the_rest_is_still_seen(cmd: str, found: str) -> None:
    assert found in texts(cmd)
    assert read_command_line(cmd).opaque


@pytest.mark.parametrize(
    "cmd", ["command -v hit", "command -V hit", "trap - EXIT", "trap -p hit", "cat <<'E'\nhit x\nE"]
)
def test_what_only_looks_like_a_wrapper_starts_nothing(cmd: str) -> None:
    assert not any(text.startswith("hit") for text in texts(cmd))


def test_a_command_knows_what_surrounds_it() -> None:
    _y, first, second = read_command_line("A=1 X=$(y) a <in | b >>out 2>&1").commands
    assert (first.name, first.assignments, first.fed) == ("a", ("A", "X"), True)
    assert [redirection.operator for redirection in first.redirections] == ["<"]
    assert (second.name, second.fed) == ("b", True)
    assert [(redirection.operator, redirection.is_harmless) for redirection in second.redirections] == [
        (">>", False),
        (">&", True),
    ]


def test_functions_that_spawn_themselves_read_as_such() -> None:
    assert "function : spawns itself" in texts(":(){ :|:& };:")
    assert "function f spawns itself" in texts("f() { f & f; }; f")
    assert "function walk" in texts('walk() { for x in *; do walk "$x" | cat; done; }')


plain_words = st.sampled_from(
    [
        "a",
        "-l",
        "--x=1",
        "./b",
        "'c d'",
        '"e f"',
        "''",
        '"$x"',
        "$x",
        "g'h'",
        'i"$x j"k',
        "'$x'",
        '"\'"',
        "é",
        "10%",
        "@",
    ]
)


@given(
    st.lists(plain_words, min_size=1, max_size=6),
    st.sampled_from([" ", "  ", "\t"]),
    st.sampled_from(["", " $(true)", " *.c", " >out", "\\\n x"]),
)
def test_the_short_way_to_words_reads_what_the_syntax_tree_says(arguments: list[str], blank: str, end: str) -> None:
    cmd = blank.join(["ls", *arguments]) + end
    quick = read_command_line(cmd)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "easy_words", lambda _source: None)
        patch.setattr(words, "easy_word", lambda _source: None)
        assert read_command_line(cmd) == quick


pieces = st.sampled_from(
    [
        "rm", "x", " ", "\n", ";", "|", "&", "$(", "`", ")", "(", "{", "}", "'", '"', "\\", "\\\n", "<<E", "<", ">",
        "${", "[[",
        "if ", "fi", "case x in", "esac", "$'", "\\x", "{a,", "bash -c ", "eval ", "sudo ", "find -exec ", "#", "é",
        "\x00",
    ]
)  # fmt: skip


@given(st.one_of(st.text(max_size=60), st.lists(pieces, max_size=25).map("".join)))
def test_no_text_raises(cmd: str) -> None:
    read_command_line(cmd)


@pytest.mark.parametrize(
    "unit",
    ["$(", "(", "sudo ", "eval ", "bash -c '", "${a:-", '"$(', "{a,", "a|", "`2>&1", "if ", "x=(", "\\\n", "f(){ "],
)
def test_degenerate_repetition_neither_raises_nor_takes_seconds(unit: str) -> None:
    line = read_command_line(unit * (40_000 // len(unit)))
    assert line.opaque


def test_what_is_too_long_to_run_is_opaque_but_read_as_far_as_it_could() -> None:
    line = read_command_line("rm -rf /\n" + "a " * 131_072)
    assert line.opaque
    assert line.commands[0].text == "rm -rf /"


def test_a_large_heredoc_is_no_reason_to_give_up() -> None:
    page = "<td>|</td>\n" * 2_000
    assert texts(f"cat > page.html <<'E'\n{page}E\nrm x")[-1] == "rm x"
    assert read_command_line(f"cat > page.html <<'E'\n{page}E\nrm x").opaque == ()


def test_N12_each_text_of_a_benchmark_is_a_command_line() -> None:
    assert {"a x", "b y"} <= set(texts("hyperfine --warmup 3 'a x' 'b y'"))
