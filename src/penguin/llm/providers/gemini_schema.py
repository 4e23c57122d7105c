"""Tool schemas for Gemini: JSON Schema without what its API refuses, or accepts and then ignores.

They are sent as ``parametersJsonSchema``, which takes ordinary JSON Schema; the older ``parameters`` knows a
part of OpenAPI only and turns a whole request down for one unknown keyword. What is left to do: a ``$ref``
may have no neighbours and must not be recursive, ``const`` and ``allOf`` say nothing to the model, and
``oneOf`` is read as ``anyOf``.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]

_LEFT_OUT: Final = frozenset(
    ["$schema", "$id", "$defs", "$ref", "$comment", "$anchor", "definitions", "const", "allOf"]
)
_MOST_SCHEMAS: Final = 5_000


def gemini_schema(parameters: Schema | None) -> Schema | None:
    """The parameters of a tool as they are sent; ``None`` for a tool without any, which is how Gemini wants it.

    Example::

        gemini_schema({"type": "object", "properties": {"kind": {"const": "a"}}})
        # {"type": "object", "properties": {"kind": {"enum": ["a"], "type": "string"}}}
    """
    if not parameters:
        return None
    schema = _Plain(parameters).of(parameters, ())
    return schema if schema.get("properties") or schema.keys() - {"type", "properties", "required"} else None


class _Plain:
    """Rewrites schemas; ``root`` is where references point."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._room = _MOST_SCHEMAS

    def of(self, schema: Any, inside: tuple[str, ...]) -> Schema:
        """One schema; ``inside`` are the references being followed."""
        self._room -= 1
        match schema:
            case {"$ref": str(reference)}:
                around = {key: value for key, value in schema.items() if key != "$ref"}
                if reference in inside or self._room < 0:
                    # Where a type holds itself the model sees that something is there, and learns the rest by trying.
                    return self.of(around | {"type": "object"}, inside)
                return self.of(self._target(reference) | around, (*inside, reference))
            case {"allOf": list(parts)}:
                merged: Schema = {key: value for key, value in schema.items() if key != "allOf"}
                for part in parts:
                    merged = _merged(self.of(part, inside), merged)
                return self.of(merged, inside)
            case dict():
                kept = {key: self._member(key, value, inside) for key, value in schema.items() if key not in _LEFT_OUT}
                return kept | (_one_value(schema["const"]) if "const" in schema else {})
            case _:
                return {}

    def _member(self, key: str, value: Any, inside: tuple[str, ...]) -> Any:
        match key, value:
            case "properties" | "patternProperties", dict():
                return {name: self.of(schema, inside) for name, schema in value.items()}
            case "items" | "additionalProperties", dict():
                return self.of(value, inside)
            case "anyOf" | "oneOf" | "prefixItems", list():
                return [self.of(schema, inside) for schema in value]
            case _:
                return value

    def _target(self, reference: str) -> Schema:
        found: Any = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) and name else found
        return found if isinstance(found, dict) and reference.startswith("#") else {}


def _merged(one: Schema, other: Schema) -> Schema:
    """Both schemas at once; ``other`` has the last word."""
    merged = {**one, **other}
    for key in one.keys() & other.keys():
        match one[key], other[key]:
            case dict() as these, dict() as those if key == "properties":
                merged[key] = {**these, **those}
            case list() as these, list() as those if key == "required":
                merged[key] = [*these, *(name for name in those if name not in these)]
            case _:
                pass
    return merged


def _one_value(value: Any) -> Schema:
    match value:
        case bool():
            return {"type": "boolean", "description": f"always {str(value).lower()}"}
        case str():
            return {"enum": [value], "type": "string"}
        case int() | float():
            return {"enum": [value], "type": "number" if isinstance(value, float) else "integer"}
        case _:
            return {}
