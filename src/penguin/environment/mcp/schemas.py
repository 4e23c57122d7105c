"""A server's schema as every provider takes it (D35): no references, an object at the top, no bare arrays.

The model sees the result and calls are checked against it; it allows everything the original allows. The arguments
themselves are passed on as they are, and the server has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties"}
)
_DROPPED = frozenset(
    {"$schema", "$id", "$defs", "definitions", "$anchor", "$comment", "$vocabulary", "$ref", "$dynamicRef"}
    | {"$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"}
)
_COMBINING = ("allOf", "anyOf", "oneOf")
MOST_NODES = 3_000
"""References are followed until the schema has this many parts; beyond it they stand for any value."""


def for_providers(schema: Mapping[str, Any]) -> dict[str, Any]:
    """``schema`` with its references resolved; recursion is cut where a shape begins to contain itself.

    Example::

        for_providers({"$defs": {"Q": {"type": "string"}}, "properties": {"q": {"$ref": "#/$defs/Q"}}})
        # {"type": "object", "properties": {"q": {"type": "string"}}}
    """
    resolved = _Resolver(schema).resolve(schema)
    top = _merged_alternatives(resolved if isinstance(resolved, dict) else {})
    properties = top.get("properties")
    top = {"type": "object", "properties": {}} | top | {"type": "object"}
    if not isinstance(properties, dict):
        top["properties"] = {}
    top["required"] = [each for each in _names(top.get("required")) if each in top["properties"]]
    return {key: value for key, value in top.items() if key != "required" or value}


class _Resolver:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def resolve(self, schema: Any, inside: tuple[str, ...] = ()) -> Any:
        """``inside`` are the references that led here."""
        if not isinstance(schema, Mapping):
            # `true` and `false` are schemas too, which not every provider knows. `false` as "nothing else" is common.
            return {} if schema is True else schema
        self._nodes += 1
        if isinstance(reference := schema.get("$ref"), str):
            return self._followed(reference, schema, inside)
        plain = {key: self._part(key, value, inside) for key, value in schema.items() if key not in _DROPPED}
        return _with_items(plain)

    def _followed(self, reference: str, schema: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
        beside = {key: self._part(key, value, inside) for key, value in schema.items() if key not in _DROPPED}
        if reference in inside or self._nodes > MOST_NODES:
            return _shape_only(self._target(reference)) | beside
        found = self._target(reference)
        target = self.resolve(found, (*inside, reference)) if found is not None else {}
        return (target if isinstance(target, dict) else {}) | beside

    def _part(self, key: str, value: Any, inside: tuple[str, ...]) -> Any:
        if key in _MAPS and isinstance(value, Mapping):
            return {name: self._plain(each, inside) for name, each in value.items()}
        if key in _LISTS and isinstance(value, list):
            return [self._plain(each, inside) for each in value]
        if key == "items" and isinstance(value, list):  # a tuple, as drafts before 2020 wrote it
            return {"anyOf": [self._plain(each, inside) for each in value]} if value else {}
        if key in _SINGLE:
            return self.resolve(value, inside)
        return value  # default, enum, const, examples: data, in which "$ref" is only a word

    def _plain(self, schema: Any, inside: tuple[str, ...]) -> Any:
        return {"not": {}} if schema is False else self.resolve(schema, inside)

    def _target(self, reference: str) -> Any:
        """What a reference within the document points to; ``None`` for every other one."""
        if not reference.startswith("#"):
            return None
        place: Any = self._root
        for step in unquote(reference[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            match place:
                case Mapping() if key in place:
                    place = place[key]
                case list() if key.isdecimal() and int(key) < len(place):
                    place = place[int(key)]
                case _:
                    return None
        return place if reference == "#" or reference.startswith("#/") else None


def _shape_only(target: Any) -> dict[str, Any]:
    """A stand-in for a shape that contains itself: what it is and what is written about it, not what is in it."""
    if not isinstance(target, Mapping):
        return {}
    kept = {key: target[key] for key in ("type", "title", "description") if key in target}
    return _with_items(kept)


def _with_items(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") == "array" and "items" not in schema:
        return schema | {"items": {}}
    return schema


def _merged_alternatives(top: dict[str, Any]) -> dict[str, Any]:
    """Providers refuse alternatives at the top: offer the properties of all, require what every alternative does."""
    properties = dict(top.get("properties") or {}) if isinstance(top.get("properties"), dict) else {}
    required = _names(top.get("required"))
    for keyword in _COMBINING:
        parts = top.get(keyword)
        branches = [_merged_alternatives(each) for each in parts if isinstance(each, dict)] if parts else []
        for branch in branches:
            properties = {**branch.get("properties", {}), **properties}
        required += _required_by(branches, all_of=keyword == "allOf")
    kept = {key: value for key, value in top.items() if key not in {*_COMBINING, "not", "if", "then", "else"}}
    if len(kept) < len(top):
        # "nothing else" was said of one part, and would now forbid what another part offers.
        kept.pop("additionalProperties", None)
        kept.pop("unevaluatedProperties", None)
    return kept | {"properties": properties, "required": list(dict.fromkeys(required))}


def _required_by(branches: list[dict[str, Any]], *, all_of: bool) -> list[str]:
    named = [_names(branch.get("required")) for branch in branches]
    if all_of or len(named) <= 1:
        return [name for names in named for name in names]
    return [name for name in named[0] if all(name in names for names in named[1:])]


def _names(required: Any) -> list[str]:
    return [each for each in required if isinstance(each, str)] if isinstance(required, list) else []
