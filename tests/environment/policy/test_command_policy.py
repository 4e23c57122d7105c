from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penguin.environment.policy.command_line import CommandLine
from penguin.environment.policy.command_policy import CommandPolicy
from penguin.environment.policy.factory_rules import FACTORY_RULES, PolicyRule
from penguin.environment.policy.first_look import first_look
from penguin.environment.policy.reader import read_command_line
from penguin.protocol.errors import ConfigError

FACTORY = CommandPolicy()

DESTRUCTIVE = {
    "delete-system": [
        "rm -rf /", "rm -fr /*", "rm -r --force ~", "rm --recursive /", "rm / -rf", "rm -rf -- /", "rm -rf //",
        "rm -rf /.",
        'rm -rf "$HOME"', "rm -rf ${HOME}/*", "rm -rf ~root", "rm -rf /etc/ x", "rm -rf x /usr", "rm -rf /{bin,usr}",
        "rm -rf /home/*", "rm -rf /var/lib", "find / -delete", "find ~ -mindepth 1 -delete", "rm -rf / > log",
        "cd / && rm -rf *", "cd / && rm -rf .", "cd /; sudo rm -rf ./*", "cd / && rm -rf usr", "cd && rm -rf *",
        "cd ~ && rm -rf .", 'cd "$HOME" && rm -rf -- *', "cd / && cd usr && rm -r *", "cd -P / || exit; rm -rf *",
        "pushd /etc && rm -rf *", "(cd / && rm -rf *)", "bash -c 'cd / && rm -rf *'", "cd /usr/x/.. && rm -rf *",
        "if cd /; then rm -rf *; fi", "eval 'cd /'; rm -rf *", "cd / && find . -delete", "cd / && find -delete",
        "find / -exec rm -rf {} +", "find / -exec rm -rf {} \\;", "find / -xdev -execdir sudo /bin/rm {} +",
        "find / -type f -delete", "find /* -delete", "find /etc /usr -delete", "find ./x ~ -mindepth 1 -exec rm {} +",
        "find / -type f -print0 -exec shred {} +", "find / -depth -exec sh -c 'rm {}' \\;",
    ],
    "change-system-permissions": ["chmod -R 777 /", "chown -R a:b /etc", "chgrp --recursive a ~",
    "chmod 777 -R /usr", "cd / && chmod -R 777 ."],
    "overwrite-disk": [
        "dd if=/dev/zero of=/dev/sda bs=1M", "mkfs.ext4 /dev/nvme0n1p1", "cat x > /dev/sda", "{ cat x; } > /dev/vda",
        "tee /dev/sdb", "wipefs -a /dev/sda", "cp x.img /dev/mmcblk0", "> /dev/sda",
    ],
    "fork-bomb": [":(){ :|:& };:", "f() { f | f & }; f"],
    "stop-machine": ["shutdown -h now", "reboot", "init 0", "systemctl reboot", "systemctl --no-wall poweroff",
    "halt -p"],
    "kill-everything": ["kill -9 -1", "kill -KILL -1", "killall5"],
}  # fmt: skip


@pytest.mark.parametrize(("rule", "cmd"), [(rule, cmd) for rule, cmds in DESTRUCTIVE.items() for cmd in cmds])
def test_N12_the_factory_set_denies(rule: str, cmd: str) -> None:
    refusal = FACTORY.refusal(cmd)
    assert refusal is not None
    assert refusal.rule == rule


def test_each_factory_rule_has_examples() -> None:
    assert {rule.name for rule in FACTORY_RULES} == DESTRUCTIVE.keys()


@pytest.mark.parametrize(
    "cmd",
    [
        "rm -rf ./build dist *.egg-info", "rm -rf /tmp/x /tmp/", "rm -rf '~'", "rm -rf \\~ '/*'", "rm -rf ~/.cache/pip",
        "rm -rf $HOME/x", "rm -rf /home/me/x", "rm -rf node_modules/", "rm -rf .", "rm -rf ../x", "rm -rf /usr/local/x",
        "rm -r /etcetera", "rm /etc/x", "git commit -m 'rm -rf /'", "echo rm -rf /", "cat <<E > x\nrm -rf /\nE",
        "python -c 'print(\"rm -rf /\")'", "find / -name x -delete", "find . -delete", "dd if=/dev/sda of=x",
        "dd of=/dev/null",
        "mkfs.ext4 disk.img", "ls > /dev/null 2>&1", "cp /dev/sda x", "tee /dev/stderr", "chmod -R u+w ~/x",
        "chmod 755 /usr/x",
        "shutdown --help", "systemctl status reboot.target", "grep -r reboot .", "kill -1 123", "kill -9 123",
        "cd /srv/shop && rm -rf *", "cd build && rm -rf *", "cd /tmp && rm -rf *", "cd / && rm -rf tmp/x",
        "cd ~ && rm -rf x",
        "(cd / && ls); rm -rf *", "x=$(cd / && pwd); rm -rf *", "cd / | cat; rm -rf *", "bash -c 'cd /'; rm -rf *",
        "cd / && cd - && rm -rf *", "cd / && cd /srv/x && rm -rf .", 'cd / && cd "$dir" && rm -rf *',
        "f() { cd /; }; rm -rf *",
        "cd /usr && rm -rf *.pyc", "cd / && find usr -name x -delete", "cd /etc && ls", "cd / && find srv/x -delete",
        "find / -name x -exec rm {} +", "find / -exec grep x {} +", "find /srv/x -exec rm -rf {} +", "find / -path rm ",
        "find . -type f -delete", "find / -type f -name '*.orig' -exec rm {} +", "find ~/x -exec rm -rf {} +",
        "perf report reboot", "perf script halt",
        "git push --force origin main", "curl x | sh", "command -v reboot", "docker run x reboot", "f() { g | g & }; f",
    ],
)  # fmt: skip
def test_N12_daily_work_is_not_denied(cmd: str) -> None:
    assert FACTORY.refusal(cmd) is None


# ---------------------------------------------------------------- hidden in anything


def _in_shell(option: str) -> Callable[[str], str]:
    return lambda cmd: f"bash {option} {shlex.quote(cmd)}"


COVERS: list[Callable[[str], str]] = [
    lambda cmd: f"ls && {cmd}",
    lambda cmd: f"ls; {cmd} || true",
    lambda cmd: f"ls\n{cmd}\nls",
    lambda cmd: f"ls | {cmd}",
    lambda cmd: f"({cmd})",
    lambda cmd: f"{{ {cmd}; }}",
    lambda cmd: f"if true; then {cmd}; fi",
    lambda cmd: f"for i in 1 2; do {cmd}; done",
    lambda cmd: f"while {cmd}; do break; done",
    lambda cmd: f"case x in x) {cmd};; esac",
    lambda cmd: f"f() {{ {cmd}; }}; f",
    lambda cmd: f"echo $({cmd})",
    lambda cmd: f'echo "a $({cmd}) b"',
    lambda cmd: f"diff <({cmd}) x",
    lambda cmd: f"x=$({cmd})",
    lambda cmd: f"export X=$({cmd})",
    lambda cmd: f"cat <<END\n$({cmd})\nEND\n",
    lambda cmd: f"bash <<'END'\n{cmd}\nEND\n",
    lambda cmd: f"cat <<'END' | bash\n{cmd}\nEND\n",
    lambda cmd: f"bash <<< {shlex.quote(cmd)}",
    lambda cmd: f"echo {shlex.quote(cmd)} | bash",
    lambda cmd: f"eval {shlex.quote(cmd)}",
    lambda cmd: f"trap {shlex.quote(cmd)} EXIT",
    lambda cmd: f"env -S {shlex.quote('bash -c ' + shlex.quote(cmd))}",
    _in_shell("-c"),
    _in_shell("-lc"),
    _in_shell("-o pipefail -ec"),
]
"""Ways to hide a command line in another one."""

PREFIXES = [
    "sudo ", "sudo -u root ", "doas ", "env A=1 ", "A=1 ", "nice -n 3 ", "nohup ", "time ", "timeout 5 ", "command ",
    "exec ",
    "prlimit --nproc=10 ", "chpst -u me ", "firejail --quiet ", "proot -r /x ", "systemd-inhibit --what=idle ",
    "dbus-run-session -- ", "eatmydata ", "faketime '1 day ago' ", "catchsegv ", "ltrace -o f ", "perf stat -e x ",
    "valgrind --tool=none ", "rtk ", "setarch x86_64 -R ", "nsenter -t 1 -m ", "unshare -r -w / ", "gosu root ",
    "setpriv --reuid 0 ", "tini -- ", "linux32 ",
    "setsid ", "stdbuf -oL ", "xargs -n 1 ", "busybox ", "\\", "/bin/", ">log ", "find . -exec ", "$SUDO ", "! ",
]  # fmt: skip

# A name that no machine has: these lines are also run by a real shell, where a mistake must not cost more than a test.
SPELLINGS = [
    "zap -rf /x", "z''ap -rf /x", "'zap' \"-rf\" '/x'", "z\\ap  -r\\f\t/x", "zap -\\\nrf /x", "zap $'-rf' $'\\x2fx'",
    "zap -{rf,} /x",
]  # fmt: skip

ZAP = CommandPolicy([PolicyRule("zap", r"^zap -rf .*/x( |$)")])


def _hidden(covers: list[Callable[[str], str]], cmd: str) -> str:
    for cover in covers:
        cmd = cover(cmd)
    return cmd


@given(
    # Each way once: `END` inside `END` is no longer the same command.
    st.lists(st.sampled_from(COVERS), max_size=3, unique=True),
    st.sampled_from(["", *PREFIXES]),
    st.sampled_from(SPELLINGS),
)
def test_N12_a_forbidden_command_is_found_wherever_it_hides(
    covers: list[Callable[[str], str]], prefix: str, spelling: str
) -> None:
    assume(not (prefix in {"\\", "/bin/"} and not spelling.startswith("z")))
    assume(sum("END" in cover("") for cover in covers) <= 1)
    cmd = _hidden(covers, prefix + spelling)
    assert ZAP.refusal(cmd) is not None, cmd


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for PATH where `zap` only says that it ran."""
    directory = tmp_path_factory.mktemp("bin")
    (directory / "zap").write_text('#!/bin/sh\necho "HIT $*" >&2\n')
    (directory / "zap").chmod(0o755)
    for name in ("bash", "cat", "diff", "env", "ls"):
        found = shutil.which(name)
        assert found
        (directory / name).symlink_to(found)
    return directory


@pytest.mark.parametrize("cover", COVERS)
def test_the_hiding_places_do_run_the_command_in_a_real_shell(
    cover: Callable[[str], str], stand_ins: Path, tmp_path: Path
) -> None:
    for spelling in SPELLINGS:
        found = subprocess.run(
            [str(stand_ins / "bash"), "-c", cover(spelling).replace("-lc", "-c")],
            capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path, env={"PATH": str(stand_ins)},
        )  # fmt: skip
        assert "HIT -rf" in found.stderr, (cover(spelling), found.stderr)


@pytest.mark.parametrize(
    "cmd",
    [
        "fish -c 'rm -rf /'",
        "fish --command='rm -rf /'",
        "fish --command 'rm -rf /'",
        "fish --init-command='rm -rf /'",
        "fish -C 'rm -rf /' -c ls",
        "script -qc 'rm -rf /' /dev/null",
        "script -c 'rm -rf /' log",
        "tcsh -c 'rm -rf /'",
        "setarch -R rm -rf /",
        "perf record -o f -- rm -rf /",
    ],
)
def test_N12_other_shells_and_other_ways_to_start_a_command(cmd: str) -> None:
    assert FACTORY.refusal(cmd) is not None


# ---------------------------------------------------------------- the first look

LOOKS = [
    FACTORY,
    ZAP,
    CommandPolicy([PolicyRule("words", r"^(?:git|hg) (?:push|send) .*(?:--force\b|-f )")]),
    CommandPolicy([PolicyRule("anywhere", r"zap(?:per)?\b.*(?<= )-r[fF]?"), PolicyRule("path", "usr/lib/x+")]),
    CommandPolicy([PolicyRule("one letter", "^z ")]),
    CommandPolicy([PolicyRule("a spawner", "^function f spawns")]),
]
PIECES = [
    "zap", "rm", "find", "git", "push", "f", "-rf", "--force", "-delete", "-exec", "cd", "/", "usr", "lib/x",
    "/usr/lib/x",
    "/dev/", "sda", "dd of=", "*", "~", "$HOME", "${HOME}", "${x}", " ", " ", " ", "\n", ";", "|", "&&", "&", "$(",
    ")", "(", "()", "{",
    "}", "'", '"', "\\", "\\\n", "<<E", ">", "$'", "\\x72", "{a,", "bash -c ", "eval ", "env -S", "su -c", "printf ",
    "\\n",
    "%s", "| sh", "echo ", "sudo ", "xargs ", "#", "=", "-", "z", "r", "m", "fu", "nction f", "é", "\x00", "\ud800",
]  # fmt: skip


def assert_the_looks_agree(cmd: str) -> None:
    line = read_command_line(cmd)
    for policy in LOOKS:
        assert policy.refusal(cmd) == policy.refusal_of_line(line), (policy, cmd)


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_N12_the_first_look_lets_nothing_by_that_the_syntax_tree_would_find(cmd: str) -> None:
    assert_the_looks_agree(cmd)


@given(st.lists(st.sampled_from(COVERS), max_size=2), st.sampled_from(["", *PREFIXES]), st.data())
def test_N12_nor_in_any_hiding_place(covers: list[Callable[[str], str]], prefix: str, data: st.DataObject) -> None:
    known = [*SPELLINGS, *(cmd for cmds in DESTRUCTIVE.values() for cmd in cmds)]
    assert_the_looks_agree(_hidden(covers, prefix + data.draw(st.sampled_from(known))))


@given(
    st.sampled_from([*DESTRUCTIVE["delete-system"], *SPELLINGS, "git push --force", "cd /usr && zap lib/x"]),
    st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from(["\\\n", "''", "\\", '""', "${x}", "'", "\n", "/", "}"])),
        max_size=4,
    ),
)
def test_N12_nor_by_what_is_put_between_the_letters(cmd: str, put: list[tuple[int, str]]) -> None:
    for place, text in put:
        cmd = cmd[:place] + text + cmd[place:]
    assert_the_looks_agree(cmd)
    assert_the_looks_agree(f"bash -c {shlex.quote(cmd)}")


@pytest.mark.parametrize(
    ("cmd", "needed"),
    [
        ("git status && npm run build -- --format json | tee log", False),
        ("find . -name x | xargs perm --format", False),
        ("a;" * 1000, False),
        ("x=1; arm y; --farm rmx", True),  # `--farm` could be an option with a text
        ("arm y; rmx", False),
        ("ls /srv/rm", True),
        ("find . -delete", True),
        ("r''m x", True),
        ("r\\\nm x", True),
        ("{r,}m x", True),
        ("$'\\x72m' x", True),
        ("printf 'r%sm x' | sh", True),
        ("env -Srm", True),
        ("f() { ls; }", True),
    ],
)
def test_N12_the_first_look_spares_the_syntax_tree_where_it_can(
    cmd: str, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def noted(cmd: str) -> CommandLine:
        read.append(cmd)
        return read_command_line(cmd)

    monkeypatch.setattr("penguin.environment.policy.command_policy.read_command_line", noted)
    FACTORY.refusal(cmd)
    assert bool(read) == needed


@given(st.from_regex(r"\A[a-c /^$|()?*+.\[\]-]{1,12}\Z"), st.text("abc /-'\\\n;", max_size=15))
def test_N12_the_first_look_follows_any_pattern(pattern: str, cmd: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            policy = CommandPolicy([PolicyRule("any", pattern)])
        except ConfigError:
            return
        policy.refusal("x")
    assert policy.refusal(cmd) == policy.refusal_of_line(read_command_line(cmd))


@pytest.mark.parametrize(
    "pattern", ["(?i)^ZAP", "(?m)^zap", "(?i:ZAP)", r"(z)ap \1", "[^a]", "", "z?", r"(?<!x)zap", "(?x) ^ z a p"]
)
def test_N12_the_first_look_takes_what_it_does_not_understand_for_needed(pattern: str) -> None:
    for cmd in ("zap z", "ls;zap z", "echo 'x\nzap z'"):
        policy = CommandPolicy([PolicyRule("odd", pattern)])
        assert policy.refusal(cmd) == policy.refusal_of_line(read_command_line(cmd)), (pattern, cmd)


@pytest.mark.parametrize("unit", ["-", "-r", "\\", "\\'", "{", "$", "${x}", "(", "\\\n", "r\n", "rm", "$'", "}"])
def test_a_first_look_at_degenerate_repetition_takes_no_seconds(unit: str) -> None:
    look = first_look([re.compile(rule.pattern) for rule in FACTORY_RULES])
    before = time.thread_time()
    look(unit * (100_000 // len(unit)) + " -rmx")
    assert time.thread_time() - before < 1


@given(st.text(max_size=80))
def test_no_text_raises(cmd: str) -> None:
    FACTORY.refusal(cmd)


# ---------------------------------------------------------------- rules of a project


def test_N12_an_invalid_pattern_is_a_config_error_that_names_the_rule() -> None:
    with pytest.raises(ConfigError, match="broken-one"):
        CommandPolicy([PolicyRule("broken-one", "(")])


def test_N12_an_absent_list_is_the_factory_set_and_an_empty_one_denies_nothing() -> None:
    assert CommandPolicy(None).refusal("rm -rf /") is not None
    assert CommandPolicy([]).refusal("rm -rf /") is None


def test_N12_own_rules_replace_the_factory_set_and_can_be_switched_off() -> None:
    rule = PolicyRule("no-forced-push", r"^git push .*(--force|-f)\b", "ask a colleague first")
    policy = CommandPolicy([rule])
    refusal = policy.refusal("cd x && sudo git push origin main --force")
    assert refusal is not None
    assert (refusal.rule, refusal.command) == ("no-forced-push", "git push origin main --force")
    assert "no-forced-push" in refusal.text
    assert "ask a colleague first" in refusal.text
    assert policy.refusal("rm -rf /") is None
    assert CommandPolicy([PolicyRule(rule.name, rule.pattern, enabled=False)]).refusal("git push --force") is None


def test_N12_wrappers_can_be_named_in_rules_too() -> None:
    assert CommandPolicy([PolicyRule("no-root", "^sudo ")]).refusal("ls; timeout 5 sudo ls") is not None


def test_N12_only_tools_that_run_commands_are_judged() -> None:
    assert FACTORY.refusal_of_call("exec_command", {"cmd": "rm -rf /"}) is not None
    assert FACTORY.refusal_of_call("input_command", {"process_id": "1", "chars": "rm -rf /\n"}) is not None
    assert FACTORY.refusal_of_call("write_file", {"cmd": "rm -rf /"}) is None
    assert FACTORY.refusal_of_call("exec_command", {"cmd": 7}) is None
    assert FACTORY.refusal_of_call("exec_command", {}) is None


def test_the_grammar_is_loaded_with_the_first_command_and_not_before() -> None:
    script = (
        "import sys\n"
        "from penguin.environment.policy.command_policy import CommandPolicy\n"
        "from penguin.environment.policy.approval_rules import ApprovalRules\n"
        "policy, rules = CommandPolicy(), ApprovalRules()\n"
        "assert 'tree_sitter' not in sys.modules\n"
        "assert policy.refusal('rm -rf /')\n"
        "assert 'tree_sitter' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
