"""The words in which the built-in tools are offered to the model: short and exact, each is sent with every request."""

from __future__ import annotations

from typing import Any

from penguin.environment.tool import ToolDefinitionConfig
from penguin.protocol.messages import THINKING_LEVELS

MOST_LINES = 1_000_000_000
"""The last line that can be asked for; beyond that a number is a slip, and may be too large to count with."""
LONGEST_WAIT_MS = 24 * 60 * 60 * 1000
"""The longest a call may wait, one day."""


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
        offset={"type": "integer", "minimum": 1, "maximum": MOST_LINES, "description": "First line (default 1)"},
        limit={"type": "integer", "minimum": 1, "maximum": MOST_LINES, "description": "Number of lines (default 2000)"},
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
        yield_time_ms={
            "type": "integer",
            "minimum": 0,
            "maximum": LONGEST_WAIT_MS,
            "description": "How long to wait (default 60000)",
        },
        run_in_background={"type": "boolean", "description": "Return at once: for servers and watchers"},
        tty={"type": "boolean", "description": "Run it in a terminal"},
    ),
    # The wait is bounded by yield_time_ms; a second clock would kill what should move to the background.
    timeout_ms=0,
)

INPUT_COMMAND = ToolDefinitionConfig(
    name="input_command",
    description=(
        "Get new output of a background process, after typing chars (if any) into it. End a line with \\n; "
        "\\u0003 is Ctrl-C, \\u0004 Ctrl-D. Returns when output came and stopped, or it ended."
    ),
    parameters=_object(
        ["process_id"],
        process_id={"type": "string"},
        chars={"type": "string"},
        yield_time_ms={"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT_MS, "description": "Default 10000"},
    ),
    timeout_ms=0,
)

KILL_COMMAND = ToolDefinitionConfig(
    name="kill_command",
    description="End a background process and everything it started. Returns its last output.",
    parameters=_object(["process_id"], process_id={"type": "string"}),
)

RUN_SUBAGENT = ToolDefinitionConfig(
    name="run_subagent",
    description=(
        "Give a self-contained task to a second agent in the same workspace and get its final answer. It sees only "
        "the prompt. Good for long searches and for independent parts."
    ),
    parameters=_object(
        ["prompt", "description"],
        prompt={"type": "string", "description": "The whole task, with everything it must know"},
        description={"type": "string", "description": "The task in a few words"},
        agent_id={"type": "string", "description": "Another configured agent"},
        provider={"type": "string", "description": "With model_id: another model"},
        model_id={"type": "string"},
        thinking_level={"type": "string", "enum": [*THINKING_LEVELS]},
        yield_time_ms={
            "type": "integer",
            "minimum": 0,
            "maximum": LONGEST_WAIT_MS,
            "description": "How long to wait (default 300000)",
        },
        run_in_background={"type": "boolean", "description": "Return at once; its end is reported"},
    ),
    # Its own yield_time_ms is the clock, as for commands.
    timeout_ms=0,
)

INPUT_SUBAGENT = ToolDefinitionConfig(
    name="input_subagent",
    description="Wait for a working subagent, or give an idle one a follow-up task.",
    parameters=_object(
        ["subagent_id"],
        subagent_id={"type": "string"},
        prompt={"type": "string", "description": "The follow-up task"},
        yield_time_ms={
            "type": "integer",
            "minimum": 0,
            "maximum": LONGEST_WAIT_MS,
            "description": "How long to wait (default 300000)",
        },
    ),
    timeout_ms=0,
)

KILL_SUBAGENT = ToolDefinitionConfig(
    name="kill_subagent",
    description="End a subagent and everything it runs.",
    parameters=_object(["subagent_id"], subagent_id={"type": "string"}),
)

READ_IMAGE = ToolDefinitionConfig(
    name="read_image",
    description="Look at an image (png, jpeg, gif, webp) in a file or at an http(s) URL.",
    parameters=_object(["source"], source={"type": "string", "description": "Path or URL"}),
    permission="r",
    for_model="vision",
)

DESCRIBE_IMAGE = ToolDefinitionConfig(
    name="describe_image",
    description="Have a model that can see describe an image (png, jpeg, gif, webp) in a file or at an http(s) URL.",
    parameters=_object(
        ["source"],
        source={"type": "string", "description": "Path or URL"},
        prompt={"type": "string", "description": "What to look for"},
    ),
    permission="r",
    for_model="text-only",
)
