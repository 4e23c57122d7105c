"""The conversation of ``penguin demo``: a small program, its failing test, and a model that mends it.

Only the words are scripted. The tools read, run and edit for real, so the last words depend on what
the test really said.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from penguin.testing.replies import ReplyLike
from penguin.testing.turns import Turn, call, say, think, turn

DEMO_PROMPT: Final = "A test in this folder fails. Find out why, and mend the program."
"""What the user asks for."""

_PROGRAM: Final = '''\
"""How a colony of penguins keeps warm."""


def huddles_needed(penguins: int, places: int) -> int:
    """How many huddles of so many places it takes, so that every penguin stands in one."""
    return penguins // places
'''

_TEST: Final = """\
import unittest

from colony import huddles_needed


class HuddlesNeeded(unittest.TestCase):
    def test_full_huddles(self):
        self.assertEqual(huddles_needed(12, 4), 3)

    def test_nobody_is_left_in_the_cold(self):
        self.assertEqual(huddles_needed(10, 4), 3)


if __name__ == "__main__":
    unittest.main()
"""

_WRONG: Final = "    return penguins // places\n"
_RIGHT: Final = "    full, left_over = divmod(penguins, places)\n    return full + (1 if left_over else 0)\n"
_RUN_THE_TEST: Final = "python3 -m unittest"


def demo_workspace_files() -> dict[str, str]:
    """The files of the workspace: relative path and content.

    Example::

        for name, content in demo_workspace_files().items():
            (workspace / name).write_text(content, encoding="utf-8")
    """
    return {"colony.py": _PROGRAM, "test_colony.py": _TEST}


def demo_turns(*, delta_delay: float = 0.018) -> list[ReplyLike]:
    """What the model says, for a `ScriptedProvider`; ``delta_delay`` is in seconds, 0 is at once.

    Example::

        async with ScriptedProvider(demo_turns()) as provider:
            ...  # run DEMO_PROMPT in a workspace with demo_workspace_files()
    """
    return [
        _at_a_readable_pace(_look(), delta_delay),
        _at_a_readable_pace(_see_it_fail(), delta_delay),
        _at_a_readable_pace(_mend(), delta_delay),
        _at_a_readable_pace(_see_it_pass(), delta_delay),
        lambda body: _at_a_readable_pace(_report(body), delta_delay),
    ]


def _look() -> Turn:
    return turn(
        think("Either the program is wrong or the test is. I should read both before I touch anything."),
        say("I will read the program and its test, and then watch the test fail.\n"),
        call("read_file", {"file_path": "colony.py"}),
        call("read_file", {"file_path": "test_colony.py"}),
    )


def _see_it_fail() -> Turn:
    return turn(
        think(
            "The test wants 3 huddles for 10 penguins with 4 places each, and its name says why: "
            "nobody is left in the cold. Integer division rounds down, so I expect 2 here."
        ),
        say("The program rounds down, so I expect 2 where the test wants 3. Let me check that.\n"),
        call("exec_command", {"cmd": _RUN_THE_TEST, "description": "Run the tests"}),
    )


def _mend() -> Turn:
    return turn(
        think(
            "The test states what is meant, so the program has to change. I count the full huddles and add "
            "one for those left over; with nobody left over nothing changes, so the other test still holds."
        ),
        say(
            "The test is right: `10 // 4` is 2, and two penguins have no place. "
            "I will count one more huddle whenever somebody is left over.\n"
        ),
        call("edit_file", {"file_path": "colony.py", "old_string": _WRONG, "new_string": _RIGHT}),
    )


def _see_it_pass() -> Turn:
    return turn(
        say("Now the same tests again.\n"),
        call("exec_command", {"cmd": _RUN_THE_TEST, "description": "Run the tests again"}),
    )


def _report(body: dict[str, Any]) -> Turn:
    """The last words, true to what the second run of the tests said."""
    if _tests_passed(body):
        return turn(
            say(
                "Both tests pass.\n\n"
                "- **Cause:** `huddles_needed` used integer division, which dropped the penguins that do not fill a "
                "huddle.\n"
                "- **Change:** one more huddle when somebody is left over, in `colony.py`; the test is untouched.\n"
            )
        )
    return turn(
        say(
            "The tests did not pass on this machine; their output above says why. "
            "My words are scripted, so I stop here instead of guessing.\n"
        )
    )


def _tests_passed(body: dict[str, Any]) -> bool:
    # Whatever the protocol: the newest test run is the last one that the request tells of.
    _, ran, after = json.dumps(body).rpartition("Ran 2 tests")
    return bool(ran) and "FAILED" not in after


def _at_a_readable_pace(said: Turn, delta_delay: float) -> Turn:
    return replace(said, delta_size=5, delta_delay=delta_delay)
