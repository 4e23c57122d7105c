"""The protocol as a JSON Schema, generated from the Python types (P15)."""

from __future__ import annotations

from typing import Any

import msgspec

from penguin.protocol.messages import EventPayload, ModelPayload, SessionMeta

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_OPAQUE = ("fidelity", "provider")


def protocol_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one message, as this version writes it.

    A file of it is part of the package: ``penguin/protocol/omni-message.schema.json``.

    Example::

        jsonschema_rs.validator_for(protocol_schema()).is_valid(json.loads(message.line))
    """
    kinds: dict[str, tuple[Any, ...]] = {
        "session_meta": (SessionMeta,),
        "model_msg": ModelPayload.__args__,
        "event_msg": EventPayload.__args__,
    }
    structs = [struct for members in kinds.values() for struct in members]
    _, components = msgspec.json.schema_components(structs, ref_template="#/$defs/{name}")
    return {
        "$schema": _DIALECT,
        "title": "OmniMessage",
        "description": (
            "One message of Penguin: a line of a trace file, and the data of a server event. Optional fields are "
            "left out when absent. A reader skips payload types and fields it does not know."
        ),
        "oneOf": [_envelope(kind, members) for kind, members in kinds.items()],
        "$defs": {name: _definition(name, schema) for name, schema in components.items()},
    }


def _envelope(kind: str, members: tuple[Any, ...]) -> dict[str, Any]:
    payloads = [{"$ref": f"#/$defs/{struct.__name__}"} for struct in members]
    return {
        "title": kind,
        "type": "object",
        "properties": {
            "timestamp": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$"},
            "type": {"const": kind},
            "payload": payloads[0] if len(payloads) == 1 else {"oneOf": payloads},
            "origin": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        },
        "required": ["timestamp", "type", "payload"],
    }


def _definition(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    # The structs refuse unknown fields so that the codec notices them; a reader of the schema must not.
    opened = {key: value for key, value in schema.items() if key != "additionalProperties"}
    opened["properties"] = {
        field: _property(field, value, nullable=(name, field) == ("Abort", "reason"))
        for field, value in schema.get("properties", {}).items()
    }
    return opened


def _property(field: str, schema: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    if field in _OPAQUE and not schema:
        return {"type": "object"}
    if nullable or "anyOf" not in schema:
        return {key: value for key, value in schema.items() if key != "default" or value is not None}
    choices = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
    return choices[0] if len(choices) == 1 else {"anyOf": choices}
