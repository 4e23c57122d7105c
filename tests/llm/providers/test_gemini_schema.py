"""Tool schemas for Gemini."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penguin.llm.providers.gemini_schema import gemini_schema

STRING = {"type": "string"}


def of_property(schema: Any, **root: Any) -> Any:
    """What becomes of a property's schema."""
    rewritten = gemini_schema({"type": "object", "properties": {"x": schema}, **root})
    assert rewritten is not None
    return rewritten["properties"]["x"]


@pytest.mark.parametrize(
    "parameters", [None, {}, {"type": "object"}, {"type": "object", "properties": {}, "required": []}]
)
def test_no_parameters_are_no_schema(parameters: Any) -> None:
    assert gemini_schema(parameters) is None


def test_what_gemini_understands_stays_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"], "description": "d", "enum": ["x", "y"]},
            "b": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 3},
            "c": {"anyOf": [STRING, {"type": "number"}]},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert gemini_schema(schema) == schema


@pytest.mark.parametrize(
    ("const", "expected"),
    [
        ("a", {"enum": ["a"], "type": "string"}),
        (3, {"enum": [3], "type": "integer"}),
        (0.5, {"enum": [0.5], "type": "number"}),
        (True, {"type": "boolean", "description": "always true"}),
        (None, {}),
    ],
)
def test_one_allowed_value_is_an_enum_of_one(const: Any, expected: Any) -> None:
    assert of_property({"const": const}) == expected


def test_references_are_replaced_by_what_they_point_to() -> None:
    defs = {"A": {"type": "array", "items": {"$ref": "#/$defs/B"}}, "B": STRING}
    referring = {"$ref": "#/$defs/A", "description": "mine"}
    assert of_property(referring, **{"$defs": defs}) == {"type": "array", "items": STRING, "description": "mine"}
    assert of_property({"$ref": "#/definitions/a~1b"}, definitions={"a/b": STRING}) == STRING


@pytest.mark.parametrize("reference", ["#/$defs/Missing", "https://example.org/x.json", "", "#/type"])
def test_a_reference_to_nowhere_allows_anything(reference: str) -> None:
    assert of_property({"$ref": reference, "title": "t"})["title"] == "t"


def test_a_recursive_type_ends_in_a_plain_object() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    rewritten = of_property({"$ref": "#/$defs/Node"}, **{"$defs": {"Node": node}})
    assert rewritten == {"type": "object", "properties": {"next": {"type": "object"}}}
    assert gemini_schema({"$ref": "#"}) is None


def test_references_that_multiply_are_bounded() -> None:
    defs: dict[str, Any] = {"L0": STRING}
    for level in range(1, 40):
        reference = {"$ref": f"#/$defs/L{level - 1}"}
        defs[f"L{level}"] = {"type": "object", "properties": {"a": reference, "b": reference}}
    rewritten = of_property({"$ref": "#/$defs/L39"}, **{"$defs": defs})
    assert len(msgspec.json.encode(rewritten)) < 2_000_000


def test_all_of_is_merged() -> None:
    parts = [
        {"properties": {"a": STRING}, "required": ["a"]},
        {"$ref": "#/$defs/B"},
    ]
    defs = {"B": {"type": "object", "properties": {"b": {"const": 1}}, "required": ["b"]}}
    merged = of_property({"allOf": parts, "description": "d"}, **{"$defs": defs})
    assert merged["properties"] == {"a": STRING, "b": {"enum": [1], "type": "integer"}}
    assert (set(merged["required"]), merged["description"]) == ({"a", "b"}, "d")


_any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "allOf", "anyOf", "oneOf", "const", "$ref", "$defs", "required", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "allOf", "$ref", "$defs", "items"]), _any))
def test_a_schema_that_is_none_does_no_harm(schema: dict[str, Any]) -> None:
    rewritten = gemini_schema(schema)
    assert "$ref" not in (rewritten or {})
    assert msgspec.json.encode(rewritten)
