from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penguin.environment.policy.approval_rules import ApprovalRule, ApprovalRules
from penguin.protocol.errors import ConfigError

COMMAND = "exec_command"
BASH = shutil.which("bash") or "/bin/bash"


def allowing(*commands: str) -> ApprovalRules:
    return ApprovalRules(ApprovalRule(COMMAND, command) for command in commands)


RULES = allowing("git status *", "git log *", "pytest *", "rg *", "find *", "tail *", "sort *", "uniq *")


@pytest.mark.parametrize("rule", ["git status", "git status *"])
@pytest.mark.parametrize(
    "cmd",
    [
        "git status && touch pwned",
        "git status; touch pwned",
        "git status | tee pwned",
        "git status $(touch pwned)",
        "git status `touch pwned`",
        "git statusx",
    ],
)
def test_D60_a_rule_is_no_prefix(rule: str, cmd: str) -> None:
    assert allowing(rule).covers("git status")
    assert not allowing(rule).covers(cmd)


@pytest.mark.parametrize(
    "cmd",
    [
        "git status", "git status -s", "git  status\t-s", "/usr/bin/git status", "'git' \"status\" --short",
        "git status && git log -3", "git status; pytest -q", "git status\n\ngit log\n", "git log \\\n -p",
        "cd src && pytest -x", "timeout 60 pytest tests/unit 2>&1", "time -p stdbuf -oL pytest", "CI=1 pytest",
        'pytest -q > /dev/null 2>&1; echo "exit $?"', "set -eo pipefail; pytest | tail -n 20",
        "pytest tests/*.py -k 'a or b'",
        'rg "foo\\.bar\\$" src', "rg '$(x) `y` > z'", "find . -name '*.py' -newer x", "if git status; then git log; fi",
    ],
)  # fmt: skip
def test_N24_what_is_allowed_in_every_part_is_covered(cmd: str) -> None:
    assert RULES.covers(cmd)


@pytest.mark.parametrize(
    "cmd",
    [
        # one part is not allowed
        "git status || touch pwned", "git status\ntouch pwned", "git status & touch pwned", "git status |& tee pwned",
        "(git status; touch pwned)", "if git status; then touch pwned; fi", "git status <(touch pwned)",
        "timeout 5 touch x",
        # files are written
        "git status > x", "git status >> x", "git status 2> x", "git status &> x", "git status >| x", "pytest <> x",
        # options that write, delete, or run something else
        "git log --output=x", "git log --outp x", "git log --ext-diff", "git -c core.pager=x status",
        "git --paginate status",
        "rg --pre x y", "rg --pr=x y", "find . -delete", "find . -exec touch x ;", "find . -fprintf x y",
        "sort -o x y", "sort -uox y",
        "sort --compress-program=x", "uniq a b", "pytest --basetemp=/", "pytest -p evil", "pytest -o x=y",
        "pytest --pastebin=all",
        # code from outside the project
        "pytest /tmp/x.py", "pytest ../x", "pytest ~/x", "pytest --x=/y", "cd /tmp && pytest",
        "cd ../x && git status", "cd - && pytest",
        # variables and definitions that change what a word means
        "GIT_PAGER=x git status", "env GIT_PAGER=x git status", "PATH=/tmp; git status", "export PATH=/tmp; git status",
        "for PATH in /tmp; do git status; done", "git() { touch x; }; git status", "alias git=x; git status",
        "hash -p /tmp/x git; git status", "read PATH; git status", "set -- x; git status", "set -a; git status",
        # computed or expanded words
        "git status $X", 'git status "$X"', "git status ${X}", "git status *", "git status {--output=x,}",
        "git st?tus", "g* status",
        # other programs of a similar name
        "./git status", "/x/git status", "g\u0456t status", "git\u2003status", "git\u00a0status", "Git status",
        # not seen through, or seen through by nobody
        "sudo git status", "sudo -u me pytest", "bash -c 'git status'", "eval git status", "echo status | xargs git",
        "ssh x git status",
        "exec git status", "command git status", "[[ 'a[$(touch pwned)]' -eq 1 ]] && git status",
        "time -o x git status",
        # texts in which a comment, an escape or a control character moves the boundaries
        "git status # x\ntouch pwned", "git sta\\\ntus", "git status \r touch x", "git status\x00; touch x",
        "git status ;; touch x",
        "git status <<E\n$(touch pwned)\nE", "git status 'x", "git status !!",
        # nothing that was ever allowed
        "", " ", "\n", "cd src", "echo hi", "true && echo x", "timeout 5",
    ],
)  # fmt: skip
def test_N24_anything_else_is_asked_about(cmd: str) -> None:
    assert not RULES.covers(cmd)


def test_N24_a_rule_without_a_star_covers_just_these_words() -> None:
    rules = allowing("make test", "./build.sh 'a b'")
    assert rules.covers("make  test")
    assert rules.covers('./build.sh "a b"')
    assert not rules.covers("make test install")
    assert not rules.covers("make")
    assert not rules.covers("./build.sh a b")


def test_N24_an_unknown_program_is_not_fed() -> None:
    rules = allowing("mytool run", "mytool *", "tail *")
    assert rules.covers("mytool run | tail")
    assert not rules.covers("echo drop everything | mytool run")
    assert not rules.covers("tail x | mytool other")
    assert not rules.covers("tail x | mytool run 2>&1")


def test_N24_a_relative_program_is_another_one_in_another_directory() -> None:
    rules = allowing("./gradlew test", "pytest *")
    assert rules.covers("./gradlew test")
    assert not rules.covers("cd vendor && ./gradlew test")
    assert not rules.covers_call(COMMAND, {"cmd": "./gradlew test", "workdir": "vendor"})
    assert rules.covers_call(COMMAND, {"cmd": "pytest", "workdir": "vendor"})
    assert not rules.covers_call(COMMAND, {"cmd": "pytest", "workdir": "/x"})
    assert not rules.covers_call(COMMAND, {"cmd": "pytest", "workdir": "a/../../b"})


# ---------------------------------------------------------------- learning


@pytest.mark.parametrize(
    ("cmd", "expected"),
    [
        ("pytest -q tests", ["pytest *"]),
        ("git status -s", ["git status *"]),
        ("python3 -m pytest -x", ["python3 -m pytest *"]),
        (".venv/bin/pytest x", [".venv/bin/pytest *"]),
        ("uv run pytest -q", ["uv run pytest *"]),
        ("npm run test -- -x", ["npm run test *"]),
        ("cd src && timeout 60 pytest -q 2>&1 | tail -20", ["pytest *", "tail *"]),
        ("cargo test; cargo test --doc", ["cargo test *"]),
        ("make test", ["make test"]),
        ("git push origin main", ["git push origin main"]),
        ("./tool 'a b'", ["./tool 'a b'"]),
    ],
)
def test_N24_always_proposes_rules_that_then_cover_the_command(cmd: str, expected: list[str]) -> None:
    rules = ApprovalRules()
    proposed = rules.propose(cmd)
    assert [str(rule) for rule in proposed] == expected
    assert not rules.covers(cmd)
    for rule in proposed:
        rules.add(rule)
    assert rules.covers(cmd)
    assert rules.propose(cmd) == ()


@pytest.mark.parametrize(
    "cmd",
    [
        "python", "python x.py", "python3.12 -c 'x'", "bash x.sh", "bash -c ls", "node x.js", "perl -e x", "ruby x",
        "sh", "env",
        "env A=1 x", "xargs ls", "sudo ls", "su -c ls", "ssh host ls", "docker run x", "uv run python x.py",
        "npx x | sh", "eval ls",
        "source x", ". x", "awk '{print}' x", "sqlite3 db", "echo x | mytool", "find . -delete",
        "find . -exec ls {} +", "ls > x",
        "X=1 pytest", "pytest $X", "$X", "ls $(x)", "ls; python x.py", "mytool '*'", "echo hi", "cd /x && ls", "", "'",
        "npm run --script-shell=x y | cat > z", "git -c a=b status | sh",
    ],
)  # fmt: skip
def test_N24_nothing_is_proposed_for_interpreters_and_what_stays_hidden(cmd: str) -> None:
    assert ApprovalRules().propose(cmd) == ()


@pytest.mark.parametrize(
    "command",
    [
        "python *", "python3.12 *", "/usr/bin/python3 *", "python -m *", "python -c *", "bash *", "sh *", "node *",
        "perl *", "ruby *",
        "env *", "xargs *", "sudo *", "sudo ls", "ssh *", "docker run *", "uv run *", "uv run python *", "npx *",
        "npm run *", "git *",
        "make *", "*", "", "a * b", "pytest tests/*", "'",
    ],
)  # fmt: skip
def test_N24_a_rule_for_an_interpreter_wholesale_is_a_config_error(command: str) -> None:
    with pytest.raises(ConfigError, match=r"approvals\.rules\[1\]"):
        ApprovalRules.from_dicts([{"tool": "write_file"}, {"tool": COMMAND, "command": command}])


def test_N24_a_script_named_by_hand_is_no_interpreter_wholesale() -> None:
    rules = allowing("python tools/check.py *")
    assert rules.covers("python tools/check.py -x")
    assert not rules.covers("python -c x")


@pytest.mark.parametrize("entry", [{}, {"tool": 1}, {"tool": ""}, {"tool": COMMAND}, {"tool": COMMAND, "command": 1},
                                   {"tool": "input_command"}, {"tool": "write_file", "command": "x"}])  # fmt: skip
def test_a_malformed_entry_is_a_config_error(entry: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"approvals\.rules\[0\]"):
        ApprovalRules.from_dicts([entry])


def test_N24_other_tools_are_allowed_by_name() -> None:
    rules = ApprovalRules()
    (rule,) = rules.propose_for_call("write_file", {"file_path": "x"})
    assert not rules.covers_call("write_file", {"file_path": "y"})
    assert rules.add(rule)
    assert not rules.add(rule)
    assert rules.covers_call("write_file", {"file_path": "y"})
    assert not rules.covers_call("edit_file", {})
    assert rules.propose_for_call("write_file", {}) == ()


def test_N24_typing_into_a_process_is_never_covered() -> None:
    rules = allowing("pytest *")
    assert rules.propose_for_call("input_command", {"chars": "x"}) == ()
    assert not rules.covers_call("input_command", {"chars": "pytest"})
    assert not rules.covers_call(COMMAND, {"cmd": 7})
    assert not rules.covers_call(COMMAND, {"cmd": "pytest", "workdir": 7})


def test_N24_rules_are_listed_removed_and_survive_the_file() -> None:
    rules = ApprovalRules.from_dicts([{"tool": COMMAND, "command": "pytest *"}, {"tool": "write_file"}])
    assert [str(rule) for rule in rules.rules] == ["pytest *", "write_file"]
    assert ApprovalRules.from_dicts(rules.to_dicts()).rules == rules.rules
    assert rules.remove(0) == ApprovalRule(COMMAND, "pytest *")
    assert not rules.covers("pytest")
    assert rules.covers_call("write_file", {})
    with pytest.raises(ConfigError, match="no approval rule 7"):
        rules.remove(7)


# ---------------------------------------------------------------- against a real shell

TOKENS = (
    ["git status"] * 6 + ["touch pwned"] * 3 + [" "] * 6 + ["\n", ";", "&&", "||", "|", "&", "|&", ";;", "$(", "`",
    ")", "("]
    + ["{ ", "; }", "'", '"', "''", "\\", "\\\n", " \\\n", "#", " #", "$", "$?", "${", "<<E", "\nE\n", "<", "> pwned",
    " 2>&1"]
    + [" >/dev/null", "!", "if ", "; then ", "; fi", "while ", "; do ", "; done", "[[ ", " ]]", "x=", "PATH=. ",
    "git() "]
    + ["time ", "timeout 5 ", "exec ", "eval ", "cd .", "echo ", "*", "~", "\u00a0", "\u2003", "\x0b", "\r", "^",
    "-s", "--", "\\'"]
    + ["\\`", "\\;", "a", "tee pwned", "coproc ", "function git "]
)  # fmt: skip


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of stand-ins: `git` does nothing, any other program leaves a file behind."""
    root = tmp_path_factory.mktemp("shell")
    for name in ("git", "touch", "tee", "status", "pwned", "a"):
        text = f"#!{BASH}\n" + ("" if name == "git" else f": > {root}/ran\n")
        (root / name).write_text(text)
        (root / name).chmod(0o755)
    timeout = shutil.which("timeout")
    if timeout:
        (root / "timeout").symlink_to(timeout)
    return root


@given(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=9).map("".join))
def test_N24_a_real_shell_runs_nothing_else_of_what_is_covered(shell: Path, cmd: str) -> None:
    if not allowing("git status *").covers(cmd):
        return
    workdir = shell / "work"
    workdir.mkdir(exist_ok=True)
    subprocess.run(
        [BASH, "-c", cmd], cwd=workdir, env={"PATH": str(shell)}, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=20, check=False
    )  # fmt: skip
    assert not (shell / "ran").exists(), cmd
    assert list(workdir.iterdir()) == [], cmd


def test_the_stand_ins_notice_another_program(shell: Path) -> None:
    subprocess.run([BASH, "-c", "git status; touch pwned"], cwd=shell, env={"PATH": str(shell)}, check=True, timeout=20)
    assert (shell / "ran").exists()
    (shell / "ran").unlink()


@given(st.text(max_size=60))
def test_no_text_raises(cmd: str) -> None:
    RULES.covers(cmd)
    RULES.propose(cmd)
