"""Text the harness writes for the model to read: one writer and one parser for each form (P16).

A block is ``[tag]`` … ``[/tag]``; a marker is one line in brackets. A body that contains the tag's own
text cannot break out of its block: such text gets a backslash after its bracket, and the parser
takes it away again.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

BlockTag: TypeAlias = Literal[
    "context_summary",
    "summary",
    "turn_aborted",
    "turn_retried",
    "user_steering",
    "background_task_done",
    "use_skills",
    "user_input",
    "thinking",
    "text",
    "tool_call",
    "tool_call_output",
    "note",
]

NO_OUTPUT: Final = "[no output]"
"""What a tool's output says when there is nothing to say."""


def block(tag: BlockTag, body: str) -> str:
    r"""Wrap ``body`` so that nothing in it can end the block early.

    Example::

        block("user_steering", "faster, please")  # "[user_steering]\nfaster, please\n[/user_steering]"
    """
    return f"[{tag}]\n{_guarded(tag, body)}\n[/{tag}]"


def inline_block(tag: BlockTag, body: str) -> str:
    """The one-line form used for the parts inside a larger block."""
    return f"[{tag}]{_guarded(tag, body)}[/{tag}]"


def read_blocks(tag: BlockTag, text: str) -> list[str]:
    """The bodies of all blocks of this tag in ``text``, in order, as they were before wrapping."""
    bodies = re.findall(rf"\[{tag}\](.*?)\[/{tag}\]", text, re.DOTALL)
    return [_unguarded(tag, _without_frame(body)) for body in bodies]


def _without_frame(body: str) -> str:
    return body.removeprefix("\n").removesuffix("\n") if body.startswith("\n") else body


def _guarded(tag: str, body: str) -> str:
    return re.sub(rf"\[(\\*)(/?{tag}\])", r"[\\\1\2", body)


def _unguarded(tag: str, body: str) -> str:
    return re.sub(rf"\[\\(\\*)(/?{tag}\])", r"[\1\2", body)


# --- markers --------------------------------------------------------------------------------------


def _one_line(text: str) -> str:
    return " ".join(text.split())


def attached_image(path: str) -> str:
    """Where a pasted image lies on disk."""
    return f"[attached image: {_one_line(path)}]"


def attached_file(path: str) -> str:
    """Where an attached file lies on disk."""
    return f"[attached file: {_one_line(path)}]"


def interrupted(reason: str) -> str:
    """Why an output ends early."""
    return f"[interrupted: {_one_line(reason)}]"


def tool_error(message: str) -> str:
    """What went wrong in a tool, without a traceback."""
    return f"[tool error] {message}"


_MARKER = re.compile(r"\[(attached image|attached file|interrupted): (.*)\]\Z")


def read_marker(line: str) -> tuple[str, str] | None:
    """The kind and the content of a marker line, or ``None``.

    Example::

        read_marker("[attached file: a.txt]")  # ("attached file", "a.txt")
    """
    if line.startswith("[tool error] "):
        return "tool error", line.removeprefix("[tool error] ")
    found = _MARKER.match(line)
    return (found[1], found[2]) if found else None


ABORTED_BY_USER: Final = "tool aborted by user"
"""The reason in the output of a call that was running when the user stopped the task."""
