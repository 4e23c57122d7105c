"""D35: schemas that every provider takes, and that allow what the original allows."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from penguin.environment.mcp.schemas import MOST_NODES, for_providers

TREE = {
    "type": "object",
    "$defs": {
        "Node": {
            "type": "object",
            "description": "a node",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            },
        }
    },
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "required": ["root"],
}


def test_D35_a_reference_is_resolved() -> None:
    schema = {
        "type": "object",
        "$defs": {"Q": {"type": "object", "properties": {"limit": {"type": "integer"}}}},
        "properties": {"q": {"$ref": "#/$defs/Q"}},
        "required": ["q"],
    }
    assert for_providers(schema) == {
        "type": "object",
        "properties": {"q": {"type": "object", "properties": {"limit": {"type": "integer"}}}},
        "required": ["q"],
    }


def test_D35_recursion_is_cut() -> None:
    resolved = for_providers(TREE)
    node = resolved["properties"]["root"]
    assert node["properties"]["children"]["items"] == {"type": "object", "description": "a node"}
    assert "$ref" not in json.dumps(resolved)
    deep = {"root": {"value": 1, "children": [{"value": 2, "children": [{"children": []}]}]}}
    assert jsonschema_rs.is_valid(resolved, deep)
    assert not jsonschema_rs.is_valid(resolved, {"root": {"value": "one"}})


def test_D35_a_schema_that_contains_itself_as_a_whole() -> None:
    schema = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    assert for_providers(schema)["properties"]["left"]["properties"]["right"] == {"type": "object"}


def test_D35_references_that_multiply_stay_small() -> None:
    levels = 40
    defs: dict[str, Any] = {
        f"L{n}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/L{n + 1}"} for side in "ab"}}
        for n in range(levels)
    }
    defs[f"L{levels}"] = {"type": "string"}
    resolved = for_providers({"$defs": defs, "properties": {"x": {"$ref": "#/$defs/L0"}}})
    assert json.dumps(resolved).count('"type"') < 3 * MOST_NODES


@pytest.mark.parametrize("reference", ["https://example.org/s.json", "#/nowhere", "#anchor", "other.json#/a", "#/a/0"])
def test_D35_what_cannot_be_resolved_allows_everything(reference: str) -> None:
    resolved = for_providers({"properties": {"x": {"$ref": reference, "description": "kept"}}})
    assert resolved["properties"]["x"] == {"description": "kept"}


def test_D35_pointers_with_escapes_and_indices() -> None:
    schema = {
        "definitions": {"a/b": {"type": "string"}, "c d": {"anyOf": [{"type": "integer"}]}},
        "properties": {"x": {"$ref": "#/definitions/a~1b"}, "y": {"$ref": "#/definitions/c%20d/anyOf/0"}},
    }
    assert for_providers(schema)["properties"] == {"x": {"type": "string"}, "y": {"type": "integer"}}


def test_D35_data_is_not_taken_for_schema() -> None:
    schema = {
        "properties": {
            "$ref": {"type": "string"},
            "$defs": {"type": "string", "default": {"$ref": "#/x"}, "enum": [{"$ref": "#"}]},
        }
    }
    assert for_providers(schema)["properties"] == schema["properties"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": "string"}, {"type": "object", "properties": {}}),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
            {"type": "object", "properties": {}},
        ),
        (
            {"properties": {"a": {"type": "array"}}},
            {"type": "object", "properties": {"a": {"type": "array", "items": {}}}},
        ),
        ({"properties": {"a": True, "b": False}}, {"type": "object", "properties": {"a": {}, "b": {"not": {}}}}),
        (
            {"properties": {"a": {}}, "required": ["a", "b"]},
            {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        ),
        ({"properties": None, "required": None}, {"type": "object", "properties": {}}),
        (
            {"properties": {"a": {"type": "array", "items": [{"type": "string"}, True]}}},
            {"type": "object", "properties": {"a": {"type": "array", "items": {"anyOf": [{"type": "string"}, {}]}}}},
        ),
        (
            {"type": "object", "additionalProperties": False, "properties": {"a": {"additionalProperties": True}}},
            {"type": "object", "additionalProperties": False, "properties": {"a": {"additionalProperties": {}}}},
        ),
    ],
)
def test_D35_what_providers_refuse_is_put_right(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert for_providers(schema) == expected


def test_D35_alternatives_at_the_top_become_one_object() -> None:
    schema = {
        "type": "object",
        "properties": {"always": {"type": "string"}},
        "required": ["always"],
        "anyOf": [
            {
                "properties": {"path": {"type": "string"}, "n": {}},
                "required": ["path", "n"],
                "additionalProperties": False,
            },
            {"$ref": "#/$defs/Url"},
        ],
        "additionalProperties": False,
        "$defs": {"Url": {"properties": {"url": {"type": "string"}, "n": {}}, "required": ["url", "n"]}},
    }
    resolved = for_providers(schema)
    assert set(resolved["properties"]) == {"always", "path", "url", "n"}
    assert resolved["required"] == ["always", "n"]
    assert not {"anyOf", "additionalProperties"} & resolved.keys()


def test_D35_all_of_at_the_top_requires_what_each_part_does() -> None:
    schema = {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}
    assert for_providers(schema)["required"] == ["a", "b"]


def test_the_original_is_left_alone() -> None:
    before = json.dumps(TREE)
    for_providers(TREE)
    assert json.dumps(TREE) == before
