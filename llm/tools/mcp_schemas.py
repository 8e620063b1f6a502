"""Repair the JSON schemas that tool servers send for the arguments of their tools.

Providers refuse a whole request for one bad schema, so every schema is repaired when it arrives. The result is a valid
schema (draft 2020-12) of type object. It has properties and no alternatives (such as `anyOf`) at the top, as OpenAI's
and Anthropic's protocols demand. A repair may allow more arguments, but never fewer: the server checks them itself.

1. `_require_bounds` refuses a schema that is too large or too deep.
2. `_SchemaDocument.merged_at_top` follows the references at the top, and merges the alternatives there.
3. `_SchemaDocument.repair` repairs each keyword, at every level.
4. `_remove_broken` removes references to missing schemas and invalid patterns.

Cases from public issues: arrays without `items` (apify-mcp-server#36, ogx#3004), a string among the properties
(vscode-unify-chat-provider#162), no properties (github-mcp-server#1548), alternatives at the top
(notion-mcp-server#341, huly-mcp#66, mobile-mcp#344), `$ref` that lead nowhere (gemini-cli#13326), lists of types
(mcp-server-excel#674), `properties` of a type other than object (opencode#11889), patterns that Python cannot compile,
references with escaped names, such as those of generic types.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from core.json_types import JsonObject
from core.sentences import Sentence
from core.text import clean

MAX_DEPTH = 40  # levels of nesting, to bound the recursion; handwritten schemas have fewer
MAX_VALUES = 20_000  # values in one schema, nested ones included
MAX_SCHEMA = 100_000  # characters of JSON
MAX_PATTERN = 500  # characters; such a pattern compiles in milliseconds
MAX_ALTERNATIVES = 200  # alternatives merged at the top; references may form cycles

Schema = JsonObject

_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
# JSON types by their names in other type systems, which some servers send.
_TYPE_NAMES = {
    **{name: name for name in _TYPES},
    **dict.fromkeys(("str", "text", "date", "datetime", "uuid", "char"), "string"),
    **dict.fromkeys(("int", "long", "int32", "int64"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    **dict.fromkeys(("dict", "map", "record"), "object"),
    "bool": "boolean",
    "none": "null",
}
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
# OpenAI and Anthropic refuse a request with these at the top of a schema.
_REFUSED_AT_TOP = (
    *_ALTERNATIVES,
    "not",
    "if",
    "then",
    "else",
    "enum",
    "const",
    "dependentSchemas",
    "dependentRequired",
)
_ARRAY_KEYWORDS = (
    "items",
    "prefixItems",
    "contains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
)
_OBJECT_KEYWORDS = (
    *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
    *("minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
)
_REMOVED_KEYWORDS = frozenset(
    {
        *("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$vocabulary"),
        "dependencies",  # split into two other keywords in draft 2019-09
    }
)
_SCHEMAS_BY_NAME = frozenset({"$defs", "definitions", "patternProperties", "dependentSchemas"})
_ONE_SCHEMA = frozenset(
    {
        *("not", "if", "then", "else", "contains", "propertyNames", "additionalProperties", "additionalItems"),
        *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
    }
)
_SCHEMA_LISTS = frozenset({*_ALTERNATIVES, "prefixItems"})
_WITH_SCHEMAS = _SCHEMAS_BY_NAME | _ONE_SCHEMA | _SCHEMA_LISTS


class BadSchema(ValueError):
    """A schema that cannot be repaired. The sentence names the reason."""

    def __init__(self, sentence: Sentence) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence


def repair_schema(schema: Any) -> Schema:
    """Return the schema as a schema of type object that providers accept. Raises `BadSchema`.

    The time is linear in the schema's size, which is limited.
    """
    if schema is None or schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise BadSchema(Sentence("Its input schema is not a JSON object."))
    _require_bounds(schema)
    root = _SchemaDocument(schema)
    result = root.repair(root.merged_at_top(), 0)
    if len(json.dumps(result, ensure_ascii=False)) > MAX_SCHEMA:
        raise BadSchema(Sentence("Its input schema is longer than {max_schema} characters.", max_schema=MAX_SCHEMA))
    return {name: _remove_broken(value, result) for name, value in result.items()}


def _require_bounds(schema: Any) -> None:
    """Raise `BadSchema` for a schema that is too large or too deep. This check does not recurse."""
    pending = [(schema, 0)]
    values = 0
    while pending:
        value, depth = pending.pop()
        values += 1
        if values > MAX_VALUES:
            raise BadSchema(Sentence("Its input schema has more than {max_values} values.", max_values=MAX_VALUES))
        if depth > MAX_DEPTH:
            raise BadSchema(Sentence("Its input schema is nested deeper than {max_depth} levels.", max_depth=MAX_DEPTH))
        if isinstance(value, Mapping):
            pending += [(each, depth + 1) for each in value.values()]
        elif isinstance(value, list):
            pending += [(each, depth + 1) for each in value]


class _SchemaDocument:
    """The original schema, in which references are resolved."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._alternatives = 0

    def merged_at_top(self) -> Schema:
        """Return the schema with the references at its top resolved, and the alternatives there merged.

        Raises `BadSchema` if it does not describe an object.
        """
        top = self._follow_references(dict(self._schema))
        types = _json_types(top.get("type"))
        if types and "object" not in types and types != ["null"]:
            raise BadSchema(
                Sentence("Its input has the type {types}, but the input of a call is an object.", types=types[0])
            )
        if isinstance(top.get("properties"), list) and top["properties"]:
            raise BadSchema(Sentence("Its properties are a list, so their names are unknown."))
        merged = {name: value for name, value in top.items() if name not in _REFUSED_AT_TOP}
        properties, required = _own_properties(top)
        for name in _ALTERNATIVES:
            alternatives = [self._read_alternative(each) for each in _schemas_in(top.get(name))]
            for branch_properties, _required in alternatives:
                _merge_properties(properties, branch_properties)
            needed = [names for _repair_properties, names in alternatives]
            if name == "allOf":
                required += [each for names in needed for each in names]
            elif needed:
                required += [each for each in needed[0] if all(each in names for names in needed)]
        for name in ("then", "else"):
            if isinstance(top.get(name), Mapping):
                _merge_properties(properties, self._read_alternative(top[name])[0])
        return {**merged, "type": "object", "properties": properties, "required": required}

    def _read_alternative(self, schema: Mapping[str, Any]) -> tuple[Schema, list[str]]:
        """Return an alternative's properties and required names. Nested alternatives add their properties."""
        self._alternatives += 1
        if self._alternatives > MAX_ALTERNATIVES:
            raise BadSchema(
                Sentence(
                    "Its input schema has more than {max_alternatives} alternatives.", max_alternatives=MAX_ALTERNATIVES
                )
            )
        resolved = self._follow_references(dict(schema))
        properties, required = _own_properties(resolved)
        for name in _ALTERNATIVES:
            for each in _schemas_in(resolved.get(name)):
                _merge_properties(properties, self._read_alternative(each)[0])
        return properties, required

    def _follow_references(self, schema: Schema) -> Schema:
        """Return the schema merged with the target of its `$ref`. At most `MAX_DEPTH` references are followed."""
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref")
            if reference is None:
                return schema
            target = _resolve(self._schema, reference)
            rest = {name: value for name, value in schema.items() if name != "$ref"}
            schema = {**target, **rest} if isinstance(target, Mapping) and reference != "#" else rest
        return {name: value for name, value in schema.items() if name != "$ref"}

    def repair(self, schema: Mapping[str, Any], depth: int) -> Schema:
        """Return the schema with all known keywords in a shape that the standard allows. Other keywords stay."""
        if depth > MAX_DEPTH:
            raise BadSchema(Sentence("Its input schema is nested deeper than {max_depth} levels.", max_depth=MAX_DEPTH))
        result: Schema = {}
        for name, value in schema.items():
            if (
                name in _REMOVED_KEYWORDS
                or (value is None and name not in ("default", "const"))
                or not _is_finite(value)
            ):
                continue
            self._set_keyword(result, clean(name), value, depth)
        if "properties" in result:
            _drop_unknown_required(result)
        _use_single_types(result)
        return result

    def _set_keyword(self, result: Schema, name: str, value: Any, depth: int) -> None:
        """Set one keyword of `result`. Skip it if its value has no known shape."""
        if name == "properties":
            result["properties"] = self._repair_properties(value, depth, result)
        elif name == "required":
            names = [clean(each) for each in value if isinstance(each, str)] if isinstance(value, list) else []
            result["required"] = list(dict.fromkeys([*result.get("required", ()), *names]))
        elif name == "type":
            if types := _json_types(value):
                result["type"] = types
        elif name == "items":
            result["items"] = self._repair_items(value, depth)
        elif name in _WITH_SCHEMAS:
            self._set_nested(result, name, value, depth)
        else:
            _set_simple_keyword(result, name, value)

    def _set_nested(self, result: Schema, name: str, value: Any, depth: int) -> None:
        if name in _SCHEMA_LISTS and isinstance(value, list) and value:
            result[name] = [self._to_schema(each, depth) for each in value]
        elif name in _SCHEMAS_BY_NAME and isinstance(value, Mapping):
            result[name] = {clean(each): self._to_schema(inner, depth) for each, inner in value.items()}
        elif name in _ONE_SCHEMA and isinstance(value, bool):
            result[name] = value
        elif name in _ONE_SCHEMA and isinstance(value, Mapping):
            result[name] = self.repair(value, depth + 1)

    def _repair_properties(self, value: Any, depth: int, result: Schema) -> Schema:
        if not isinstance(value, Mapping):
            return {}
        properties: Schema = {}
        for name, inner in value.items():
            if _is_misplaced_keyword(name, inner):
                if name == "required":
                    self._set_keyword(result, name, inner, depth)
                continue
            if inner is False:  # the property is forbidden
                continue
            properties[clean(name)] = self._to_schema(inner, depth)
            if isinstance(inner, Mapping) and inner.get("required") is True:  # as in draft 3
                result["required"] = [*result.get("required", ()), clean(name)]
        return properties

    def _repair_items(self, value: Any, depth: int) -> Schema:
        if isinstance(value, list):  # one schema per position, as allowed up to draft 2019-09
            distinct = _without_duplicates([self._to_schema(each, depth) for each in value])
            return distinct[0] if len(distinct) == 1 else {"anyOf": distinct} if distinct else {}
        return self._to_schema(value, depth)

    def _to_schema(self, value: Any, depth: int) -> Schema:
        """Return the schema for a value in the place of one. A string names a type, or else is a description."""
        if isinstance(value, Mapping):
            return self.repair(value, depth + 1)
        if value is False:
            return {"not": {}}
        if not isinstance(value, str):
            return {}
        type_ = _TYPE_NAMES.get(value.strip().lower())
        return _use_single_types({"type": [type_]}) if type_ else {"description": clean(value)}


def _own_properties(schema: Mapping[str, Any]) -> tuple[Schema, list[str]]:
    """Return the properties of an object's schema, and the names that it requires."""
    properties = schema.get("properties")
    required = schema.get("required")
    names = [each for each in required if isinstance(each, str)] if isinstance(required, list) else []
    return (dict(properties) if isinstance(properties, Mapping) else {}), names


def _schemas_in(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _without_duplicates(values: Sequence[Any]) -> list[Any]:
    """Return the JSON values without duplicates."""
    return list({json.dumps(each, sort_keys=True): each for each in values}.values())


def _set_simple_keyword(result: Schema, name: str, value: Any) -> None:
    """Set a keyword that holds no nested schemas, if its value is valid."""
    is_valid = _VALUE_CHECKS.get(name)
    if is_valid is not None:
        if is_valid(value):
            result[name] = _clean_value(value)
    elif name == "enum":
        if isinstance(value, list) and value:
            result[name] = _without_duplicates(_clean_value(value))
    elif name == "examples":
        result[name] = _clean_value(value) if isinstance(value, list) else [_clean_value(value)]
    elif not name.startswith("$"):
        result[name] = _clean_value(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_lists_of_names(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_list_of_texts(each) for each in value.values())


_COUNTS = (
    *("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"),
)
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_TEXTS = ("$ref", "title", "description", "format", "pattern", "$comment", "contentEncoding", "contentMediaType")
_FLAGS = ("uniqueItems", "deprecated", "readOnly", "writeOnly")
_VALUE_CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_COUNTS, _is_count),
    **dict.fromkeys(_NUMBERS, _is_number),
    **dict.fromkeys(_TEXTS, _is_text),
    **dict.fromkeys(_FLAGS, _is_flag),
    "multipleOf": _is_positive,
    "dependentRequired": _is_lists_of_names,
}


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_misplaced_keyword(name: str, value: Any) -> bool:
    """Return whether this property is a keyword of the object that was put among its properties."""
    if name == "type":
        return isinstance(value, str) and value.lower() == "object"
    if name == "additionalProperties":
        return isinstance(value, bool)
    return name in ("required", "enum") and _is_list_of_texts(value)


def _drop_unknown_required(result: Schema) -> None:
    """Remove names of missing properties from `required`: OpenAI and Gemini refuse them."""
    properties = result.get("properties", {})
    names = [name for name in result.get("required", ()) if name in properties]
    if names:
        result["required"] = names
    else:
        result.pop("required", None)


def _use_single_types(schema: Schema) -> Schema:
    """Replace the list in `type` by a single type, in place, and return the schema. Add the keywords that arrays need.

    Several types become alternatives: Gemini and the templates of local models expect one name in `type`.
    """
    types: list[str] = schema.pop("type", [])
    if "enum" in schema and len(types) > 1 and "null" in types:
        types = [each for each in types if each != "null" or None in schema["enum"]]
    if len(types) > 1:
        alternatives = [_alternative_of_type(each, schema) for each in types]
        for name in (*_ARRAY_KEYWORDS, *_OBJECT_KEYWORDS):
            schema.pop(name, None)
        if "anyOf" in schema:
            schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": schema.pop("anyOf")}]
        schema["anyOf"] = alternatives
        return schema
    if types:
        schema["type"] = types[0]
        if types[0] != "object":
            _remove_keywords(schema, _OBJECT_KEYWORDS)
    if schema.get("type") == "array" or ("type" not in schema and "prefixItems" in schema):
        schema.setdefault("items", {})
    return schema


def _alternative_of_type(type_: str, schema: Mapping[str, Any]) -> Schema:
    own = _ARRAY_KEYWORDS if type_ == "array" else _OBJECT_KEYWORDS if type_ == "object" else ()
    alternative = {"type": type_, **{name: schema[name] for name in own if name in schema}}
    if type_ == "array":
        alternative.setdefault("items", {})
    return alternative


def _remove_keywords(schema: Schema, names: Sequence[str]) -> None:
    for name in names:
        schema.pop(name, None)


def _json_types(value: Any) -> list[str]:
    """Return the JSON Schema names of the given types, without duplicates. Unknown types are left out."""
    names = value if isinstance(value, list) else [value]
    types = [_TYPE_NAMES.get(each.strip().lower(), "") for each in names if isinstance(each, str)]
    return list(dict.fromkeys(filter(None, types)))


def _merge_properties(properties: Schema, others: Mapping[str, Any]) -> None:
    """Add an alternative's properties, in place. If both define a property, it may match either schema."""
    for name, schema in others.items():
        if name not in properties:
            properties[name] = schema
        elif properties[name] != schema and isinstance(schema, Mapping):
            current = properties[name]
            schemas = current.get("anyOf", [current]) if _is_alternatives(current) else [current]
            if schema not in schemas:
                properties[name] = {"anyOf": [*schemas, schema]}


def _is_alternatives(schema: Any) -> bool:
    return isinstance(schema, Mapping) and list(schema) == ["anyOf"] and isinstance(schema["anyOf"], list)


def _resolve(document: Mapping[str, Any], reference: Any) -> Any:
    """Return the target of a reference; None if it is outside the document or missing."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    value: Any = document
    for step in filter(None, reference[1:].split("/")):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _remove_broken(value: Any, document: Schema) -> Any:
    """Return the value without references to missing schemas, and without invalid patterns.

    The schema then allows any value there. OpenAI refuses a tool with a pattern that Python cannot compile.
    """
    if isinstance(value, list):
        return [_remove_broken(each, document) for each in value]
    if not isinstance(value, dict):
        return value
    result: Schema = {}
    for name, each in value.items():
        if isinstance(each, str) and name == "$ref" and not isinstance(_resolve(document, each), dict):
            continue
        if isinstance(each, str) and name == "pattern" and not _is_pattern(each):
            continue
        if isinstance(each, dict) and name == "patternProperties":
            each = {pattern: schema for pattern, schema in each.items() if _is_pattern(pattern)}
        result[name] = _remove_broken(each, document)
    return result


def _is_pattern(text: str) -> bool:
    if len(text) > MAX_PATTERN:
        return False
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _clean_value(value: Any) -> Any:
    """Return the value with texts that can be stored and sent. NaN and infinity, which JSON lacks, become None."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean_value(each) for each in value]
    if isinstance(value, Mapping):
        return {clean(str(name)): _clean_value(each) for name, each in value.items()}
    return value if _is_finite(value) else None
