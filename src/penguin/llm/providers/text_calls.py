"""Calls that a model writes as text (L18): recognising them in a stream, and writing them for such a model.

A reader holds text back only while it may still be a call; the moment it cannot, everything held is
let go as text. Nothing that turned out to be a call was ever shown as text.

- ``auto``: the reply must be nothing but calls to known tools, fences and tags aside.
- ``text``: calls may also stand between words; the words stay text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from penguin.protocol.messages import ToolDefinition, scrub

_TAGS: Final = ("<tool_call>", "<tool_calls>", "<tools>", "<function_call>")
_ANY_TAG = re.compile(r"</?(?:tool_calls?|tools|function_call)>")
_FENCE = re.compile(r"```[ \t]*([A-Za-z0-9_+-]*)[ \t]*(?:\r?\n|$)")
_FENCE_NAMES: Final = ("", "json", "jsonc", "json5", "tool_call", "tool_calls", "tools", "xml", "text", "plaintext")
_FIRST_KEYS: Final = ("name", "arguments", "parameters", "function", "type", "id", "tool_calls")
_HEAD: Final = 400
_decoder = json.JSONDecoder(strict=False)


class TextCall(Struct, frozen=True):
    """A call found in text; ``arguments`` is the text of a JSON object."""

    name: str
    arguments: str


# --- writing ------------------------------------------------------------------------------------------


def tools_as_text(tools: Sequence[ToolDefinition]) -> str:
    """The tools, and how to call them, for a model whose server takes no tool definitions."""
    lines = [
        msgspec.json.encode(
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters or {"type": "object"}}
        ).decode()
        for tool in tools
    ]
    return "\n".join(
        [
            "You can call these tools, one JSON schema per line:",
            "<tools>",
            *lines,
            "</tools>",
            "To call a tool, write exactly this, once per call, and nothing after it:",
            '<tool_call>{"name": "TOOL", "arguments": {...}}</tool_call>',
            "The results come back in <tool_response> blocks.",
        ]
    )


def call_as_text(name: str, arguments: str) -> str:
    """A call the way such a model writes it."""
    return f'<tool_call>{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}</tool_call>'


def result_as_text(tool_call_id: str, output: str) -> str:
    """A result the way such a model reads it."""
    return f'<tool_response id="{tool_call_id}">\n{output}\n</tool_response>'


# --- recognising --------------------------------------------------------------------------------------


def parse_calls(text: str, known: Collection[str]) -> list[TextCall] | None:
    r"""The calls that ``text`` consists of; ``None`` when it is anything else.

    Example::

        parse_calls('```json\n{"name":"ls","arguments":{}}\n```', {"ls"})  # [TextCall("ls", "{}")]
    """
    try:
        return _parsed(text, known)
    except RecursionError:  # nested beyond what can be a call
        return None


def _parsed(text: str, known: Collection[str]) -> list[TextCall] | None:
    calls: list[TextCall] = []
    tagged = False
    position = 0
    while position < len(text):
        if text[position].isspace() or text[position] in ",;":
            position += 1
        elif fence := _FENCE.match(text, position):
            if fence[1].lower() not in _FENCE_NAMES:
                return None
            position = fence.end()
        elif tag := _ANY_TAG.match(text, position):
            tagged = not tag[0].startswith("</")
            position = tag.end()
        else:
            found = _value_at(text, position)
            if found is None:
                return None
            value, position = found
            those = _calls_in(value, known, bare_name=tagged)
            if not those:
                return None
            calls += those
    return calls or None


def _value_at(text: str, position: int) -> tuple[Any, int] | None:
    """The JSON value that starts here and where it ends; doubled braces, a templating slip, are undone."""
    if text[position] not in "{[":
        return None
    for candidate in (text, *_undoubled(text, position)):
        start = position if candidate is text else 0
        try:
            value, end = _decoder.raw_decode(candidate, start)
        except (ValueError, RecursionError):
            continue
        if candidate is text:
            return value, end
        # The undoubled text is shorter; a doubled call must be the last thing written.
        return (value, len(text)) if _is_rest(candidate[end:]) else None
    return None


def _undoubled(text: str, position: int) -> list[str]:
    rest = text[position:]
    if not re.match(r"\[?\s*\{\{", rest):
        return []
    outer_only = re.sub(r"\{\{", "{", rest, count=1)
    return [_outside_strings(rest), outer_only, _without_last_brace(outer_only)]


def _outside_strings(text: str) -> str:
    pieces = re.split(r'("(?:[^"\\]|\\.)*")', text, flags=re.DOTALL)
    pieces[::2] = [piece.replace("{{", "{").replace("}}", "}") for piece in pieces[::2]]
    return "".join(pieces)


def _without_last_brace(text: str) -> str:
    end = text.rfind("}")
    return text if end < 0 else text[:end] + text[end + 1 :]


def _is_rest(text: str) -> bool:
    return not _ANY_TAG.sub("", text).replace("```", "").strip(" \t\r\n}")


def _calls_in(value: Any, known: Collection[str], *, bare_name: bool) -> list[TextCall] | None:
    match value:
        case {"tool_calls": list(items)} | list(items):
            those = [_calls_in(item, known, bare_name=bare_name) for item in items]
            return [call for calls in those for call in calls or ()] if all(those) else None
        case {"function": dict(function)}:
            return _calls_in(function, known, bare_name=True)
        case {"function": str(name), "arguments": arguments} | {"name": str(name), "arguments": arguments}:
            return _call(name, arguments, known)
        case {"name": str(name), "parameters": arguments}:
            return _call(name, arguments, known)
        case {"name": str(name)} if bare_name:
            return _call(name, {}, known)
        case _:
            return None


def _call(name: str, arguments: Any, known: Collection[str]) -> list[TextCall] | None:
    if name not in known:
        return None
    match arguments:
        case dict():
            return [TextCall(name, scrub(json.dumps(arguments, ensure_ascii=False)))]
        case str(text):
            try:
                inner = json.loads(text or "{}", strict=False)
            except (ValueError, RecursionError):
                return None
            return _call(name, inner, known) if isinstance(inner, dict) else None
        case None:
            return [TextCall(name, "{}")]
        case _:
            return None


def may_become_calls(text: str, known: Collection[str]) -> bool:
    """Whether text that begins like this may still turn out to be calls; looks at the beginning only."""
    head = text[:_HEAD].lstrip()
    if not head:
        return True
    match head[0]:
        case "<":
            return any(tag.startswith(head) or head.startswith(tag) for tag in _TAGS)
        case "`":
            return _fence_may_hold_calls(head, known)
        case "{" | "[":
            return _json_may_be_call(head, known)
        case _:
            return False


def _fence_may_hold_calls(head: str, known: Collection[str]) -> bool:
    if len(head) < 3:  # noqa: PLR2004 - three ticks make a fence
        return "```".startswith(head)
    if not head.startswith("```"):
        return False
    first_line, newline, rest = head.partition("\n")
    label = first_line[3:].strip().lower()
    if not newline:
        return any(name.startswith(label) for name in _FENCE_NAMES)
    return label in _FENCE_NAMES and may_become_calls(rest, known)


def _json_may_be_call(head: str, known: Collection[str]) -> bool:
    inner = head.lstrip("[{ \t\r\n")
    if not inner:
        return True
    if not inner.startswith('"'):
        return False
    key, closed, rest = inner[1:].partition('"')
    if not closed:
        return any(name.startswith(key) for name in _FIRST_KEYS)
    if key not in _FIRST_KEYS:
        return False
    value = re.match(r'\s*:\s*"([^"\\]*)("?)', rest)
    if key != "name" or value is None:
        return True
    return value[1] in known if value[2] else any(name.startswith(value[1]) for name in known)


_CANDIDATE = re.compile(r"<tool_calls?>|<tools>|<function_call>|```|^[ \t]*[\[{]", re.MULTILINE)
_MAYBE_CANDIDATE = re.compile(r"(?:<[a-z_]*|`{1,2}|(?:^|(?<=\n))[ \t]*)\Z")
_ENDS: Final = {
    "<tool_call>": "</tool_call>",
    "<tool_calls>": "</tool_calls>",
    "<tools>": "</tools>",
    "<function_call>": "</function_call>",
    "```": r"\n[ \t]*```",
}
_OUTSIDE_STRINGS: Final = {
    opening: re.compile(rf'(?:"(?:[^"\\]|\\.)*+"|[^"])*?{end}', re.DOTALL) for opening, end in _ENDS.items()
}
"""To the end of what opens so: an argument may hold the same characters."""

_ANYWHERE: Final = {opening: re.compile(end) for opening, end in _ENDS.items()}
_LONGEST_END: Final = 20


class TextCallReader:
    """Stands between the content of a reply and what is said; see the module for what it holds back.

    ``say`` shows text, ``call`` makes a call of a name and arguments.
    """

    def __init__(
        self,
        known: Collection[str],
        say: Callable[[str], object],
        call: Callable[[str, str], None],
        *,
        between_words: bool,
    ) -> None:
        self._known = known
        self._say = say
        self._call = call
        self._between_words = between_words
        self._held = ""
        self._looked_at = 0
        self._at_line_start = True
        self._pieces: list[str] = []
        self._passing = False
        self._found = False

    def read(self, text: str) -> None:
        """Take the next piece of content."""
        if self._passing:
            self._say(text)
        elif self._between_words:
            self._held += text
            self._scan()
        else:
            self._pieces.append(text)
            if len(self._held) < _HEAD:
                self._held += text
            if not may_become_calls(self._held, self._known):
                self._let_go()

    def finish(self, *, native_calls: bool, cut: bool) -> bool:
        """The text has ended: what is held becomes calls or text; says whether a call was cut off in it."""
        if self._between_words and not native_calls and not cut:
            self._scan(to_the_end=True)
            return False
        held = self._held if self._between_words else "".join(self._pieces)
        self._held, self._pieces = "", []
        if native_calls:
            self._passing = True
        elif not cut and (calls := parse_calls(held, self._known)):
            self._make(calls)
            return False
        if held:
            self._say(held)
        return cut and self._mentions_call(held)

    def found_calls(self) -> bool:
        """Whether the text held calls."""
        return self._found

    def _let_go(self) -> None:
        self._passing = True
        held, self._held, self._pieces = "".join(self._pieces), "", []
        self._say(held)

    def _make(self, calls: list[TextCall]) -> None:
        self._found = True
        for call in calls:
            self._call(call.name, call.arguments)

    def _mentions_call(self, held: str) -> bool:
        names = "|".join(re.escape(name) for name in self._known)
        return bool(names and re.search(rf'"(?:name|function)"\s*:\s*"(?:{names})"', held))

    # --- calls between words ---------------------------------------------------------------------------

    def _scan(self, *, to_the_end: bool = False) -> None:
        """Let go of words and make the calls between them, as far as both are certain."""
        while self._held:
            start = self._next_candidate()
            if start is None:
                self._speak(self._take(len(self._held) if to_the_end else self._certain_words()))
                return
            if start.start():
                self._speak(self._take(start.start()))
                continue
            end = self._candidate_end(start[0]) or (self._last_resort(start[0]) if to_the_end else None)
            if end is None:
                return
            candidate = self._take(end)
            calls = parse_calls(candidate, self._known)
            if calls:
                self._make(calls)
                self._at_line_start = True
            else:
                self._speak(candidate)

    def _next_candidate(self) -> re.Match[str] | None:
        """The next opening; a bracket counts at the beginning of a line, wherever the pieces of the stream begin."""
        found = _CANDIDATE.finditer(self._held)
        return next((each for each in found if each.start() or self._at_line_start or each[0] in _ENDS), None)

    def _take(self, length: int) -> str:
        taken, self._held, self._looked_at = self._held[:length], self._held[length:], 0
        return taken

    def _speak(self, words: str) -> None:
        if not words:
            return
        *above, last = words.split("\n")
        self._at_line_start = (bool(above) or self._at_line_start) and not last.strip(" \t")
        self._say(words)

    def _certain_words(self) -> int:
        tail = _MAYBE_CANDIDATE.search(self._held)
        return tail.start() if tail else len(self._held)

    def _candidate_end(self, opening: str) -> int | None:
        """Where the candidate at the front ends; ``None`` while that is open."""
        if not may_become_calls(self._held, self._known):
            return max(len(opening), 1)
        # Only what is new can end it: to read all of it at each piece would be quadratic.
        new, self._looked_at = self._held[max(0, self._looked_at - _LONGEST_END) :], len(self._held)
        if opening in _ENDS:
            if _ANYWHERE[opening].search(new) is None:
                return None
            end = _OUTSIDE_STRINGS[opening].match(self._held, len(opening))
            return end.end() if end else None
        if not {"}", "]"} & set(new):
            return None
        try:
            # As it is: doubled braces are undone at the end only, when it is known that nothing follows.
            return _decoder.raw_decode(self._held, len(self._held) - len(self._held.lstrip()))[1]
        except (ValueError, RecursionError):
            return None

    def _last_resort(self, opening: str) -> int:
        """Nothing more comes: all of it if that is calls, else to the next thing that looks like an end."""
        if parse_calls(self._held, self._known):
            return len(self._held)
        end = _ANYWHERE[opening].search(self._held, len(opening)) if opening in _ENDS else None
        return end.end() if end else len(opening)
