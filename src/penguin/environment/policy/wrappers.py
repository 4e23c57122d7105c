"""Programs that start another program from their own words: where their options end and the other one begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from penguin.environment.policy.command_line import Word, program_name

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How to find the wrapped command.

    Attributes:
        values: Short options that take the next word when nothing is attached.
        long_values: Long options that take the next word when there is no ``=``.
        operands: Words of its own between options and command.
        joins: The rest is one text for a shell instead of words.
        assigns: ``NAME=value`` may stand before the command.
        script: The option whose value is a text for a shell.
        asks: Options with which it only prints something.
        adds: It adds arguments that the line does not show.
        separate: Each word of the rest is such a text by itself.
        subcommands: It starts something only with one of these as its first word, whose options follow.
    """

    values: str = ""
    long_values: tuple[str, ...] = ()
    operands: int = 0
    joins: bool = False
    assigns: bool = False
    script: str = ""
    asks: str = ""
    adds: bool = False
    separate: bool = False
    subcommands: frozenset[str] = frozenset()


WRAPPERS: dict[str, Wrapper] = {
    "!": Wrapper(),
    "builtin": Wrapper(),
    "busybox": Wrapper(),
    "caffeinate": Wrapper("tw"),
    "catchsegv": Wrapper(),
    "chpst": Wrapper("uUbe/nlLmdopfcrt"),
    "chronic": Wrapper(),
    "chroot": Wrapper(operands=1),
    "chrt": Wrapper("TPD", operands=1),
    "command": Wrapper(asks="vV"),
    "coproc": Wrapper(),
    "cpulimit": Wrapper("lpec", ("limit", "pid", "exe", "cpu")),
    "dbus-run-session": Wrapper(long_values=("config-file", "dbus-daemon")),
    "doas": Wrapper("uC"),
    "dumb-init": Wrapper("r", ("rewrite",)),
    "eatmydata": Wrapper(),
    "env": Wrapper("uC", ("unset", "chdir"), assigns=True, script="S"),
    "envdir": Wrapper(operands=1),
    "exec": Wrapper("a"),
    "fakeroot": Wrapper("lsbu"),
    "faketime": Wrapper("p", ("date-prog",), operands=1),
    "firejail": Wrapper(),
    "flock": Wrapper("wE", ("timeout", "conflict-exit-code"), operands=1, script="c"),
    "gosu": Wrapper(operands=1),
    "hyperfine": Wrapper("wmMrpcnDS", ("warmup", "runs", "prepare", "export-json"), joins=True, separate=True),
    "i386": Wrapper(),
    "i686": Wrapper(),
    "ifne": Wrapper(),
    "ionice": Wrapper("cnpPu", ("class", "classdata")),
    "linux32": Wrapper(),
    "linux64": Wrapper(),
    "ltrace": Wrapper("aAbDeFlnopsuwxX", ("align", "config", "debug", "indent", "library", "output", "where")),
    "nice": Wrapper("n", ("adjustment",)),
    "nohup": Wrapper(),
    "nsenter": Wrapper("tSGN", ("target", "setuid", "setgid", "net-socket")),
    "numactl": Wrapper("Nmlipc"),
    "parallel": Wrapper("jnNaISdPLE", ("jobs", "arg-file", "colsep", "delay", "results"), joins=True, adds=True),
    "perf": Wrapper(
        "CDIGLMRWcegijkmopr",
        ("event", "cpu", "output", "repeat", "freq", "count"),
        subcommands=frozenset({"record", "stat", "trace"}),
    ),
    "pkexec": Wrapper(long_values=("user",)),
    "prlimit": Wrapper("o", ("output",)),
    "proot": Wrapper("rbmqwkRS", ("rootfs", "bind", "mount", "qemu", "pwd", "cwd", "kernel-release")),
    "proxychains": Wrapper("f"),
    "proxychains4": Wrapper("f"),
    "rlwrap": Wrapper("abcCDfgHlmMOpPqrsStwz"),
    "rtk": Wrapper(),
    "runuser": Wrapper("ugG", ("user", "group"), script="c"),
    "script": Wrapper("EIOTBmo", script="c"),
    "setarch": Wrapper(),
    "setlock": Wrapper(operands=1),
    "setpriv": Wrapper(
        long_values=(
            "reuid",
            "regid",
            "ruid",
            "rgid",
            "euid",
            "egid",
            "groups",
            "securebits",
            "pdeathsig",
            "inh-caps",
            "ambient-caps",
            "bounding-set",
            "selinux-label",
            "apparmor-profile",
        )
    ),
    "setsid": Wrapper(),
    "setuidgid": Wrapper(operands=1),
    "sg": Wrapper(operands=1, script="c"),
    "softlimit": Wrapper("adflmnoprstc"),
    "stdbuf": Wrapper("ioe", ("input", "output", "error")),
    "strace": Wrapper("aAbeEIoOpPsSuUX"),
    "su": Wrapper("gGsw", ("shell", "group"), operands=1, script="c"),
    "su-exec": Wrapper(operands=1),
    "sudo": Wrapper("ugCpDRrtThU", ("user", "group", "prompt", "chdir", "host", "close-from"), assigns=True),
    "systemd-inhibit": Wrapper(long_values=("what", "who", "why", "mode")),
    "systemd-run": Wrapper("pHMEtu", ("unit", "property", "setenv", "slice", "description")),
    "taskset": Wrapper(operands=1),
    "time": Wrapper("fo", ("format", "output")),
    "timeout": Wrapper("ks", ("kill-after", "signal"), operands=1),
    "tini": Wrapper("pe"),
    "torify": Wrapper(),
    "torsocks": Wrapper("auPp"),
    "toybox": Wrapper(),
    "trickle": Wrapper("dutlwLnP"),
    "tsocks": Wrapper(),
    "uname26": Wrapper(),
    "unbuffer": Wrapper(),
    "unshare": Wrapper("SGRw", ("setuid", "setgid", "propagation", "setgroups", "map-user", "map-group", "root", "wd")),
    "valgrind": Wrapper(),
    "watch": Wrapper("nq", ("interval", "equexit"), joins=True),
    "x86_64": Wrapper(),
    "xargs": Wrapper("IdELnPsa", ("max-args", "max-procs", "delimiter", "arg-file", "max-lines"), adds=True),
    "xvfb-run": Wrapper("efnpsw"),
}

SHELLS = frozenset({"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "oksh", "rbash", "sh", "tcsh", "yash", "zsh"})


@dataclass(frozen=True, slots=True)
class Wrapped:
    """What a wrapper starts: words, or a text for a shell; ``assignments`` are names set on the way."""

    words: tuple[Word, ...] = ()
    script: tuple[Word, ...] = ()
    assignments: tuple[str, ...] = ()


def wrapped_by(wrapper: Wrapper, words: Sequence[Word]) -> Wrapped:
    """Take the wrapper and its own options, operands and assignments off; nothing left means it starts nothing."""
    if wrapper.subcommands:
        if len(words) < 2 or words[1].text not in wrapper.subcommands:  # noqa: PLR2004 - the program and one word
            return Wrapped()
        words = words[1:]
    position, script = _past_options(wrapper, words)
    if position < 0:
        return Wrapped()
    if script is not None:
        return Wrapped(script=(script, *words[position:]) if wrapper.assigns else (script,))
    assigned = _assignments(words[position:]) if wrapper.assigns else ()
    rest = tuple(words[position + len(assigned) + wrapper.operands :])
    if wrapper.script and wrapper.operands and _is_script_option(wrapper, rest):
        return Wrapped(script=rest[1:2])
    return Wrapped(script=rest, assignments=assigned) if wrapper.joins else Wrapped(rest, (), assigned)


def _is_script_option(wrapper: Wrapper, rest: tuple[Word, ...]) -> bool:
    """``su root -c '...'`` and ``flock file -c '...'``: the option comes after the operand."""
    return len(rest) > 1 and rest[0].text in {f"-{wrapper.script}", "--command"}


def _past_options(wrapper: Wrapper, words: Sequence[Word]) -> tuple[int, Word | None]:
    """The position after the options and the script they gave; -1 when it only prints something."""
    position, script = 1, None
    while position < len(words) and (option := words[position].text)[:1] in {"-", "+"}:
        position += 1
        if option == "--":
            break
        if option.startswith("--"):
            name, attached, value = option[2:].partition("=")
            if wrapper.script and name in {"command", "split-string"}:
                script = _valued(value, words, position) if attached else _at(words, position)
            position += not attached and (name in {"command", "split-string"} or _takes_value(wrapper, name))
            continue
        letter, attached_value = _value_letter(wrapper, option[1:])
        if letter == "asks":
            return -1, None
        if letter and letter == wrapper.script:
            script = _valued(attached_value, words, position) if attached_value else _at(words, position)
        position += bool(letter) and not attached_value
    return position, script


def _value_letter(wrapper: Wrapper, cluster: str) -> tuple[str, str]:
    """The letter of the cluster that takes a value, and the value attached to it."""
    for index, letter in enumerate(cluster):
        if letter in wrapper.asks:
            return "asks", ""
        if letter in wrapper.values or letter == wrapper.script:
            return letter, cluster[index + 1 :]
    return "", ""


def _takes_value(wrapper: Wrapper, name: str) -> bool:
    # GNU programs accept any unambiguous beginning of a long option.
    return bool(name) and any(known.startswith(name) for known in wrapper.long_values)


def _at(words: Sequence[Word], position: int) -> Word | None:
    return words[position] if position < len(words) else None


def _valued(value: str, words: Sequence[Word], position: int) -> Word:
    return Word(value, value, words[position - 1].form)


def _assignments(words: Sequence[Word]) -> tuple[str, ...]:
    names: list[str] = []
    for word in words:
        found = ASSIGNMENT.fullmatch(word.text)
        if found is None:
            break
        names.append(found[1])
    return tuple(names)


@dataclass(frozen=True, slots=True)
class ShellCall:
    """Where a shell takes its commands from; ``script`` is the text or the file."""

    source: Literal["text", "file", "input"]
    script: Word | None = None


def shell_call(words: Sequence[Word]) -> ShellCall:
    """Read the options of ``bash``, ``sh`` and relatives."""
    position, text, reads_input = 1, False, False
    while position < len(words) and (option := words[position].text)[:1] in {"-", "+"}:
        position += 1
        if option in {"-", "--"}:
            break
        if option.startswith("--"):
            name, attached, value = option.partition("=")
            if name in {"--command", "--init-command"}:  # of fish
                return ShellCall("text", _valued(value, words, position) if attached else _at(words, position))
            position += option in {"--rcfile", "--init-file"}
            continue
        if option.startswith("-C") and program_name(words[0].text) == "fish":
            return ShellCall("text", _valued(option[2:], words, position) if option[2:] else _at(words, position))
        text = text or "c" in option
        reads_input = reads_input or "s" in option
        position += "o" in option or "O" in option
    script = _at(words, position)
    if text:
        return ShellCall("text", script)
    if reads_input or script is None or script.text in {"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}:
        return ShellCall("input")
    return ShellCall("file", script)
