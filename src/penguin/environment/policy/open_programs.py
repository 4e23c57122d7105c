"""Which commands a learnt rule may leave open (``pytest *``), and which words it must not let through all the same.

What is in no table can only be allowed word for word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penguin.environment.policy.command_line import Word, program_name


@dataclass(frozen=True, slots=True)
class OpenProgram:
    """What the open end of a rule does not cover.

    Attributes:
        long: Long options without dashes, and whole single-dash words (``find -delete``).
        short: Letters of short options.
        runs_code: It runs code of the project, so that paths must not lead out of it.
        operands: The most words that are no options; one more would be a file to write.
    """

    long: frozenset[str] = frozenset()
    short: str = ""
    runs_code: bool = False
    operands: int | None = None

    def lets_through(self, words: Sequence[Word]) -> bool:
        """Whether nothing in these arguments writes files, runs other programs or leaves the project."""
        texts = [word.text for word in words]
        if any(self._is_refused(text) for text in texts):
            return False
        if self.operands is not None and sum(not text.startswith("-") for text in texts) > self.operands:
            return False
        return not (self.runs_code and any(map(_LEAVES_PROJECT.search, texts)))

    def _is_refused(self, text: str) -> bool:
        if not text.startswith(("-", "+")) or text in {"-", "--"}:
            return False
        name = text.lstrip("-").partition("=")[0]
        if name in self.long:
            return True
        if text.startswith("--"):
            # Most programs accept the beginning of a long option for the whole of it.
            return any(known.startswith(name) for known in self.long)
        return any(letter in self.short for letter in text[1:])


_LEAVES_PROJECT = re.compile(r"(?:^|[=:,])[/~]|(?:^|[=:,/])\.\.(?:/|$)|^-\w/")


def _names(text: str) -> list[str]:
    return text.split()


def _entry(long: str = "", short: str = "", *, runs_code: bool = False, operands: int | None = None) -> OpenProgram:
    return OpenProgram(frozenset(long.split()), short, runs_code, operands)


_GIT = _entry("output exec upload-pack receive-pack open-files-in-pager ext-diff textconv", "O")
_PYTEST = _entry(
    "basetemp rootdir pastebin junit-xml junitxml log-file override-ini pdbcls config-file confcutdir debug pdb trace "
    "report-log import-mode plugins",
    "cop",
    runs_code=True,
)
_GO = _entry("exec toolexec vettool o overlay modfile mod C overlay ldflags gcflags pkgdir w", runs_code=True)
_CARGO = _entry("config manifest-path target-dir artifact-dir out-dir fix allow-dirty", "ZC", runs_code=True)
_READS = _entry()

OPEN_PROGRAMS: dict[tuple[str, ...], OpenProgram] = {
    **dict.fromkeys(
        [
            (name,)
            for name in _names(
                "basename cat cmp comm cut df dirname du fold grep egrep fgrep head id jq ls md5sum nl realpath "
                "readlink sha1sum sha256sum stat tac tail tr uname wc which whoami"
            )
        ],
        _READS,
    ),
    ("diff",): _entry("output to-file from-file"),
    ("fd",): _entry("exec exec-batch", "xX"),
    ("file",): _entry("compile magic-file", "Cm"),
    ("find",): _entry("delete exec execdir ok okdir fls fprint fprint0 fprintf files0-from"),
    ("rg",): _entry("pre pre-glob hostname-bin search-zip", "z"),
    ("sort",): _entry("output compress-program temporary-directory files0-from", "oT"),
    ("tree",): _entry("output", "o"),
    ("uniq",): _entry(operands=1),
    **dict.fromkeys(
        [
            ("git", name)
            for name in _names(
                "add blame cat-file commit count-objects describe diff grep log ls-files ls-tree merge-base name-rev "
                "rev-list rev-parse shortlog show status"
            )
        ],
        _GIT,
    ),
    ("pytest",): _PYTEST,
    ("python", "-m", "pytest"): _PYTEST,
    ("python", "-m", "unittest"): _entry(runs_code=True),
    ("black",): _entry("config code", "c", runs_code=True),
    ("flake8",): _entry("output-file config tee append-config", runs_code=True),
    ("isort",): _entry("settings-path settings-file", runs_code=True),
    ("mypy",): _entry(
        "python-executable config-file install-types cache-dir any-exprs-report cobertura-xml-report html-report "
        "linecount-report linecoverage-report lineprecision-report txt-report xml-report xslt-html-report junit-xml",
        "c",
        runs_code=True,
    ),
    ("python", "-m", "mypy"): _entry(
        "python-executable config-file install-types cache-dir html-report", "c", runs_code=True
    ),
    ("pyright",): _entry("project pythonpath venvpath", "pv", runs_code=True),
    ("ruff", "check"): _entry("fix unsafe-fixes output-file add-noqa config cache-dir fix-only", "o", runs_code=True),
    ("ruff", "format"): _entry("config cache-dir", runs_code=True),
    ("cargo", "build"): _CARGO,
    ("cargo", "check"): _CARGO,
    ("cargo", "clippy"): _CARGO,
    ("cargo", "fmt"): _CARGO,
    ("cargo", "test"): _CARGO,
    ("cargo", "tree"): _CARGO,
    ("go", "build"): _GO,
    ("go", "list"): _GO,
    ("go", "test"): _GO,
    ("go", "vet"): _GO,
    ("npm", "test"): _entry("script-shell prefix shell node-options globalconfig userconfig", "C", runs_code=True),
    ("npm", "run"): _entry("script-shell prefix shell node-options globalconfig userconfig", "C", runs_code=True),
    ("npm", "ls"): _entry("prefix", "C"),
    ("jest",): _entry("config rootDir outputFile coverageDirectory", "c", runs_code=True),
    ("tsc",): _entry("outDir outFile build project declarationDir", "bp", runs_code=True),
}

_OPENED_DEEPER = frozenset({("npm", "run")})
"""Entries whose next word belongs to the rule: ``npm run test *``, never ``npm run *``."""

_RUNNERS: tuple[tuple[str, ...], ...] = (
    ("bunx",),
    ("bundle", "exec"),
    ("hatch", "run"),
    ("npx",),
    ("pdm", "run"),
    ("pipenv", "run"),
    ("pnpm", "exec"),
    ("poetry", "run"),
    ("uv", "run"),
    ("yarn", "exec"),
)
"""Programs that run another one in an environment; the rule then names both."""

_INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|node|lua|php|tclsh|guile|bash|zsh|ksh|tcsh|csh|gawk|mawk|awk|expect)[\d.]*(?:w|t)?"
    r"|sh|ash|dash|mksh|rbash|fish|nu|pwsh|powershell|elvish|xonsh|deno|bun|nodejs|ts-node|tsx|Rscript|R|julia|ghci|scala"
    r"|irb|pry|ipython3?|jshell|java|osascript|sed|ed|ex|vi|vim|nvim|emacs|gdb|lldb|sqlite3|psql|mysql|mongosh|redis-cli"
    r"|nix|nix-shell|parallel|xargs|find2perl|m4|bc|dc|at|batch|crontab|tmux|screen"
)
_NEVER = frozenset(
    _names(
        "sudo doas su pkexec runuser sg env xargs parallel ssh scp sftp rsync docker podman nerdctl kubectl lxc "
        "nsenter "
        "chroot unshare systemd-run bwrap firejail eval exec source . alias unalias hash enable export declare typeset "
        "local readonly read mapfile readarray set shopt unset trap let function command builtin busybox toybox coproc "
        "[ [[ cd pushd popd test bind complete getopts wait fc history ulimit umask watch script flock strace "
        "hyperfine kill dd nc "
        "ncat socat"
    )
)


def open_program(words: Sequence[str]) -> tuple[int, OpenProgram] | None:
    """How many of the words a rule must name, and what its open end does not cover; ``None``: it cannot be open."""
    skipped = _runner(words)
    inner = (program_name(words[skipped]), *words[skipped + 1 : skipped + 3]) if skipped < len(words) else ()
    if inner and re.fullmatch(r"python[\d.]*", inner[0]):
        inner = ("python", *inner[1:])
    for length in range(len(inner), 0, -1):
        found = OPEN_PROGRAMS.get(inner[:length])
        if found is not None:
            needed = length + (inner[:length] in _OPENED_DEEPER)
            named = words[skipped : skipped + needed]
            return (skipped + needed, found) if len(named) == needed and not named[-1].startswith("-") else None
    return None


def never_learnt(words: Sequence[str]) -> bool:
    """Whether the program runs whatever it is given, elsewhere, as somebody else, or changes what later words mean."""
    skipped = _runner(words)
    if skipped >= len(words):
        return True
    name = program_name(words[skipped])
    return name in _NEVER or _INTERPRETERS.fullmatch(name) is not None


def _runner(words: Sequence[str]) -> int:
    """The number of words that belong to a runner at the beginning."""
    for runner in _RUNNERS:
        if (program_name(words[0]) if words else "", *words[1 : len(runner)]) == runner:
            return len(runner)
    return 0
