"""Arguments of a tool call, held against its schema: what is wrong is a sentence for the model."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from llm.types.tools import BadArguments


def known(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Raises `BadArguments` for a name that the schema does not have, and for one that is missing."""
    names = list(schema["properties"])
    for name in arguments:
        if name not in names:
            raise BadArguments(f"There is no argument “{str(name)[:40]}”. The arguments are {', '.join(names)}.")
    for name in schema.get("required", ()):
        if arguments.get(name) is None:
            raise BadArguments(f"“{name}” is missing.")


def text(arguments: Mapping[str, Any], name: str, most: int, *, required: bool = False) -> str:
    """Empty when it is not given. `most` in characters."""
    value = arguments.get(name)
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise BadArguments(f"“{name}” must be a text.")
    if required and not value.strip():
        raise BadArguments(f"“{name}” must not be empty.")
    if len(value) > most:
        raise BadArguments(f"“{name}” has {len(value):,} characters; the most is {most:,}.")
    return value


def choice(arguments: Mapping[str, Any], name: str, allowed: Sequence[str]) -> str:
    """The first of `allowed` when it is not given."""
    value = arguments.get(name)
    if value is None:
        return allowed[0]
    if value not in allowed:
        raise BadArguments(f"“{name}” must be one of {', '.join(allowed)}.")
    return str(value)


def flag(arguments: Mapping[str, Any], name: str) -> bool:
    value = arguments.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise BadArguments(f"“{name}” must be true or false.")
    return value


def day(arguments: Mapping[str, Any], name: str) -> date | None:
    value = text(arguments, name, 40)
    try:
        return date.fromisoformat(value) if value else None
    except ValueError as error:
        raise BadArguments(f"“{name}” must be a day such as 2026-11-21.") from error


def objects(
    arguments: Mapping[str, Any], name: str, schema: Mapping[str, Any], most: int
) -> Iterator[Mapping[str, Any]]:
    value = arguments.get(name)
    if not isinstance(value, list) or not value or len(value) > most:
        raise BadArguments(f"“{name}” must be a list of 1 to {most}.")
    for each in value:
        if not isinstance(each, dict):
            raise BadArguments(f"Each of “{name}” must be an object.")
        known(each, schema)
        yield each
