"""From a command line to the simple commands it may run, looking through everything that hides one.

Example::

    line = read_command_line("cd src && sudo timeout 5 bash -c 'rm -rf /' | tee log")
    [command.text for command in line.commands]
    # ["cd src", "sudo timeout 5 bash -c 'rm -rf /'", "timeout 5 bash -c 'rm -rf /'", "bash -c 'rm -rf /'",
    #  "rm -rf /", "tee log"]
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from penguin.environment.policy.command_line import (
    MOVERS,
    CommandLine,
    Redirection,
    SimpleCommand,
    Word,
    literal_word,
    program_name,
    seen_from,
)
from penguin.environment.policy.grammar import syntax_tree
from penguin.environment.policy.words import WordReader, alternatives, easy_words
from penguin.environment.policy.wrappers import SHELLS, WRAPPERS, Wrapper, shell_call, wrapped_by

if TYPE_CHECKING:
    from tree_sitter import Node

LONGEST = 131_072
"""Bytes; Linux starts no program with a longer argument, so a longer ``bash -c`` text cannot run either."""

DEEPEST_TREE = 100
DEEPEST_SCRIPT = 8
"""How many nodes, and how many texts inside texts (``bash -c "bash -c ..."``), are followed downwards."""


def read_command_line(cmd: str) -> CommandLine:
    """Everything the line may run; never raises. What cannot be known before it runs is named in ``opaque``."""
    reader = _Reader()
    reader.read(cmd, 0)
    return CommandLine(tuple(reader.commands), tuple(dict.fromkeys(reader.opaque)))


class _Input(Struct, frozen=True):
    """Where a command's standard input comes from; ``text`` where the line itself says what it is."""

    fed: bool = False
    text: str | None = None


_NO_INPUT = _Input()
_UNKNOWN_INPUT = _Input(fed=True)

_WORDS = frozenset({
    "word", "number", "string", "raw_string", "ansi_c_string", "translated_string", "concatenation", "expansion",
    "simple_expansion", "command_substitution", "process_substitution", "arithmetic_expansion", "brace_expression",
    "variable_name", "regex", "extglob_pattern", "variable_assignment", "test_operator", "special_variable_name",
})  # fmt: skip
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_CONTINUATION = re.compile(rb"(?:\\\n)*")
_LITERAL_DIRECTORY = re.compile(r"-|(?:~|\$HOME(?=/|$))?[\w./@%+:,-]*")
_FRAGMENT = re.compile(r"[;&|\n(){}`]+")


class _Reader:
    def __init__(self) -> None:
        self.commands: list[SimpleCommand] = []
        self.opaque: list[str] = []
        self._source = b""
        self._script_depth = 0
        self._tree_depth = 0
        self._directory = ""
        self._redirects_of: dict[int, tuple[_Input | None, list[Redirection], tuple[Word, ...]]] = {}
        self._visitors: dict[str, Callable[[Node, _Input], None]] = {
            "command": self._command,
            "declaration_command": self._keyword_command,
            "unset_command": self._keyword_command,
            "test_command": self._test,
            "variable_assignment": self._assignment,
            "redirected_statement": self._redirected,
            "pipeline": self._pipeline,
            "subshell": self._subshell,
            "function_definition": self._function,
            "for_statement": self._loop,
            "file_redirect": self._lone_redirect,
            "comment": lambda _node, _stdin: None,
        }

    def read(self, text: str, depth: int) -> None:
        """Read one text for a shell; the state of an outer text is kept."""
        source = text.encode(errors="replace")
        if depth > DEEPEST_SCRIPT or len(source) > LONGEST:
            self.opaque.append("commands nested too deeply, or too long to run")
            source = source[:LONGEST] if depth <= DEEPEST_SCRIPT else b""
        outer = (self._source, self._script_depth)
        self._source, self._script_depth = source, depth
        root = syntax_tree(source)
        if root is not None:
            self._visit(root, _NO_INPUT)
        if root is None or root.has_error:
            self.opaque.append("something that is not valid bash")
            self._fragments(text)
        self._source, self._script_depth = outer

    def _fragments(self, text: str) -> None:
        """What the grammar cannot make sense of may still run in part: bash stops only where the error is."""
        for fragment in _FRAGMENT.split(text):
            words = fragment.replace("'", "").replace('"', "").split()
            if words:
                self._run(tuple(map(literal_word, words)), stdin=_UNKNOWN_INPUT)

    # ------------------------------------------------------------ nodes

    def _visit(self, node: Node, stdin: _Input) -> None:
        visitor = self._visitors.get(node.type)
        if self._tree_depth >= DEEPEST_TREE:
            self.opaque.append("commands nested too deeply, or too long to run")
            return
        self._tree_depth += 1
        if visitor is not None:
            visitor(node, stdin)
        else:
            self._visit_children(node, stdin)
        self._tree_depth -= 1

    def _visit_children(self, node: Node, stdin: _Input) -> None:
        for child in node.named_children:
            self._visit(child, stdin)

    def _command(self, node: Node, stdin: _Input) -> None:
        redirected, redirections, more = self._redirects_of.pop(node.id, (None, [], ()))
        stdin = redirected or stdin
        easy = easy_words(self._source[node.start_byte : node.end_byte])
        if easy is not None:
            self._run((*easy, *more), (), tuple(redirections), stdin)
            return
        groups: list[list[Node]] = []
        assignments: list[str] = []
        end = -1
        for child in node.children:
            kind = child.type
            if kind == "variable_assignment" and not groups:
                assignments.append(self._assigned_name(child))
                self._nested(child)
            elif kind in _REDIRECTS:
                stdin, found, words = self._redirect(child, stdin)
                redirections += found
                more = (*words, *more)
            elif groups and self._continues(end, child.start_byte):
                groups[-1].append(child)
            else:
                groups.append([child])
            end = child.end_byte
        written = [self._word(_unwrapped(group)) for group in groups]
        words = (*(word for one in written for word in alternatives(one)), *more)
        self._run(words, tuple(assignments), tuple(redirections), stdin)

    def _continues(self, end: int, start: int) -> bool:
        """Whether nothing but continued lines lies between: the grammar splits the word there, bash does not."""
        return start >= end >= 0 and _CONTINUATION.fullmatch(self._source, end, start) is not None

    def _word(self, nodes: list[Node]) -> Word:
        reader = WordReader(self._source)
        word = reader.word(nodes)
        for substitution in reader.substitutions:
            self._nested(substitution)
        return word

    def _nested(self, node: Node) -> None:
        self._subshell(node, _NO_INPUT)

    def _subshell(self, node: Node, stdin: _Input) -> None:
        before = self._directory
        self._visit_children(node, stdin)
        self._directory = before

    def _keyword_command(self, node: Node, stdin: _Input) -> None:
        """``export``, ``declare``, ``unset`` and relatives, which the grammar takes for keywords."""
        keyword, *rest = node.children
        words = [self._raw(child) if child.type == "variable_assignment" else self._word([child]) for child in rest]
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._nested(child)
        self._run((literal_word(self._text(keyword)), *words), stdin=stdin)

    def _test(self, node: Node, stdin: _Input) -> None:
        # `[[ 'x[$(cmd)]' -eq 1 ]]` runs cmd although it is quoted, so its words are no matter for rules.
        self._run((literal_word(self._text(node)[:2].strip()),), stdin=stdin)
        self._nested(node)

    def _assignment(self, node: Node, stdin: _Input) -> None:
        self._run((), (self._assigned_name(node),), stdin=stdin)
        self._nested(node)

    def _assigned_name(self, node: Node) -> str:
        return self._text(node).partition("=")[0].removesuffix("+")

    def _raw(self, node: Node) -> Word:
        return Word(self._text(node), self._text(node), "computed")

    def _loop(self, node: Node, stdin: _Input) -> None:
        variable = node.child_by_field_name("variable")
        if variable is not None:
            self._run((), (self._text(variable),), stdin=stdin)
        self._visit_children(node, stdin)

    def _function(self, node: Node, stdin: _Input) -> None:
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        written = self._text(name) if name is not None else ""
        before, directory = len(self.commands), self._directory
        if body is not None:
            self._visit(body, stdin)
        self._directory = directory
        itself = [command for command in self.commands[before:] if command.name == written and len(command.words) == 1]
        in_background = body is not None and b"&" in self._source[body.start_byte : body.end_byte]
        spawns = bool(itself) and (len(itself) > 1 or in_background)
        self._run(tuple(map(literal_word, ("function", written, *(("spawns", "itself") if spawns else ())))))

    def _pipeline(self, node: Node, stdin: _Input) -> None:
        directory = self._directory
        for child in node.named_children:
            before = len(self.commands)
            self._visit(child, stdin)
            self._directory = directory  # each stage is a process of its own
            stdin = _Input(True, _printed(self.commands[before:], stdin))  # noqa: FBT003 - a field of its own

    # ------------------------------------------------------------ redirections

    def _redirected(self, node: Node, stdin: _Input) -> None:
        body = node.child_by_field_name("body")
        redirects = node.children_by_field_name("redirect")
        outer, found = stdin, list[Redirection]()
        more: tuple[Word, ...] = ()
        for redirect in redirects:
            stdin, targets, words = self._redirect(redirect, stdin)
            found += targets
            more += words
        before = len(self.commands)
        last = _last_command(body) if body is not None else None
        if body is None:
            self._run(more, (), tuple(found), stdin)
        elif last is not None:
            self._redirects_of[last.id] = (stdin if stdin is not outer else None, found, more)
            self._visit(body, outer)
        else:
            self._visit(body, stdin)
            self._run(more, (), tuple(found), stdin)
        printed = _Input(fed=True, text=_printed(self.commands[before:], stdin))
        for redirect in redirects:
            if redirect.type == "heredoc_redirect":
                self._after_heredoc(redirect, printed)

    def _after_heredoc(self, redirect: Node, printed: _Input) -> None:
        """``cat <<EOF | bash`` and ``cat <<EOF && rm x``: the grammar hangs the rest of the line below the heredoc."""
        for child in redirect.named_children:
            if child.type == "pipeline":
                self._pipeline(child, printed)
            elif child.type not in {"heredoc_start", "heredoc_body", "heredoc_end", *_REDIRECTS, *_WORDS}:
                self._visit(child, _NO_INPUT)

    def _lone_redirect(self, node: Node, stdin: _Input) -> None:
        _stdin, found, words = self._redirect(node, stdin)
        self._run(words, (), tuple(found), stdin)

    def _redirect(self, node: Node, stdin: _Input) -> tuple[_Input, list[Redirection], tuple[Word, ...]]:
        """The new input, the redirections, and words of the command that stand behind them."""
        match node.type:
            case "heredoc_redirect":
                return self._heredoc(node)
            case "herestring_redirect":
                word = self._word(node.named_children[-1:])
                return _Input(fed=True, text=word.text), [Redirection("<<<", None)], ()
            case _:
                return self._file_redirect(node, stdin)

    def _heredoc(self, node: Node) -> tuple[_Input, list[Redirection], tuple[Word, ...]]:
        found = [Redirection("<<", None)]
        words: list[Word] = []
        text = ""
        for child in node.named_children:
            if child.type == "heredoc_body":
                text = self._text(child)
                self._nested(child)
            elif child.type == "file_redirect":
                _stdin, targets, more = self._file_redirect(child, _NO_INPUT)
                found += targets
                words += more
            elif child.type in _WORDS:
                words.append(self._word([child]))
        return _Input(fed=True, text=text), found, tuple(words)

    def _file_redirect(self, node: Node, stdin: _Input) -> tuple[_Input, list[Redirection], tuple[Word, ...]]:
        operator = next((child.type for child in node.children if not child.is_named), ">")
        # The grammar takes the words after `2>&1` for further targets; bash gives them to the command.
        targets = [self._word([child]) for child in node.children_by_field_name("destination")]
        redirection = Redirection(operator, targets[0] if targets else literal_word("-"))
        reads = operator.startswith("<")
        return (_UNKNOWN_INPUT if reads else stdin), [redirection], tuple(targets[1:])

    # ------------------------------------------------------------ words

    def _run(
        self,
        words: tuple[Word, ...],
        assignments: tuple[str, ...] = (),
        redirections: tuple[Redirection, ...] = (),
        stdin: _Input = _NO_INPUT,
    ) -> None:
        """Note one simple command, and those that its words start."""
        if not words:
            if assignments or redirections:
                self.commands.append(SimpleCommand((), assignments, redirections, stdin.fed))
            return
        name = program_name(words[0].text)
        wrapper = WRAPPERS.get(name)
        wraps = wrapper is not None
        self.commands.append(SimpleCommand(words, assignments, redirections, stdin.fed, wraps, self._directory))
        if words[0].form != "literal":
            self.opaque.append("a program whose name is computed")
            self._run_inside(words[1:], stdin)
        elif wrapper is not None:
            self._through(wrapper, words, stdin)
        elif name in SHELLS:
            self._shell(words, stdin)
        elif (special := _SPECIAL.get(name)) is not None:
            special(self, words)

    def _run_inside(self, words: tuple[Word, ...], stdin: _Input, assignments: tuple[str, ...] = ()) -> None:
        # Each wrapper costs a level of Python's stack, and `sudo sudo sudo ...` can be as long as the line.
        if self._tree_depth >= DEEPEST_TREE:
            self.opaque.append("commands nested too deeply, or too long to run")
            return
        self._tree_depth += 1
        self._run(words, assignments, (), stdin)
        self._tree_depth -= 1

    def _through(self, wrapper: Wrapper, words: tuple[Word, ...], stdin: _Input) -> None:
        wrapped = wrapped_by(wrapper, words)
        if wrapper.adds:
            self.opaque.append(f"arguments that {words[0].text} adds")
        self._run_inside(wrapped.words, stdin, wrapped.assignments)
        texts = [(word,) for word in wrapped.script] if wrapper.separate else [_with_arguments(wrapped.script)]
        for text in texts:
            if text:
                self._script_elsewhere(text)

    def _move(self, words: tuple[Word, ...]) -> None:
        """Follow ``cd`` as far as its words say where it leads."""
        operands = [word for word in words[1:] if word.text[:1] != "-" or word.text == "-"]
        if not operands:
            self._directory = "~" if words[0].text == "cd" else ""
            return
        shown = operands[0].shown
        if not _LITERAL_DIRECTORY.fullmatch(shown) or not (self._directory or shown[0] in "/~$"):
            self._directory = ""
            return
        there = seen_from(self._directory, shown)
        if ".." in there.split("/"):
            # From a home that is not known by its path, up leads anywhere.
            there = posixpath.normpath(there) if there.startswith("/") else ""
        self._directory = there

    def _shell(self, words: tuple[Word, ...], stdin: _Input) -> None:
        call = shell_call(words)
        match call.source:
            case "text" if call.script is not None:
                self._script_elsewhere((call.script,))
            case "input" if stdin.text is not None:
                directory = self._directory
                self.read(stdin.text, self._script_depth + 1)
                self._directory = directory
            case "input" | "text":
                self.opaque.append("commands that a shell reads from its input")
            case "file" if call.script is not None and call.script.form != "literal":
                self.opaque.append("a script whose name or text is computed")
            case "file":
                pass

    def _script(self, words: Sequence[Word]) -> None:
        """Read words that a shell will read as one text."""
        if any(word.form == "computed" for word in words):
            self.opaque.append("commands in a text that is computed")
        self.read(" ".join(word.text for word in words), self._script_depth + 1)

    def _script_elsewhere(self, words: Sequence[Word]) -> None:
        """The same for a shell of its own: where that goes, this one stays."""
        directory = self._directory
        self._script(words)
        self._directory = directory

    def _eval(self, words: tuple[Word, ...]) -> None:
        self._script(words[1:])

    def _trap(self, words: tuple[Word, ...]) -> None:
        rest = words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]
        if len(rest) > 1 and rest[0].text not in {"-", "-l", "-p"}:
            self._script(rest[:1])

    def _source_file(self, words: tuple[Word, ...]) -> None:
        if any(word.form != "literal" for word in words[1:2]):
            self.opaque.append("a script whose name or text is computed")

    def _find(self, words: tuple[Word, ...]) -> None:
        texts = [word.text for word in words]
        for index, text in enumerate(texts):
            if text in {"-exec", "-execdir", "-ok", "-okdir"}:
                self.opaque.append("arguments that find adds")
                ends = (at for at in range(index + 1, len(texts)) if texts[at] in {";", "+"})
                self._run_inside(words[index + 1 : next(ends, len(texts))], _NO_INPUT)

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode(errors="replace")


_SPECIAL: dict[str, Callable[[_Reader, tuple[Word, ...]], None]] = {
    "eval": _Reader._eval,  # noqa: SLF001 - a table of its own methods
    "trap": _Reader._trap,  # noqa: SLF001 - the same
    "source": _Reader._source_file,  # noqa: SLF001 - the same
    ".": _Reader._source_file,  # noqa: SLF001 - the same
    "find": _Reader._find,  # noqa: SLF001 - the same
    **dict.fromkeys(MOVERS, _Reader._move),  # noqa: SLF001 - the same
}


def _last_command(body: Node) -> Node | None:
    """Whose redirections they are: in ``a && b | c >f`` those of ``c``, in ``{ a; } >f`` those of no single command."""
    while body.type in {"pipeline", "list", "negated_command"} and body.named_children:
        body = body.named_children[-1]
    return body if body.type == "command" else None


def _unwrapped(group: list[Node]) -> list[Node]:
    """The children of a command name, which is a node around its word."""
    return [child for node in group for child in (node.children if node.type == "command_name" else [node])]


def _with_arguments(script: Sequence[Word]) -> tuple[Word, ...]:
    """``parallel CMD ::: a b``: the arguments after the colons belong behind the command."""
    return tuple(word for word in script if word.text not in {":::", "::::"})


_PRINTERS = frozenset({"cat", "echo", "printf", "tee"})


def _printed(commands: Sequence[SimpleCommand], stdin: _Input) -> str | None:
    """What the last stage of a pipe writes, where the line itself says so."""
    if (
        len(commands) != 1
        or commands[0].name not in _PRINTERS
        or any(word.form == "computed" for word in commands[0].words)
    ):
        return None
    arguments = [word.text for word in commands[0].words[1:]]
    match commands[0].name:
        case "echo":
            return " ".join(argument for argument in arguments if argument not in {"-n", "-e", "-E"})
        case "printf":
            return " ".join(arguments).replace("\\n", "\n").replace("%s", "")
        case "cat" | "tee" if commands[0].name == "tee" or not arguments:
            return stdin.text
        case _:
            return None
