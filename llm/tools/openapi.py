"""Read OpenAPI documents (3.0 to 3.2), and turn their operations into tools.

1. `read_document` parses JSON or YAML within bounds, and checks that it is an OpenAPI document. `read_with_operations`
   also does the next step.
2. `list_operations` describes each operation: its arguments, the place of each argument in a request, and the problem
   of an operation that cannot be a tool. One bad operation does not affect the others.
3. `_SchemaCopies` copies the schemas that an operation refers to into the schema of its arguments, within bounds.
   `llm.tools.mcp_schemas` then repairs the result like the schema of any tool.

This module sends no requests; `llm.tools.openapi_calls` does.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast
from urllib.parse import unquote, urljoin

import yaml

from core.errors import ProductError
from core.json_types import JsonObject
from core.net.url_safety import is_http
from core.sentences import Sentence
from core.sound import replace_unstorable
from core.text import clean
from llm.tools.mcp_schemas import BadSchema, repair_schema

MAX_DOCUMENT = 16_000_000  # bytes; the largest well-known documents have 12 MB
MAX_YAML = 4_000_000  # bytes; reading YAML takes about ten times as long as JSON
MAX_VALUES = 2_000_000  # values of a document; values behind a YAML alias count at each use
MAX_LEVELS = 200  # of nesting
MAX_OPERATIONS = 3_000
MAX_TOOLS_OF_SERVER = 300  # operations of one server that are tools
MAX_ARGUMENTS = 100  # of one operation
MAX_REFERENCES = 300  # schemas that one operation refers to
MAX_SCHEMAS = 5_000  # schemas in the arguments of one operation, nested ones included
MAX_CHAIN = 20  # references in a chain
MAX_SUMMARY = 300  # characters

METHODS = ("get", "head", "post", "put", "patch", "delete")
SAFE_METHODS = ("get", "head")  # they change nothing, by RFC 9110
# Headers that the document cannot set: OpenAPI ignores the first three, the others belong to the connection.
FORBIDDEN_HEADERS = frozenset(
    {
        *(
            "accept",
            "content-type",
            "authorization",
            "accept-encoding",
            "connection",
            "content-length",
            "cookie",
            "host",
        ),
        *("proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
Place = Literal["path", "query", "header"]
Style = Literal["simple", "form", "spaceDelimited", "pipeDelimited", "deepObject", "json"]
_STYLES: Mapping[Place, Sequence[Style]] = {
    "path": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_JSON_TYPE = re.compile(r"application/(?:[a-z0-9.+-]{0,80}\+)?json")
_VERSION = re.compile(r"3\.[012](?:\.|\Z)")
_PATH_ARGUMENT = re.compile(r"\{([^{}/]{1,200})\}")
# Keywords of OpenAPI that JSON Schema lacks, and examples, which are long.
_REMOVED_KEYWORDS = frozenset({"xml", "discriminator", "externalDocs", "example", "examples"})
# Keywords whose values contain schemas.
_SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE_SCHEMAS = frozenset(
    {
        *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)


class OperationArgument(TypedDict):
    """One argument of a tool. It becomes the parameter `parameter` of a request, in `place`."""

    name: str
    parameter: str
    place: Place
    style: Style
    explode: bool
    required: bool


class OperationBody(TypedDict):
    """The argument that is sent as the body of the request, in this media type."""

    name: str
    media_type: str
    required: bool


class StoredOperation(TypedDict):
    """The values for the request of a call, as stored with the tool. `asks`: a person must allow each call."""

    method: str
    path: str
    arguments: list[OperationArgument]
    body: OperationBody | None
    asks: bool


class OperationLine(TypedDict):
    """An operation in the list for the choice. `key`: method and path.

    `problem`: the reason why it cannot be a tool.
    """

    key: str
    summary: str
    safe: bool
    problem: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a document. `problem`: the reason why it cannot be a tool. `parameters`: the repaired schema."""

    key: str
    name: str
    summary: str
    description: str
    method: str
    path: str
    arguments: Sequence[OperationArgument] = ()
    body: OperationBody | None = None
    parameters: JsonObject | None = None
    problem: Sentence | None = None

    @property
    def safe(self) -> bool:
        return self.method in SAFE_METHODS

    def as_json(self, *, asks: bool) -> StoredOperation:
        """Return the values for the request of a call. `asks`: a person must allow each call."""
        return {
            "method": self.method,
            "path": self.path,
            "arguments": list(self.arguments),
            "body": self.body,
            "asks": asks,
        }

    def as_line(self) -> OperationLine:
        """Return the operation for the list for the choice."""
        problem = self.problem.dump() if self.problem is not None else ""
        return {"key": self.key, "summary": self.summary, "safe": self.safe, "problem": problem}


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document with its operations. `server`: the address of its first server; empty if it names none.

    `address`: the address from which it was fetched; empty if it was uploaded.
    """

    content: JsonObject
    title: str
    server: str
    operations: Sequence[Operation]
    address: str = ""


class DocumentRefused(ProductError):
    """A document cannot be used. The sentence says what to do."""

    def __init__(self, sentence: Sentence) -> None:
        super().__init__("openapi_document_refused", sentence)


class _BadOperation(ValueError):
    def __init__(self, sentence: Sentence) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence


class _YamlLoader(yaml.CSafeLoader):
    """Loader of YAML with the types of JSON: dates stay texts.

    It refuses merge keys, whose work grows exponentially.
    """

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _value in node.value):
            raise DocumentRefused(
                Sentence("The document uses merge keys (<<) of YAML. Convert it to JSON, and use that.")
            )
        super().flatten_mapping(node)


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_with_operations(content: bytes, address: str = "") -> ReadDocument:
    """Return a document with its operations. Raises `DocumentRefused`."""
    document = read_document(content)
    operations = list_operations(document)
    return ReadDocument(document, read_title(document), server_address(document, address), operations, address)


def read_document(content: bytes) -> JsonObject:
    """Parse and check a document, and return it. Raises `DocumentRefused`.

    The largest YAML takes about ten seconds, the largest JSON one second.
    """
    if len(content) > MAX_DOCUMENT:
        raise DocumentRefused(
            Sentence(
                "The document is larger than {most} MB. Split it, and add each part as a separate tool server.",
                most=MAX_DOCUMENT // 1_000_000,
            )
        )
    document = _copy_within_bounds(_parse(content))
    if not isinstance(document, dict):
        raise DocumentRefused(
            Sentence(
                "This is not an OpenAPI document, since it is not an object. Use the JSON or YAML that "
                "describes the API."
            )
        )
    version = document.get("openapi")
    if not isinstance(version, str) and "swagger" in document:
        raise DocumentRefused(
            Sentence(
                "This is a Swagger document (version {version}). Convert it to OpenAPI 3, and use that.",
                version=str(document["swagger"])[:20],
            )
        )
    if not isinstance(version, str) or not _VERSION.match(version):
        raise DocumentRefused(
            Sentence(
                "This is not an OpenAPI document of version 3: its “openapi” is {version}. Use the JSON or YAML that "
                "describes the API, not a page about it.",
                version=str(version)[:20] if version is not None else "-",
            )
        )
    if not isinstance(document.get("paths"), dict) or not document["paths"]:
        raise DocumentRefused(
            Sentence(
                "The document has no “paths”, so it describes no operations. Use a document that describes requests."
            )
        )
    return cast("JsonObject", replace_unstorable(document))


def _parse(content: bytes) -> Any:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentRefused(Sentence("The document is not text in UTF-8. Save it as UTF-8.")) from error
    try:
        return json.loads(text)
    except RecursionError as error:
        raise _too_deep_error() from error
    except ValueError:
        pass  # it may be YAML
    if text.lstrip()[:1] == "<":
        raise DocumentRefused(
            Sentence("This is a web page or XML. Enter the address of the JSON or YAML itself, often /openapi.json.")
        )
    if len(content) > MAX_YAML:
        raise DocumentRefused(
            Sentence(
                "The document is not valid JSON, and YAML may have at most {most} MB. Convert it to JSON.",
                most=MAX_YAML // 1_000_000,
            )
        )
    try:
        return yaml.load(text, Loader=_YamlLoader)  # noqa: S506 - a subclass of the safe loader
    except RecursionError as error:
        raise _too_deep_error() from error
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        raise DocumentRefused(
            Sentence(
                "The document is neither valid JSON nor valid YAML (line {line}). Correct it and try again.",
                line=mark.line + 1 if mark is not None else 1,
            )
        ) from error


def _too_deep_error() -> DocumentRefused:
    return DocumentRefused(
        Sentence("The document is nested deeper than {most} levels. Use a simpler one.", most=MAX_LEVELS)
    )


def _copy_within_bounds(document: Any) -> Any:
    """Return a copy of the document with texts as names. Raises `DocumentRefused` if it is too deep or too large.

    Values behind YAML aliases are copied at each use, so a small document with many aliases may be too large.
    """
    count = 0

    def copy(value: Any, level: int) -> Any:
        nonlocal count
        count += 1
        if count > MAX_VALUES:
            raise DocumentRefused(
                Sentence("The document has more than {most} values. Split it into several.", most=MAX_VALUES)
            )
        if level > MAX_LEVELS:
            raise _too_deep_error()
        if isinstance(value, dict):
            return {str(name): copy(each, level + 1) for name, each in value.items()}
        if isinstance(value, list):
            return [copy(each, level + 1) for each in value]
        return value if isinstance(value, str | int | float | bool) or value is None else str(value)

    return copy(document, 0)


def read_title(document: Mapping[str, Any]) -> str:
    """Return the title and the version of the API."""
    about = document.get("info")
    info = about if isinstance(about, Mapping) else {}
    return " ".join(clean(str(info[name]))[:150] for name in ("title", "version") if info.get(name))


def server_address(document: Mapping[str, Any], address: str = "") -> str:
    """Return the address of the API's first server; empty if the document names none.

    `address`: the address of the document, to which a relative address refers.
    """
    servers = document.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else {"url": "/"}
    url = first.get("url") if isinstance(first, Mapping) else None
    if not isinstance(url, str):
        return ""
    variables = first.get("variables")
    for name, variable in variables.items() if isinstance(variables, Mapping) else ():
        default = variable.get("default") if isinstance(variable, Mapping) else None
        url = url.replace(f"{{{name}}}", str(default) if default is not None else "")
    try:
        absolute_url = urljoin(address, url) if address else url
    except ValueError:
        return ""
    return absolute_url.rstrip("/") if is_http(absolute_url) else ""


def list_operations(document: Mapping[str, Any]) -> list[Operation]:
    """Return the operations of a document in their order, at most `MAX_OPERATIONS`. Raises `DocumentRefused`."""
    operations: list[Operation] = []
    names: set[str] = set()
    for path, item in document["paths"].items():
        if not path.startswith("/"):
            continue
        for method, operation in _iterate_methods(document, item):
            if len(operations) == MAX_OPERATIONS:
                raise DocumentRefused(
                    Sentence(
                        "The document has more than {most} operations. Split it, and add each part as a separate "
                        "tool server.",
                        most=MAX_OPERATIONS,
                    )
                )
            operations.append(_read_operation(document, path, item, method, operation, names))
    if not operations:
        raise DocumentRefused(Sentence("The document describes no operations. Use a document that describes requests."))
    return operations


def _iterate_methods(document: Mapping[str, Any], item: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        resolved = _follow_references(document, item)
    except _BadOperation as error:
        raise DocumentRefused(error.sentence) from error
    for method in METHODS:
        operation = resolved.get(method) if isinstance(resolved, Mapping) else None
        if isinstance(operation, Mapping):
            yield method, operation


def _read_operation(
    document: Mapping[str, Any], path: str, item: Any, method: str, operation: Mapping[str, Any], names: set[str]
) -> Operation:
    key = f"{method.upper()} {path}"
    texts = list(dict.fromkeys(filter(None, (_text_member(operation, name) for name in ("summary", "description")))))
    about = Operation(
        key=clean(key)[:500],
        name=_unique_name(_text_member(operation, "operationId") or f"{method}_{path.strip('/') or 'root'}", names),
        summary=" ".join("".join(texts[:1]).split())[:MAX_SUMMARY],
        description="\n\n".join(texts) or key,
        method=method,
        path=path,
    )
    try:
        return _with_arguments(about, document, _follow_references(document, item), operation)
    except (BadSchema, _BadOperation) as error:
        return _with_problem(about, error.sentence)
    except RecursionError:
        return _with_problem(about, Sentence("Its schemas are nested too deeply."))


def _with_problem(about: Operation, problem: Sentence) -> Operation:
    return Operation(about.key, about.name, about.summary, about.description, about.method, about.path, problem=problem)


def _unique_name(name: str, names: set[str]) -> str:
    """Return a name that models can call and that is not in `names`, and add it to `names`."""
    plain = _NOT_IN_NAMES.sub("_", clean(name)).strip("_")[:100] or "operation"
    unique, number = plain, 1
    while unique in names:
        number += 1
        unique = f"{plain}_{number}"
    names.add(unique)
    return unique


def _with_arguments(
    about: Operation, document: Mapping[str, Any], item: Mapping[str, Any], operation: Mapping[str, Any]
) -> Operation:
    """Return the operation with its arguments. Raises `_BadOperation` and `BadSchema`."""
    for described in (operation, item):
        if described.get("servers") and server_address(described) != server_address(document):
            raise _BadOperation(
                Sentence("It has its own server. Only operations of the document's server can be tools.")
            )
    schemas = _SchemaCopies(document)
    properties: JsonObject = {}
    required: list[str] = []
    arguments: list[OperationArgument] = []
    for parameter in _list_parameters(document, item, operation):
        argument = _read_argument(parameter, properties)
        if argument is None:
            continue
        arguments.append(argument)
        properties[argument["name"]] = _with_description(
            schemas.copy_schema(_parameter_schema(parameter)), _text_member(parameter, "description")
        )
        required += [argument["name"]] if argument["required"] else []
        if len(arguments) > MAX_ARGUMENTS:
            raise _BadOperation(Sentence("It has more than {most} parameters.", most=MAX_ARGUMENTS))
    in_path = {each["parameter"] for each in arguments if each["place"] == "path"}
    if missing := [name for name in _PATH_ARGUMENT.findall(about.path) if name not in in_path]:
        raise _BadOperation(
            Sentence("Its path has {name}, but no parameter has this name.", name=f"{{{missing[0][:50]}}}")
        )
    body, body_schema = _read_body(document, operation, properties)
    if body is not None:
        properties[body["name"]] = schemas.copy_schema(body_schema)
        required += [body["name"]] if body["required"] else []
    schema: JsonObject = {"type": "object", "properties": properties, "required": required}
    if schemas.definitions:
        schema["$defs"] = schemas.definitions
    return Operation(
        about.key,
        about.name,
        about.summary,
        about.description,
        about.method,
        about.path,
        tuple(arguments),
        body,
        repair_schema(schema),
    )


def _list_parameters(
    document: Mapping[str, Any], item: Mapping[str, Any], operation: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Return the parameters of an operation. They replace parameters of its path with the same name and place."""
    parameters: dict[tuple[str, str], Mapping[str, Any]] = {}
    for listed in (item.get("parameters"), operation.get("parameters")):
        for each in listed if isinstance(listed, list) else ():
            parameter = _follow_references(document, each)
            if not isinstance(parameter, Mapping):
                raise _BadOperation(Sentence("One of its parameters is not described."))
            parameters[(str(parameter.get("name")), str(parameter.get("in")))] = parameter
    return list(parameters.values())


def _read_argument(parameter: Mapping[str, Any], others: Mapping[str, Any]) -> OperationArgument | None:
    """Return the argument for a parameter. None if it is left out: it is optional, and cannot be sent."""
    name = parameter.get("name")
    where = parameter.get("in")
    required = parameter.get("required") is True or where == "path"
    if not isinstance(name, str) or not name:
        raise _BadOperation(Sentence("One of its parameters has no name."))
    if where == "header" and name.lower() in FORBIDDEN_HEADERS:
        return None
    if not isinstance(where, str) or where not in _STYLES:
        if required:
            raise _BadOperation(
                Sentence("It requires the parameter {name} in a place that is not supported.", name=name[:100])
            )
        return None
    place = cast("Place", where)
    styles = _STYLES[place]
    style = parameter.get("style", styles[0])
    if isinstance(parameter.get("content"), Mapping):
        style = "json"
    elif style not in styles:
        raise _BadOperation(
            Sentence(
                "Its parameter {name} has a style that is not supported: {style}.",
                name=name[:100],
                style=str(style)[:50],
            )
        )
    explode = parameter.get("explode")
    return {
        "name": _argument_name(name, place, others),
        "parameter": name,
        "place": place,
        "style": style,
        "explode": explode if isinstance(explode, bool) else style in ("form", "deepObject"),
        "required": required,
    }


def _argument_name(name: str, place: str, others: Mapping[str, Any]) -> str:
    """Return a name for an argument that every provider accepts."""
    plain = _NOT_IN_NAMES.sub("_", clean(name)).strip("_")[:50] or place
    candidates = [plain, f"{plain}_{place}", *(f"{plain}_{number}" for number in range(2, MAX_ARGUMENTS + 2))]
    return next(each for each in candidates if each not in others)


def _parameter_schema(parameter: Mapping[str, Any]) -> Any:
    content = parameter.get("content")
    if isinstance(content, Mapping) and content:
        media = next(iter(content.values()))
        return media.get("schema", {}) if isinstance(media, Mapping) else {}
    return parameter.get("schema", {})


def _read_body(
    document: Mapping[str, Any], operation: Mapping[str, Any], others: Mapping[str, Any]
) -> tuple[OperationBody | None, Any]:
    """Return the argument for the body, and its schema; None for an operation without a body."""
    body = _follow_references(document, operation.get("requestBody"))
    content = body.get("content") if isinstance(body, Mapping) else None
    if not isinstance(content, Mapping) or not content:
        return None, {}
    required = body.get("required") is True
    media_type = _choose_media_type(content)
    if media_type is None:
        if required:
            kinds = ", ".join(str(each) for each in content)[:200]
            raise _BadOperation(
                Sentence("It requires a body in a format that a model cannot write: {kinds}.", kinds=kinds)
            )
        return None, {}
    media = content[media_type]
    schema = media.get("schema", {}) if isinstance(media, Mapping) else {}
    name = _argument_name("body", "request", others)
    return {"name": name, "media_type": media_type, "required": required}, schema


def _choose_media_type(content: Mapping[str, Any]) -> str | None:
    """Return the media type in which a model can write the body best, or None."""
    for fits in (_is_json, _is_form, _is_text):
        for media_type in content:
            if fits(media_type.partition(";")[0].strip().lower()):
                return str(media_type)
    return None


def _is_json(media_type: str) -> bool:
    return _JSON_TYPE.fullmatch(media_type) is not None or media_type == "*/*"


def _is_form(media_type: str) -> bool:
    return media_type in (FORM, MULTIPART)


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type.endswith(("/xml", "+xml", "/yaml"))


def is_json_type(media_type: str) -> bool:
    """Return whether a body of this media type is JSON."""
    return _is_json(media_type.partition(";")[0].strip().lower())


def _with_description(schema: Any, description: str) -> Any:
    """Return a schema with the description of its parameter, unless it has one of its own."""
    if not description or not isinstance(schema, dict) or schema.get("description"):
        return schema
    return {**schema, "description": description}


class _SchemaCopies:
    """Copies of the schemas of one operation. `definitions`: the schemas that it refers to, by their new names."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._pending: list[str] = []
        self._count = 0
        self.definitions: JsonObject = {}

    def copy_schema(self, schema: Any) -> Any:
        """Return the schema as JSON Schema, with references into `definitions`. Raises `_BadOperation`."""
        result = self._copy_one(schema)
        while self._pending:
            reference = self._pending.pop()
            self.definitions[self._names[reference]] = self._copy_one(_resolve(self._document, reference))
        return result

    def _copy_one(self, schema: Any) -> Any:
        """Return a copy of one schema, translated from OpenAPI 3.0 to JSON Schema."""
        self._count += 1
        if self._count > MAX_SCHEMAS:
            raise _BadOperation(Sentence("Its arguments have more than {most} schemas.", most=MAX_SCHEMAS))
        if not isinstance(schema, Mapping):
            return schema if isinstance(schema, bool) else {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            description = _text_member(schema, "description")
            return {"$ref": self._refer_to_copy(reference), **({"description": description} if description else {})}
        return _to_json_schema(
            {name: self._copy_keyword(name, value) for name, value in schema.items() if _is_copied_keyword(name)}
        )

    def _copy_keyword(self, name: str, value: Any) -> Any:
        if name in _SCHEMAS_BY_NAME and isinstance(value, Mapping):
            return {each: self._copy_one(schema) for each, schema in value.items() if not _is_read_only(schema)}
        if name in _SCHEMA_LISTS and isinstance(value, list):
            return [self._copy_one(each) for each in value]
        return self._copy_one(value) if name in _SINGLE_SCHEMAS and isinstance(value, Mapping) else value

    def _refer_to_copy(self, reference: str) -> str:
        """Return the reference to the copy of a schema. A missing copy will be made."""
        _require_local(reference)
        if reference not in self._names:
            if len(self._names) == MAX_REFERENCES:
                raise _BadOperation(Sentence("It refers to more than {most} schemas.", most=MAX_REFERENCES))
            self._names[reference] = _unique_name(reference.rpartition("/")[2] or "root", set(self._names.values()))
            self._pending.append(reference)
        return f"#/$defs/{self._names[reference]}"


def _is_copied_keyword(keyword: str) -> bool:
    return keyword not in _REMOVED_KEYWORDS and not keyword.startswith("x-")


def _to_json_schema(schema: JsonObject) -> JsonObject:
    """Change a schema of OpenAPI into JSON Schema, in place, and return it. Its inner schemas are already copies."""
    required = schema.get("required")
    properties = schema.get("properties")
    if isinstance(required, list) and isinstance(properties, dict):
        schema["required"] = [each for each in required if isinstance(each, str) and each in properties]
    if schema.pop("nullable", None) is True and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and limit in schema:
            schema[exclusive] = schema.pop(limit)
    return schema


def _is_read_only(schema: Any) -> bool:
    """Return whether only responses have this property."""
    return isinstance(schema, Mapping) and schema.get("readOnly") is True


def _require_local(reference: str) -> None:
    """Raise `_BadOperation` for a reference outside the document."""
    if not reference.startswith("#"):
        raise _BadOperation(
            Sentence(
                "It refers to another document ({reference}). Use a document that has everything in one file.",
                reference=clean(reference)[:100],
            )
        )


def _follow_references(document: Mapping[str, Any], value: Any) -> Any:
    """Return the target of a value that may be a reference. Raises `_BadOperation` for one outside the document."""
    for _ in range(MAX_CHAIN):
        reference = value.get("$ref") if isinstance(value, Mapping) else None
        if not isinstance(reference, str):
            return value
        _require_local(reference)
        value = _resolve(document, reference)
    raise _BadOperation(Sentence("Its references form a circle."))


def _resolve(document: Mapping[str, Any], reference: str) -> Any:
    """Return the target of a reference within the document, None if it is missing."""
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


def _text_member(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    return clean(text).strip() if isinstance(text, str) else ""
