"""Define the forms with which a tool asks a person, and check the answers.

A field takes a text, a number, yes or no, or choices. A form is stored as JSON, with the tool call that asks.
"""

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

from core.errors import ProductError
from core.json_types import JsonObject
from core.sentences import Sentence

FieldKind = Literal["text", "number", "integer", "boolean", "choice", "choices"]
MAX_FIELDS = 30
MAX_ANSWER = 10_000  # characters of one text
_NUMBER = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?")


class FormChoice(TypedDict):
    """One value that may be chosen, and its label for people."""

    value: str
    label: str


class FormField(TypedDict):
    """A field of a form. `least` and `most` bound a number, or the length of a text. `input` is the type in HTML."""

    name: str
    title: str
    description: str
    kind: FieldKind
    required: bool
    choices: NotRequired[list[FormChoice]]
    default: NotRequired[str | bool | list[str]]
    least: NotRequired[float]
    most: NotRequired[float]
    input: NotRequired[str]


class ToolQuestion(TypedDict):
    """A form as it is stored. `number`: its number among the forms of one call, from 1.

    `url`: a page for the person to open.
    """

    number: int
    message: str
    url: str
    fields: list[FormField]


@dataclass(frozen=True, slots=True)
class FormAnswer:
    """The answer to a form. `content`: the values of the fields that were filled in; None if the person declined."""

    content: JsonObject | None = None


PersonAsker = Callable[[ToolQuestion], Awaitable[FormAnswer]]


def validate_content(form: ToolQuestion, content: Mapping[str, Any]) -> JsonObject:
    """Return the values of a form by field name. A value may also come as text, as browsers send it.

    Raises `bad_form` with the field that needs another value.
    """
    values: JsonObject = {}
    for field in form["fields"]:
        value = _check_value(field, content.get(field["name"]))
        if value is None and field["required"]:
            raise ProductError("bad_form", Sentence("Fill in “{title}”.", title=field["title"]))
        if value is not None:
            values[field["name"]] = value
    return values


def _check_value(field: FormField, value: Any) -> str | int | float | bool | list[str] | None:
    match field["kind"]:
        case "boolean":
            return value if isinstance(value, bool) else value in ("on", "true", "yes")
        case "choices":
            chosen = [value] if isinstance(value, str) else value if isinstance(value, list) else []
            allowed = {choice["value"] for choice in field.get("choices", ())}
            if not all(isinstance(each, str) and each in allowed for each in chosen):
                raise _bad_field_error(field)
            return [str(each) for each in chosen] or None
    if value is None or value == "":
        return None
    match field["kind"]:
        case "choice":
            if value not in {choice["value"] for choice in field.get("choices", ())}:
                raise _bad_field_error(field)
            return str(value)
        case "text":
            if not isinstance(value, str) or len(value) > MAX_ANSWER:
                raise _bad_field_error(field)
            _require_within(field, len(value))
            return value
    number = _check_number(field, value)
    _require_within(field, number)
    return number


def _check_number(field: FormField, value: Any) -> int | float:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _bad_field_error(field)
    if field["kind"] == "integer":
        if value != int(value):
            raise _bad_field_error(field)
        return int(value)
    return value


def _require_within(field: FormField, size: float) -> None:
    if size < field.get("least", size) or size > field.get("most", size):
        raise _bad_field_error(field)


def _bad_field_error(field: FormField) -> ProductError:
    return ProductError("bad_form", Sentence("“{title}” does not accept this value. Change it.", title=field["title"]))
