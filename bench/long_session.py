"""5,000 turns in one context: the engine's share of a turn stays flat, the body's share is linear in its size."""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import anyio
from _measure import MEGABYTE, Report, median

from penguin.agent.agent import create_agent
from penguin.llm.model import GenerativeModel
from penguin.llm.transport import HttpRequest, HttpResponse
from penguin.protocol.interfaces import GenerateRequest, LLMInterface, ModelConfig
from penguin.protocol.messages import Message, RequestEnd
from penguin.session.approval import allow_all

TURNS = 5_000
STRETCH = 500


class Answers:
    """A transport that answers at once: a call each time, and words when the turns are used up."""

    def __init__(self) -> None:
        self.turn = 0
        self.bytes_sent = 0

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        self.turn += 1
        self.bytes_sent = len(request.body)
        yield HttpResponse(200, {"content-type": "text/event-stream"}, self._events())

    async def _events(self) -> AsyncIterator[bytes]:
        if self.turn > TURNS:
            yield b'data: {"choices":[{"delta":{"content":"Done."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
            return
        arguments = f'{{\\"file_path\\": \\"{self.turn % 2}.txt\\"}}'
        call = f'{{"index":0,"id":"call_{self.turn}","function":{{"name":"read_file","arguments":"{arguments}"}}}}'
        yield f'data: {{"choices":[{{"delta":{{"tool_calls":[{call}]}},"finish_reason":"tool_calls"}}]}}\n\n'.encode()
        yield b"data: [DONE]\n\n"

    async def aclose(self) -> None:
        pass


class Timed(GenerativeModel):
    """Keeps the CPU seconds that building, encoding and hashing each body took.

    The model hashes a body later, out of our sight; so it is hashed here too, and counted twice.
    """

    def __init__(self, config: ModelConfig, answers: Answers) -> None:
        super().__init__(replace(config, base_url="http://127.0.0.1/v1"), transport=answers)
        self.bodies: list[float] = []

    def _body_of(self, request: GenerateRequest, spoken: int) -> bytes:
        started = time.process_time()
        body = super()._body_of(request, spoken)
        built = time.process_time()
        hashlib.sha256(body).digest()
        self.bodies.append(built - started + 2 * (time.process_time() - built))
        return body


async def main() -> int:
    answers, models, stamps = Answers(), list[Timed](), list[float]()

    def build(config: ModelConfig) -> LLMInterface:
        models.append(Timed(config, answers))
        return models[-1]

    with tempfile.TemporaryDirectory() as directory:
        root = anyio.Path(directory)
        for name in ("0.txt", "1.txt"):
            await (root / name).write_text("one line\n")
        agent = await create_agent(root=Path(directory, "data"))
        session = await agent.create_session(model=build, workspace_dir=directory, max_turns=0)
        session.observe(lambda message: stamps.append(time.process_time()) if _ends(message) else None)
        async with session, session.run("Read the files for ever", approve=allow_all) as stream:
            async for _ in stream:
                pass
    turns = [after - before for before, after in pairwise(stamps)]
    bodies = models[0].bodies[1 : len(turns) + 1]
    engine = [turn - body for turn, body in zip(turns, bodies, strict=True)]
    early, late = median(engine[100 : 100 + STRETCH]), median(engine[-STRETCH:])
    report = Report()
    what = f"turns {len(turns) - STRETCH} to {len(turns)} beside 100 to {100 + STRETCH}, body aside"
    report.figure(what, late / early, "x", 1.3)
    report.figure("  one of the last, body aside", late * 1e3, "ms CPU")
    per_megabyte = median(bodies[-STRETCH:]) / (answers.bytes_sent / MEGABYTE)
    size = f"  a body of {answers.bytes_sent / MEGABYTE:.1f} MB, a megabyte of it"
    report.figure(size, per_megabyte * 1e3, "ms CPU", 10)
    return report.status


def _ends(message: Message) -> bool:
    return isinstance(message.payload, RequestEnd)


if __name__ == "__main__":
    sys.exit(anyio.run(main))
