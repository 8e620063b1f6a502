"""Schemas of foreign tools: parts that providers refuse are repaired, or named if they cannot be."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from llm.tools.mcp_schemas import BadSchema, repair_schema

TEXT = {"type": "string"}


def requires(schema: Any) -> None:
    """Fail if OpenAI's or Anthropic's API would refuse the schema."""
    Draft202012Validator.check_schema(schema, format_checker=FormatChecker(formats=()))
    assert schema["type"] == "object" and isinstance(schema["properties"], dict)
    assert not {"anyOf", "oneOf", "allOf", "not", "enum"} & set(schema)
    assert set(schema.get("required", ())) <= set(schema["properties"])
    json.dumps(schema, allow_nan=False).encode()
    _nested(schema)


def _nested(value: Any) -> None:
    if isinstance(value, list):
        for each in value:
            _nested(each)
    if isinstance(value, dict):
        if value.get("type") == "array":
            assert isinstance(value["items"], dict), value
        for each in value.values():
            _nested(each)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, {"type": "object", "properties": {}}),
        ({}, {"type": "object", "properties": {}}),
        ({"type": "object", "properties": None}, {"type": "object", "properties": {}}),
        # PHP writes an empty object as an empty list.
        ({"type": "object", "properties": []}, {"type": "object", "properties": {}}),
        ({"properties": {"a": TEXT}}, {"type": "object", "properties": {"a": TEXT}}),
        ({"type": ["object", "null"], "properties": {"a": TEXT}}, {"type": "object", "properties": {"a": TEXT}}),
        (
            {"type": "object", "properties": {"list": {"type": "array"}}},
            {"type": "object", "properties": {"list": {"type": "array", "items": {}}}},
        ),
        (
            {"type": "object", "properties": {"pair": {"type": "array", "items": [TEXT, TEXT]}}},
            {"type": "object", "properties": {"pair": {"type": "array", "items": TEXT}}},
        ),
        (
            {"type": "object", "properties": {"a": TEXT, "type": "object"}, "required": ["a", "type"]},
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        ),
        (
            {"type": "object", "properties": {"type": "string", "a": "What to look for.", "b": 3, "c": False}},
            {"type": "object", "properties": {"type": TEXT, "a": {"description": "What to look for."}, "b": {}}},
        ),
        (
            {"type": "object", "properties": {"a": {"type": "str", "required": True}}},
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        ),
        (
            {"type": "object", "properties": {"a": TEXT}, "required": ["a", "gone", "a", 3]},
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        ),
        (
            {"type": "object", "properties": {"a": {"type": ["string", "null"], "description": "A."}}},
            {"type": "object", "properties": {"a": {"description": "A.", "anyOf": [TEXT, {"type": "null"}]}}},
        ),
        (
            {"type": "object", "properties": {"a": {"type": ["array", "null"], "items": TEXT}}},
            {
                "type": "object",
                "properties": {"a": {"anyOf": [{"type": "array", "items": TEXT}, {"type": "null"}]}},
            },
        ),
        (
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/Gone", "description": "A."}}},
            {"type": "object", "properties": {"a": {"description": "A."}}},
        ),
        (
            {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema"}}},
            {"type": "object", "properties": {"a": {}}},
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "properties": {}, "required": []}}},
            {"type": "object", "properties": {"a": TEXT}},
        ),
        (
            {"type": "object", "properties": {"a": {"type": "integer", "minimum": float("nan"), "maximum": None}}},
            {"type": "object", "properties": {"a": {"type": "integer"}}},
        ),
        (
            {"properties": {"a": {"type": "string", "pattern": "[z-a"}, "b": {"type": "object", "dependencies": 5}}},
            {"type": "object", "properties": {"a": TEXT, "b": {"type": "object"}}},
        ),
        (
            {"properties": {"a": {"patternProperties": {"(": TEXT, "^x": TEXT}}, "pattern": TEXT}},
            {"type": "object", "properties": {"a": {"patternProperties": {"^x": TEXT}}, "pattern": TEXT}},
        ),
        (
            {"type": "object", "properties": {"a": TEXT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"type": "object", "properties": {"a": TEXT}},
        ),
        (
            {
                "type": "object",
                "oneOf": [
                    {"properties": {"kind": {"const": "a"}, "name": TEXT}, "required": ["kind", "name"]},
                    {"properties": {"kind": {"const": "b"}, "size": {"type": "integer"}}, "required": ["kind"]},
                ],
            },
            {
                "type": "object",
                "properties": {
                    "kind": {"anyOf": [{"const": "a"}, {"const": "b"}]},
                    "name": TEXT,
                    "size": {"type": "integer"},
                },
                "required": ["kind"],
            },
        ),
        (
            {"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}}]},
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["a"]},
        ),
    ],
)  # fmt: skip
def test_a_schema_that_providers_refuse_is_repaired(schema: Any, expected: dict[str, Any]) -> None:
    assert repair_schema(schema) == expected
    requires(repair_schema(schema))


def test_a_schema_that_only_refers_to_its_definition_gets_the_properties_of_that() -> None:
    original = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/Arguments",
        "definitions": {
            "Arguments": {"type": "object", "properties": {"a": {"$ref": "#/definitions/Text"}}},
            "Text": TEXT,
        },
    }
    schema = repair_schema(original)
    assert schema["properties"] == {"a": {"$ref": "#/definitions/Text"}}
    assert "$schema" not in schema and schema["definitions"]["Text"] == TEXT
    requires(schema)


def test_a_reference_with_an_escaped_name_leads_to_its_definition() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Page%5BUser%5D"}}, "$defs": {"Page[User]": TEXT}}
    assert repair_schema(schema) == schema


@pytest.mark.parametrize(
    "whole",
    [
        {"type": "object", "properties": {"a": {"type": "string", "minLength": 1, "pattern": "^x"}}, "required": ["a"]},
        {
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/Tree"}},
            "$defs": {"Tree": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
            "additionalProperties": False,
        },
        {"type": "object", "properties": {"a": {"anyOf": [TEXT, {"type": "null"}], "default": None, "x-order": 1}}},
    ],
)
def test_a_schema_that_providers_take_stays_as_it_is(whole: dict[str, Any]) -> None:
    assert repair_schema(whole) == whole


CIRCLE = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}}, "$ref": "#/$defs/A"}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("object", "not a JSON object"),
        ([], "not a JSON object"),
        ({"type": "array", "items": TEXT}, "has the type array"),
        ({"type": "object", "properties": [{"name": "a", "type": "string"}]}, "names are unknown"),
        (deep(30), "deeper than 40"),
        ({"properties": {"a": {"enum": list(range(30_000))}}}, "20,000 values"),
        ({"properties": {"a": {"description": "x" * 100_001}}}, "100,000 characters"),
        (CIRCLE, "200 alternatives"),
    ],
    ids=range(8),
)
def test_a_schema_that_cannot_be_repaired_says_why(schema: Any, reason: str) -> None:
    with pytest.raises(BadSchema, match=reason):
        repair_schema(schema)


KEYWORDS = st.sampled_from(
    [
        *("type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "enum", "const"),
        *("not", "if", "then", "additionalProperties", "minimum", "minItems", "pattern", "format", "description"),
        *("uniqueItems", "prefixItems", "exclusiveMinimum", "dependentRequired", "examples", "default", "a", "\x00"),
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["object", "array", "string", "#", "#/$defs/a", "#/properties/a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYWORDS, VALUES, max_size=6))
def test_whatever_comes_is_repaired_into_what_providers_take_or_refused(schema: dict[str, Any]) -> None:
    try:
        result = repair_schema(schema)
    except BadSchema:
        return
    requires(result)
    assert repair_schema(result) == result
