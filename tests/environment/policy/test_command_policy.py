from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penguin.environment.policy.command_policy import CommandPolicy
from penguin.environment.policy.factory_rules import FACTORY_RULES, PolicyRule
from penguin.protocol.errors import ConfigError

FACTORY = CommandPolicy()

DESTRUCTIVE = {
    "delete-system": [
        "rm -rf /", "rm -fr /*", "rm -r --force ~", "rm --recursive /", "rm / -rf", "rm -rf -- /", "rm -rf //",
        "rm -rf /.",
        'rm -rf "$HOME"', "rm -rf ${HOME}/*", "rm -rf ~root", "rm -rf /etc/ x", "rm -rf x /usr", "rm -rf /{bin,usr}",
        "rm -rf /home/*", "rm -rf /var/lib", "find / -delete", "find ~ -mindepth 1 -delete", "rm -rf / > log",
    ],
    "change-system-permissions": ["chmod -R 777 /", "chown -R a:b /etc", "chgrp --recursive a ~", "chmod 777 -R /usr"],
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
