"""The words in which the built-in tools are offered to the model: short and exact, each is sent with every request."""

from __future__ import annotations

from typing import Any

from penguin.environment.tool import ToolDefinitionConfig


def _object(required: list[str], /, **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


READ_FILE = ToolDefinitionConfig(
    name="read_file",
    description=(
        "Read a text file as numbered lines. The number and the tab after it are not part of the file. "
        "Relative paths start at the workspace."
    ),
    parameters=_object(
        ["file_path"],
        file_path={"type": "string"},
        offset={"type": "integer", "minimum": 1, "description": "First line (default 1)"},
        limit={"type": "integer", "minimum": 1, "description": "Number of lines (default 2000)"},
    ),
    permission="r",
    # The tool bounds its own output, line by line, with a note how to go on; a second cut would hide that note.
    max_output_length=70_000,
)

EDIT_FILE = ToolDefinitionConfig(
    name="edit_file",
    description=(
        "Replace text in a file. Copy old_string exactly from the file, with its indentation and without line numbers, "
        "and with enough lines around it to occur only once. Returns the diff."
    ),
    parameters=_object(
        ["file_path", "old_string", "new_string"],
        file_path={"type": "string"},
        old_string={"type": "string"},
        new_string={"type": "string"},
        replace_all={"type": "boolean", "description": "Replace every occurrence (default false)"},
    ),
)

WRITE_FILE = ToolDefinitionConfig(
    name="write_file",
    description=(
        "Create a file, with its directories, or replace its whole content. Read an existing file first. "
        "For a change to part of a file use edit_file."
    ),
    parameters=_object(["file_path", "content"], file_path={"type": "string"}, content={"type": "string"}),
)

EXEC_COMMAND = ToolDefinitionConfig(
    name="exec_command",
    description=(
        "Run a bash command and return its output (stdout and stderr together). Each call starts a new shell in the "
        "workspace: cd and variables do not carry over. Nothing can be typed into it unless tty or run_in_background "
        "is set. A command that takes longer than yield_time_ms goes on in the background under a process_id."
    ),
    parameters=_object(
        ["cmd", "description"],
        cmd={"type": "string"},
        description={"type": "string", "description": "What it does, in a few words"},
        workdir={"type": "string", "description": "Directory to run in (default: the workspace)"},
        yield_time_ms={"type": "integer", "minimum": 0, "description": "How long to wait (default 60000)"},
        run_in_background={"type": "boolean", "description": "Return at once: for servers and watchers"},
        tty={"type": "boolean", "description": "Run it in a terminal"},
    ),
    # The wait is bounded by yield_time_ms; a second clock would kill what should move to the background.
    timeout_ms=0,
)
