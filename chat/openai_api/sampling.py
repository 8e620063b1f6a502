"""How a request wants its answer made: what steers the model's choice of words, and the form of the answer."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from chat.openai_api.errors import refused
from llm.types.model_call import Sampling

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
VERBOSITIES = ("low", "medium", "high")
LARGEST_SEED = 2**63 - 1
_FORMAT_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)


def read_sampling(body: Mapping[str, Any]) -> Sampling:
    """What says no more than leaving it out would is left out: some providers cannot be told it."""
    verbosity = _word(body, "verbosity", VERBOSITIES)
    return Sampling(
        top_p=_unless(1, number(body, "top_p", 0, 1)),
        presence_penalty=_unless(0, number(body, "presence_penalty", -2, 2)),
        frequency_penalty=_unless(0, number(body, "frequency_penalty", -2, 2)),
        seed=_seed(body),
        reasoning_effort=_word(body, "reasoning_effort", EFFORTS),
        verbosity=None if verbosity == "medium" else verbosity,
    )


def number(body: Mapping[str, Any], name: str, least: int, most: int) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise refused(name, f"“{name}” must be a number from {least} to {most}.")
    return float(value)


def _unless(neutral: float, value: float | None) -> float | None:
    return None if value == neutral else value


def _seed(body: Mapping[str, Any]) -> int | None:
    value = body.get("seed")
    if value is not None and (type(value) is not int or abs(value) > LARGEST_SEED):
        raise refused("seed", "“seed” must be a whole number of at most 64 bits.")
    return value


def _word(body: Mapping[str, Any], name: str, words: Collection[str]) -> str | None:
    value = body.get(name)
    if value is None or (isinstance(value, str) and value in words):
        return value
    raise refused(name, f"“{name}” must be one of {', '.join(words)}.")


def read_format(given: Any) -> dict[str, Any] | None:
    """What `llm.types.model_call.ModelRequest` wants; None for text, the default."""
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": kind}
    if kind == "json_schema":
        return {"type": kind, "json_schema": _schema(given.get("json_schema"))}
    raise refused("response_format", "“response_format” is an object of the type text, json_object or json_schema.")


def _schema(given: Any) -> dict[str, Any]:
    where = "response_format.json_schema"
    if not isinstance(given, dict):
        raise refused(where, "“json_schema” must be an object with “name” and “schema”.", "invalid_type")
    members = {name: value for name, value in given.items() if value is not None}
    if not isinstance(members.get("name"), str) or not _FORMAT_NAME.fullmatch(members["name"]):
        raise refused(f"{where}.name", "A format's name has 1 to 64 letters, digits, hyphens and underscores.")
    for name, kind, word in (("schema", dict, "a JSON schema"), ("description", str, "a text")):
        if not isinstance(members.get(name, kind()), kind):
            raise refused(f"{where}.{name}", f"“{name}” must be {word}.", "invalid_type")
    if "schema" not in members:
        raise refused(f"{where}.schema", "You must provide the “schema” of the answer.", "missing_required_parameter")
    if not isinstance(members.get("strict", False), bool):
        raise refused(f"{where}.strict", "“strict” must be true or false.", "invalid_type")
    return {name: members[name] for name in ("name", "description", "schema", "strict") if name in members}
