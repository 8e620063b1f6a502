"""Repair the JSON schemas that tool servers send for the arguments of their tools.

Providers refuse a whole request for one bad schema, so every schema is repaired when it arrives. The result is a valid
schema (draft 2020-12) of type object. It has properties and no alternatives (such as `anyOf`) at the top, as OpenAI's
and Anthropic's protocols demand. A repair may allow more arguments, never fewer: the server checks them itself.

1. `_require_bounds` refuses a schema that is too large or too deep.
2. `_SchemaDocument.at_top` follows the references at the top and merges the alternatives there.
3. `_SchemaDocument.repaired` repairs each keyword, at every level.
4. `_without_broken` removes references to missing schemas, and invalid patterns.

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

MAX_DEPTH = 40  # levels of nesting; handwritten schemas are flatter, and the recursion needs a bound
MAX_VALUES = 20_000  # values in one schema, nested ones included
MAX_SCHEMA = 100_000  # characters of JSON
MAX_PATTERN = 500  # characters; a pattern of this length compiles in milliseconds
MAX_ALTERNATIVES = 200  # alternatives merged at the top, bounded because references may form cycles

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
_NOT_AT_TOP = (*_ALTERNATIVES, "not", "if", "then", "else", "enum", "const", "dependentSchemas", "dependentRequired")
_OF_ARRAYS = ("items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains")
_OF_OBJECTS = (
    *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
    *("minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
)
_DROPPED = frozenset(
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


def repaired(schema: Any) -> Schema:
    """Return a schema of type object that providers accept. Raises `BadSchema`.

    The time is linear in the schema's size, which is limited.
    """
    if schema is None or schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise BadSchema(Sentence("Its input schema is not a JSON object."))
    _require_bounds(schema)
    root = _SchemaDocument(schema)
    result = root.repaired(root.at_top(), 0)
    if len(json.dumps(result, ensure_ascii=False)) > MAX_SCHEMA:
        raise BadSchema(Sentence("Its input schema is longer than {max_schema} characters.", max_schema=MAX_SCHEMA))
    return {name: _without_broken(value, result) for name, value in result.items()}


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
    """The original schema, against which references are resolved."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._alternatives = 0

    def at_top(self) -> Schema:
        """Return the schema of the arguments with its references resolved and its alternatives merged.

        Raises `BadSchema` if it does not describe an object.
        """
        top = self._followed(dict(self._schema))
        types = _types_of(top.get("type"))
        if types and "object" not in types and types != ["null"]:
            raise BadSchema(
                Sentence("Its input is of type {types}, but a call always carries an object.", types=types[0])
            )
        if isinstance(top.get("properties"), list) and top["properties"]:
            raise BadSchema(Sentence("Its properties are a list, so that their names are not known."))
        merged = {name: value for name, value in top.items() if name not in _NOT_AT_TOP}
        properties, required = _own(top)
        for name in _ALTERNATIVES:
            branches = [self._branch(each) for each in _schemas(top.get(name))]
            for branch_properties, _required in branches:
                _merge(properties, branch_properties)
            needed = [names for _properties, names in branches]
            if name == "allOf":
                required += [each for names in needed for each in names]
            elif needed:
                required += [each for each in needed[0] if all(each in names for names in needed)]
        for name in ("then", "else"):
            if isinstance(top.get(name), Mapping):
                _merge(properties, self._branch(top[name])[0])
        return {**merged, "type": "object", "properties": properties, "required": required}

    def _branch(self, schema: Mapping[str, Any]) -> tuple[Schema, list[str]]:
        """Return an alternative's properties and required names. Nested alternatives add their properties."""
        self._alternatives += 1
        if self._alternatives > MAX_ALTERNATIVES:
            raise BadSchema(
                Sentence(
                    "Its input schema has more than {max_alternatives} alternatives.", max_alternatives=MAX_ALTERNATIVES
                )
            )
        followed = self._followed(dict(schema))
        properties, required = _own(followed)
        for name in _ALTERNATIVES:
            for each in _schemas(followed.get(name)):
                _merge(properties, self._branch(each)[0])
        return properties, required

    def _followed(self, schema: Schema) -> Schema:
        """Return the schema with the target of its `$ref` merged in. Follows at most `MAX_DEPTH` references."""
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref")
            if reference is None:
                return schema
            target = _target(self._schema, reference)
            rest = {name: value for name, value in schema.items() if name != "$ref"}
            schema = {**target, **rest} if isinstance(target, Mapping) and reference != "#" else rest
        return {name: value for name, value in schema.items() if name != "$ref"}

    def repaired(self, schema: Mapping[str, Any], depth: int) -> Schema:
        """Return the schema with every known keyword in a shape that the standard allows. Other keywords stay."""
        if depth > MAX_DEPTH:
            raise BadSchema(Sentence("Its input schema is nested deeper than {max_depth} levels.", max_depth=MAX_DEPTH))
        result: Schema = {}
        for name, value in schema.items():
            if name in _DROPPED or (value is None and name not in ("default", "const")) or not _is_json(value):
                continue
            self._keyword(result, clean(name), value, depth)
        if "properties" in result:
            _drop_unknown_required(result)
        _settle_type(result)
        return result

    def _keyword(self, result: Schema, name: str, value: Any, depth: int) -> None:
        """Set one keyword of `result`. Skip it if its value has no known shape."""
        if name == "properties":
            result["properties"] = self._properties(value, depth, result)
        elif name == "required":
            names = [clean(each) for each in value if isinstance(each, str)] if isinstance(value, list) else []
            result["required"] = list(dict.fromkeys([*result.get("required", ()), *names]))
        elif name == "type":
            if types := _types_of(value):
                result["type"] = types
        elif name == "items":
            result["items"] = self._items(value, depth)
        elif name in _WITH_SCHEMAS:
            self._nested(result, name, value, depth)
        else:
            _simple_keyword(result, name, value)

    def _nested(self, result: Schema, name: str, value: Any, depth: int) -> None:
        if name in _SCHEMA_LISTS and isinstance(value, list) and value:
            result[name] = [self._schema_of(each, depth) for each in value]
        elif name in _SCHEMAS_BY_NAME and isinstance(value, Mapping):
            result[name] = {clean(each): self._schema_of(inner, depth) for each, inner in value.items()}
        elif name in _ONE_SCHEMA and isinstance(value, bool):
            result[name] = value
        elif name in _ONE_SCHEMA and isinstance(value, Mapping):
            result[name] = self.repaired(value, depth + 1)

    def _properties(self, value: Any, depth: int, result: Schema) -> Schema:
        if not isinstance(value, Mapping):
            return {}
        properties: Schema = {}
        for name, inner in value.items():
            if _misplaced(name, inner):
                if name == "required":
                    self._keyword(result, name, inner, depth)
                continue
            if inner is False:  # the property is forbidden
                continue
            properties[clean(name)] = self._schema_of(inner, depth)
            if isinstance(inner, Mapping) and inner.get("required") is True:  # as in draft 3
                result["required"] = [*result.get("required", ()), clean(name)]
        return properties

    def _items(self, value: Any, depth: int) -> Schema:
        if isinstance(value, list):  # one schema per position, as allowed up to draft 2019-09
            distinct = _distinct([self._schema_of(each, depth) for each in value])
            return distinct[0] if len(distinct) == 1 else {"anyOf": distinct} if distinct else {}
        return self._schema_of(value, depth)

    def _schema_of(self, value: Any, depth: int) -> Schema:
        """Return the schema for any value that stands for one. A string names a type or else is a description."""
        if isinstance(value, Mapping):
            return self.repaired(value, depth + 1)
        if value is False:
            return {"not": {}}
        if not isinstance(value, str):
            return {}
        type_ = _TYPE_NAMES.get(value.strip().lower())
        return _settle_type({"type": [type_]}) if type_ else {"description": clean(value)}


def _own(schema: Mapping[str, Any]) -> tuple[Schema, list[str]]:
    """Return the properties of an object's schema and the names that it requires."""
    properties = schema.get("properties")
    required = schema.get("required")
    names = [each for each in required if isinstance(each, str)] if isinstance(required, list) else []
    return (dict(properties) if isinstance(properties, Mapping) else {}), names


def _schemas(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Return the JSON values without duplicates."""
    return list({json.dumps(each, sort_keys=True): each for each in values}.values())


def _simple_keyword(result: Schema, name: str, value: Any) -> None:
    """Set a keyword that holds no nested schemas, if its value is valid."""
    is_valid = _TAKES.get(name)
    if is_valid is not None:
        if is_valid(value):
            result[name] = _cleaned(value)
    elif name == "enum":
        if isinstance(value, list) and value:
            result[name] = _distinct(_cleaned(value))
    elif name == "examples":
        result[name] = _cleaned(value) if isinstance(value, list) else [_cleaned(value)]
    elif not name.startswith("$"):
        result[name] = _cleaned(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_step(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_names_by_name(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_texts(each) for each in value.values())


_COUNTS = (
    *("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"),
)
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_TEXTS = ("$ref", "title", "description", "format", "pattern", "$comment", "contentEncoding", "contentMediaType")
_FLAGS = ("uniqueItems", "deprecated", "readOnly", "writeOnly")
_TAKES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_COUNTS, _is_count),
    **dict.fromkeys(_NUMBERS, _is_number),
    **dict.fromkeys(_TEXTS, _is_text),
    **dict.fromkeys(_FLAGS, _is_flag),
    "multipleOf": _is_step,
    "dependentRequired": _is_names_by_name,
}


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _misplaced(name: str, value: Any) -> bool:
    """Return whether this property is really a keyword of the object, misplaced among its properties."""
    if name == "type":
        return isinstance(value, str) and value.lower() == "object"
    if name == "additionalProperties":
        return isinstance(value, bool)
    return name in ("required", "enum") and _texts(value)


def _drop_unknown_required(result: Schema) -> None:
    """Remove names of missing properties from `required`: OpenAI and Gemini refuse them."""
    properties = result.get("properties", {})
    names = [name for name in result.get("required", ()) if name in properties]
    if names:
        result["required"] = names
    else:
        result.pop("required", None)


def _settle_type(schema: Schema) -> Schema:
    """Replace the list in `type` by a single type, in place. Add the keywords that arrays need.

    Several types become alternatives: Gemini and the templates of local models expect one name in `type`.
    """
    types: list[str] = schema.pop("type", [])
    if "enum" in schema and len(types) > 1 and "null" in types:
        types = [each for each in types if each != "null" or None in schema["enum"]]
    if len(types) > 1:
        alternatives = [_of_type(each, schema) for each in types]
        for name in (*_OF_ARRAYS, *_OF_OBJECTS):
            schema.pop(name, None)
        if "anyOf" in schema:
            schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": schema.pop("anyOf")}]
        schema["anyOf"] = alternatives
        return schema
    if types:
        schema["type"] = types[0]
        if types[0] != "object":
            _drop(schema, _OF_OBJECTS)
    if schema.get("type") == "array" or ("type" not in schema and "prefixItems" in schema):
        schema.setdefault("items", {})
    return schema


def _of_type(type_: str, schema: Mapping[str, Any]) -> Schema:
    own = _OF_ARRAYS if type_ == "array" else _OF_OBJECTS if type_ == "object" else ()
    alternative = {"type": type_, **{name: schema[name] for name in own if name in schema}}
    if type_ == "array":
        alternative.setdefault("items", {})
    return alternative


def _drop(schema: Schema, names: Sequence[str]) -> None:
    for name in names:
        schema.pop(name, None)


def _types_of(value: Any) -> list[str]:
    """Return the JSON Schema names of the given types, without duplicates. Unknown types are left out."""
    names = value if isinstance(value, list) else [value]
    types = [_TYPE_NAMES.get(each.strip().lower(), "") for each in names if isinstance(each, str)]
    return list(dict.fromkeys(filter(None, types)))


def _merge(properties: Schema, others: Mapping[str, Any]) -> None:
    """Add an alternative's properties, in place. If both define a property, it may match either schema."""
    for name, schema in others.items():
        if name not in properties:
            properties[name] = schema
        elif properties[name] != schema and isinstance(schema, Mapping):
            current = properties[name]
            schemas = current.get("anyOf", [current]) if _is_merged(current) else [current]
            if schema not in schemas:
                properties[name] = {"anyOf": [*schemas, schema]}


def _is_merged(schema: Any) -> bool:
    return isinstance(schema, Mapping) and list(schema) == ["anyOf"] and isinstance(schema["anyOf"], list)


def _target(document: Mapping[str, Any], reference: Any) -> Any:
    """Return the target of a reference; None if it is outside the document or missing."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    place: Any = document
    for step in filter(None, reference[1:].split("/")):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping) and name in place:
            place = place[name]
        elif isinstance(place, list) and name.isascii() and name.isdigit() and int(name) < len(place):
            place = place[int(name)]
        else:
            return None
    return place


def _without_broken(value: Any, document: Schema) -> Any:
    """Return the value without references to missing schemas, and without invalid patterns.

    The schema then allows any value there. OpenAI refuses a tool with a pattern that Python cannot compile.
    """
    if isinstance(value, list):
        return [_without_broken(each, document) for each in value]
    if not isinstance(value, dict):
        return value
    result: Schema = {}
    for name, each in value.items():
        if isinstance(each, str) and name == "$ref" and not isinstance(_target(document, each), dict):
            continue
        if isinstance(each, str) and name == "pattern" and not _is_pattern(each):
            continue
        if isinstance(each, dict) and name == "patternProperties":
            each = {pattern: schema for pattern, schema in each.items() if _is_pattern(pattern)}
        result[name] = _without_broken(each, document)
    return result


def _is_pattern(text: str) -> bool:
    if len(text) > MAX_PATTERN:
        return False
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _is_json(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _cleaned(value: Any) -> Any:
    """Return the value with strings that can be stored and sent. NaN and infinity, which JSON lacks, become None."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    if isinstance(value, Mapping):
        return {clean(str(name)): _cleaned(each) for name, each in value.items()}
    return value if _is_json(value) else None
