"""Streams of a Responses server, and a model that reads them from memory."""

from __future__ import annotations

import json
from typing import Any

from tests.support import llm_kit
from tests.support.llm_kit import Answer, MemoryTransport, Said, Step

from penguin.llm.model import GenerativeModel

USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 12,
}


def event(kind: str, **members: Any) -> bytes:
    """One event, its name in both places."""
    data = json.dumps({"type": kind} | members, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def added(index: int, **item: Any) -> bytes:
    return event("response.output_item.added", output_index=index, item=item)


def done(index: int, **item: Any) -> bytes:
    return event("response.output_item.done", output_index=index, item=item)


def delta(index: int, item_id: str, what: str, text: str, **more: Any) -> bytes:
    return event(f"response.{what}.delta", output_index=index, item_id=item_id, delta=text, **more)


def message_item(text: str, id: str = "msg_1", **more: Any) -> dict[str, Any]:  # noqa: A002 - the protocol's word
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": id, "type": "message", "status": "completed", "role": "assistant", "content": [part]} | more


def message(index: int, *pieces: str, id: str = "msg_1", **more: Any) -> bytes:  # noqa: A002
    """A whole message item."""
    whole = "".join(pieces)
    begin = {"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []} | more
    return b"".join(
        [
            added(index, **begin),
            *(delta(index, id, "output_text", piece, content_index=0) for piece in pieces),
            event("response.output_text.done", output_index=index, item_id=id, content_index=0, text=whole),
            done(index, **message_item(whole, id, **more)),
        ]
    )


def reasoning_item(id: str, *summary: str, **more: Any) -> dict[str, Any]:  # noqa: A002
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": id, "type": "reasoning", "encrypted_content": f"secret of {id}", "summary": parts} | more


def reasoning(index: int, *summary: str, id: str = "rs_1", **more: Any) -> bytes:  # noqa: A002
    """A whole reasoning item, one delta for each part of its summary."""
    return b"".join(
        [
            added(index, id=id, type="reasoning", encrypted_content="incomplete", summary=[]),
            *(delta(index, id, "reasoning_summary_text", text, summary_index=n) for n, text in enumerate(summary)),
            done(index, **reasoning_item(id, *summary, **more)),
        ]
    )


def call_item(name: str, arguments: str, id: str, **more: Any) -> dict[str, Any]:  # noqa: A002
    """A call; its call id is derived from the id of the item."""
    head = {"id": f"fc_{id}", "type": "function_call", "status": "completed", "call_id": f"call_{id}"}
    return head | {"name": name, "arguments": arguments} | more


def call_begin(index: int, name: str, id: str) -> bytes:  # noqa: A002
    return added(index, **call_item(name, "", id, status="in_progress"))


def arguments(index: int, id: str, text: str) -> bytes:  # noqa: A002
    return delta(index, f"fc_{id}", "function_call_arguments", text)


def arguments_done(index: int, id: str, text: str) -> bytes:  # noqa: A002
    kind = "response.function_call_arguments.done"
    return event(kind, output_index=index, item_id=f"fc_{id}", arguments=text)


def call(index: int, name: str, *pieces: str, id: str = "1", **more: Any) -> bytes:  # noqa: A002
    """A whole call item."""
    whole = "".join(pieces)
    deltas = [arguments(index, id, piece) for piece in pieces]
    end = [arguments_done(index, id, whole), done(index, **call_item(name, whole, id, **more))]
    return b"".join([call_begin(index, name, id), *deltas, *end])


def response(status: str, *output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": status, "output": list(output), "usage": USAGE} | more


def completed(*output: dict[str, Any], **more: Any) -> bytes:
    return event("response.completed", response=response("completed", *output, **more))


def incomplete(reason: str, *output: dict[str, Any]) -> bytes:
    details = {"reason": reason}
    return event("response.incomplete", response=response("incomplete", *output, incomplete_details=details))


CREATED = event("response.created", response=response("in_progress", usage=None))


def model(*answers: Answer | Exception, **changes: Any) -> tuple[GenerativeModel, MemoryTransport]:
    return llm_kit.model(*answers, **{"client_type": "openai-responses"} | changes)


async def fold(*steps: Step, **changes: Any) -> Said:
    """One attempt over these bytes."""
    return await llm_kit.ask(model(Answer(steps), **changes)[0])
