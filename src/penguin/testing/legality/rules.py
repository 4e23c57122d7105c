"""What the protocols have in common: names, JSON arguments, images and schemas of tools."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Final

IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

_JSON_TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_DATA_URL: Final = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,(.*)\Z", re.DOTALL)
_SUBSCHEMAS: Final = ("anyOf", "oneOf", "allOf")


class Complaints:
    """Collects what is wrong, each with the place in the body it is about."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, place: str, problem: str) -> None:
        """Note a problem."""
        self.found.append(f"{place}: {problem}")

    def unless(self, right: object, place: str, problem: str) -> bool:
        """Note the problem unless all is right; says whether it is."""
        if not right:
            self.add(place, problem)
        return bool(right)


def is_word(value: object, pattern: re.Pattern[str]) -> bool:
    """Whether a value is text that matches as a whole."""
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def is_filled(value: object) -> bool:
    """Whether a value is text with more than white space in it."""
    return isinstance(value, str) and bool(value.strip())


def is_count(value: object, least: int = 1) -> bool:
    """Whether a value is a whole number of at least ``least``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_arguments(arguments: object, place: str, complaints: Complaints) -> None:
    """Arguments written as text must be one JSON object."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else None
    except ValueError as error:
        complaints.add(place, f"the arguments are not valid JSON: {error}")
        return
    complaints.unless(isinstance(value, dict), place, "the arguments must be the text of a JSON object")


def check_image_url(url: object, place: str, complaints: Complaints) -> None:
    """A web address, or a data URL with an image of a type that all providers read."""
    if isinstance(url, str) and url.startswith(("http://", "https://")):
        return
    match = _DATA_URL.match(url) if isinstance(url, str) else None
    if complaints.unless(match, place, "expected a web address or a base64 data URL") and match:
        check_base64_image(match[1], match[2], place, complaints)


def check_base64_image(mime: object, data: object, place: str, complaints: Complaints) -> None:
    """The type must be an image's, the data base64 and not empty."""
    complaints.unless(
        mime in IMAGE_TYPES, place, f"unsupported image type {mime!r}; use {', '.join(sorted(IMAGE_TYPES))}"
    )
    check_base64(data, place, complaints)


def check_base64(data: object, place: str, complaints: Complaints) -> None:
    """Not empty and decodable."""
    try:
        decoded = base64.b64decode(data, validate=True) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        decoded = b""
    complaints.unless(decoded, place, "the data is empty or no base64")


def check_names(names: list[object], pattern: re.Pattern[str], place: str, complaints: Complaints) -> None:
    """Tool names: of the alphabet, and each once."""
    for position, name in enumerate(names):
        complaints.unless(
            is_word(name, pattern), f"{place}[{position}].name", f"{name!r} does not match {pattern.pattern}"
        )
    if len(set(map(str, names))) != len(names):
        complaints.add(place, "tool names must be unique")


def check_schema(schema: object, place: str, complaints: Complaints) -> None:
    """The parameters of a tool: an object schema that hangs together."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        complaints.add(place, "the parameters of a tool must be a schema of type object")
        return
    _check_subschema(schema, place, complaints)


def _check_subschema(schema: Any, place: str, complaints: Complaints) -> None:
    if isinstance(schema, bool):
        return
    if not complaints.unless(isinstance(schema, dict), place, "a schema must be an object"):
        return
    types = schema.get("type")
    for kind in types if isinstance(types, list) else [types] if "type" in schema else []:
        complaints.unless(kind in _JSON_TYPES, place, f"{kind!r} is no JSON type")
    properties = schema.get("properties", {})
    if complaints.unless(isinstance(properties, dict), f"{place}.properties", "must be an object"):
        _check_required(schema.get("required", []), properties, place, complaints)
        for name, inner in properties.items():
            _check_subschema(inner, f"{place}.properties.{name}", complaints)
    if types == "array":
        complaints.unless("items" in schema or "prefixItems" in schema, place, "an array schema needs items")
    if "items" in schema:
        _check_subschema(schema["items"], f"{place}.items", complaints)
    for key in _SUBSCHEMAS:
        for number, inner in enumerate(schema.get(key, [])):
            _check_subschema(inner, f"{place}.{key}[{number}]", complaints)
    if "enum" in schema:
        complaints.unless(
            isinstance(schema["enum"], list) and schema["enum"], place, "enum must be a list with a value"
        )


def _check_required(required: Any, properties: dict[str, Any], place: str, complaints: Complaints) -> None:
    known = isinstance(required, list) and all(name in properties for name in required)
    complaints.unless(known, f"{place}.required", "names what is no property")
