"""From the nodes of one word to the word after quoting."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penguin.environment.policy.command_line import Word, WordForm, quoted_if_needed

if TYPE_CHECKING:
    from tree_sitter import Node

_PLAIN = re.compile(rb"[\w./:=,@%+^-]+")
_PLAIN_COMMAND = re.compile(rb"[\w./:=,@%+^ \t-]+")
_EASY_WORD = re.compile(rb"(?:[\w./:=,@%+^-]++|'[^']*+'|\"(?:[^\"$`\\]++|\$[A-Za-z_]\w*+)*+\"|\$[A-Za-z_]\w*+)++")
_EASY_WORD_TEXT = re.compile(_EASY_WORD.pattern.decode(), re.ASCII)
_in_one_pair = re.compile(r"'([^']*)'|\"([^\"$]*)\"").fullmatch
_is_bare = re.compile(r"[^'\"$]*").fullmatch
_EASY_COMMAND = re.compile(rb"(?:%b)(?:[ \t]++%b)*+" % (_EASY_WORD.pattern, _EASY_WORD.pattern))
_EASY_PIECE = re.compile(r"'(?P<raw>[^']*)'|\"(?P<string>[^\"]*)\"|(?P<variable>\$\w+)|(?P<bare>[^'\"$]+)")
_EASY_STRING_PIECE = re.compile(r"(?P<variable>\$\w+)|(?P<quoted>[^$]+)")
_SETS_A_VARIABLE = re.compile(rb"\w+\+?=")
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)
_ESCAPED_IN_STRING = re.compile(r"\\([$`\"\\\n])")
_WILDCARD = re.compile(r"\\.|([*?\[]|\{[^{}]*(?:,|\.\.)[^{}]*\})", re.DOTALL)
_SPECIAL_WHEN_BARE = re.compile(r"[*?\[\]{}~$`]")
_ALTERNATIVES = re.compile(r"(?<![\\$])\{([^{}]*,[^{}]*)\}")
_BRACED_NAME = re.compile(r"\$\{(\w+)\}")
_ANSI_ESCAPE = re.compile(
    r"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u4>[0-9a-fA-F]{1,4})|U(?P<u8>[0-9a-fA-F]{1,8})"
    r"|(?P<octal>[0-7]{1,3})|c(?P<control>.)|(?P<letter>.))",
    re.DOTALL,
)
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

SUBSTITUTIONS = frozenset({"command_substitution", "process_substitution"})


class WordReader:
    """Builds one word from the nodes it is written in.

    ``substitutions`` collects the nodes of commands that run to compute the word.
    """

    def __init__(self, source: bytes) -> None:
        self._source = source
        self.substitutions: list[Node] = []

    def word(self, nodes: list[Node]) -> Word:
        """The word that these adjacent nodes make."""
        if nodes and (easy := easy_word(self._source[nodes[0].start_byte : nodes[-1].end_byte])) is not None:
            return easy
        return _joined([piece for node in nodes for piece in self._pieces(node)])

    def _pieces(self, node: Node) -> list[_Piece]:
        match node.type:
            case "word" | "number" | "variable_name" | "special_variable_name" | "regex" | "extglob_pattern" if (
                not node.named_children
            ):
                return [_bare(self._text(node))]
            case "raw_string":
                return [_quoted(self._text(node)[1:-1])]
            case "ansi_c_string":
                return [_quoted(_ANSI_ESCAPE.sub(_ansi_character, self._text(node)[2:-1]))]
            case "string":
                return self._string(node)
            case "translated_string":
                return [piece for child in node.named_children for piece in self._pieces(child)]
            case "concatenation" | "command_name":
                return self._concatenation(node)
            case "brace_expression":
                return [_bare(self._text(node))]
            case _:
                return [self._computed(node)]

    def _concatenation(self, node: Node) -> list[_Piece]:
        pieces = [piece for child in node.children for piece in self._pieces(child)]
        # `{a,b}` arrives as the words `{`, `a`, `,b`, `}`, none of which is a pattern by itself.
        if all(piece[2] != "computed" for piece in pieces) and _has_wildcard(self._text(node)):
            pieces.append(("", "", "pattern"))
        return pieces

    def _string(self, node: Node) -> list[_Piece]:
        """The parts of a double-quoted string; the grammar leaves some of its white space to no node."""
        pieces: list[_Piece] = []
        position = node.start_byte + self._source[node.start_byte : node.end_byte].index(b'"') + 1
        for child in node.named_children:
            if child.type != "string_content":
                pieces += [self._string_text(position, child.start_byte), *self._pieces(child)]
                position = child.end_byte
        return [*pieces, self._string_text(position, max(position, node.end_byte - 1))]

    def _string_text(self, start: int, end: int) -> _Piece:
        text = self._source[start:end].decode(errors="replace")
        if "\\" in text:
            text = _ESCAPED_IN_STRING.sub(lambda found: found[1].strip("\n"), text)
        return _quoted(text)

    def _computed(self, node: Node) -> _Piece:
        self._collect_substitutions(node)
        written = _BRACED_NAME.sub(r"$\1", self._text(node))
        return (written, written, "computed")

    def _collect_substitutions(self, node: Node) -> None:
        unseen = [node]
        while unseen:
            node = unseen.pop()
            if node.type in SUBSTITUTIONS:
                self.substitutions.append(node)
            else:
                unseen += node.named_children

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode(errors="replace")


def easy_words(source: bytes) -> list[Word] | None:
    """The words of a simple command that is written without escapes, wildcards and substitutions, else ``None``.

    Most commands are, and asking the syntax tree for each of their words costs more than everything else.
    """
    if _SETS_A_VARIABLE.match(source):
        return None
    if _PLAIN_COMMAND.fullmatch(source):
        return [Word(text, text, "literal") for text in source.decode().split()]
    if _EASY_COMMAND.fullmatch(source) is None:
        return None
    return [
        Word(text, text, "literal") if _is_bare(text) else _easy_word(text)
        for text in _EASY_WORD_TEXT.findall(source.decode(errors="replace"))
    ]


def easy_word(source: bytes) -> Word | None:
    """The same for a single word."""
    if _PLAIN.fullmatch(source):
        text = source.decode()
        return Word(text, text, "literal")
    return _easy_word(source.decode(errors="replace")) if _EASY_WORD.fullmatch(source) else None


def _easy_word(written: str) -> Word:
    if (quoted := _in_one_pair(written)) is not None:
        text = quoted[1] if quoted[1] is not None else quoted[2]
        return Word(text, quoted_if_needed(_marked(text)), "literal")
    return _joined([piece for found in _EASY_PIECE.finditer(written) for piece in _easy_pieces(found)])


def _easy_pieces(found: re.Match[str]) -> list[_Piece]:
    match found.lastgroup:
        case "raw":
            return [_quoted(found["raw"])]
        case "string":
            parts = _EASY_STRING_PIECE.finditer(found["string"])
            return [(part[0], part[0], "computed") if part["variable"] else _quoted(part[0]) for part in parts]
        case "variable":
            return [(found[0], found[0], "computed")]
        case _:
            return [_bare(found[0])]


MOST_ALTERNATIVES = 64


def alternatives(word: Word) -> list[Word]:
    """The words that ``a{b,c}d`` stands for; at most ``MOST_ALTERNATIVES``, anything else stays one word."""
    if word.form != "pattern" or "{" not in word.shown or "'" in word.shown:
        return [word]
    waiting = [word.shown]
    done: list[str] = []
    while waiting and len(waiting) + len(done) <= MOST_ALTERNATIVES:
        shown = waiting.pop()
        found = _ALTERNATIVES.search(shown)
        if found is None:
            done.append(shown)
        else:
            waiting += [shown[: found.start()] + part + shown[found.end() :] for part in found[1].split(",")[::-1]]
    # An empty alternative that stands alone is no word at all.
    return (
        [Word(_ESCAPED.sub(r"\1", shown), shown, "pattern") for shown in dict.fromkeys(done) if shown]
        if not waiting
        else [word]
    )


_Piece = tuple[str, str, WordForm]
"""Value, what rules see, form."""


def _joined(pieces: list[_Piece]) -> Word:
    forms = {form for _text, _shown, form in pieces}
    form: WordForm = "computed" if "computed" in forms else "pattern" if "pattern" in forms else "literal"
    if form == "literal" and pieces and pieces[0][1].startswith("~"):
        form = "pattern"
    text = "".join(text for text, _shown, _form in pieces)
    return Word(text, quoted_if_needed("".join(shown for _text, shown, _form in pieces)), form)


def _bare(written: str) -> _Piece:
    form: WordForm = "pattern" if _has_wildcard(written) else "literal"
    text = _ESCAPED.sub(lambda found: found[1].strip("\n"), written)
    shown = _ESCAPED.sub(lambda found: _marked(found[1].strip("\n")), written)
    return (text, shown, form)


def _quoted(text: str) -> _Piece:
    return (text, _marked(text), "literal")


def _marked(text: str) -> str:
    """Quoted text with a backslash before what would have a meaning without the quotes."""
    return _SPECIAL_WHEN_BARE.sub(r"\\\g<0>", text)


def _has_wildcard(written: str) -> bool:
    return any(found[1] for found in _WILDCARD.finditer(written))


def _ansi_character(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "hex" | "u4" | "u8":
            code = int(found[found.lastgroup], 16)
            return chr(code) if code <= 0x10FFFF else "\ufffd"  # noqa: PLR2004 - the end of Unicode
        case "octal":
            return chr(int(found["octal"], 8) & 0xFF)
        case "control":
            return chr(ord(found["control"]) & 0x1F)
        case _:
            return _ANSI_LETTERS.get(found["letter"], found["letter"])
