"""Variables of saved prompts.

`{{name}}` is a free text, `{{name:text}}` has a default, and `{{name:one|two}}` has choices. Anything else in double
braces is plain text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.errors import ProductError
from core.sentences import Sentence

MAX_VARIABLES = 20  # variables per prompt
MAX_LENGTH = 20_000  # characters per value
_VARIABLE = re.compile(r"\{\{[ \t]*([^\W\d_][\w \-]{0,39})(?::([^{}\n]{0,400}))?\}\}")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a prompt. `choices`: its possible values; empty allows any text. `default`: its first value."""

    name: str
    default: str = ""
    choices: tuple[str, ...] = ()


def variables(text: str) -> list[Variable]:
    """Return the variables of a text, each once, in order. Its first occurrence with a default or choices counts."""
    by_name: dict[str, Variable] = {}
    for match in _VARIABLE.finditer(text):
        name = _normalise_name(match[1])
        if name not in by_name or by_name[name] == Variable(name):
            by_name[name] = _parse_variable(name, match[2] or "")
    return list(by_name.values())


def _parse_variable(name: str, options: str) -> Variable:
    choices = tuple(dict.fromkeys(choice.strip() for choice in options.split("|") if choice.strip()))
    return Variable(name, choices[0] if choices else "", choices if len(choices) > 1 else ())


def _normalise_name(typed_name: str) -> str:
    return " ".join(typed_name.split())


def check_variable_count(text: str) -> None:
    """Raise `too_many_variables` for a text with more than `MAX_VARIABLES`."""
    if len(variables(text)) > MAX_VARIABLES:
        raise ProductError(
            "too_many_variables",
            Sentence(
                "A prompt may have at most {most} fields. Write some of the values into the text.", most=MAX_VARIABLES
            ),
        )


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with each variable replaced by its value, or its default if it has no value.

    Raises `variable_missing`, `variable_unknown_choice` and `variable_too_long`.
    """
    checked_values = {
        variable.name: _check_value(variable, values.get(variable.name, "")) for variable in variables(text)
    }
    return _VARIABLE.sub(lambda match: checked_values[_normalise_name(match[1])], text)


def _check_value(variable: Variable, value: str) -> str:
    value = value if value.strip() else variable.default
    if not value:
        raise ProductError("variable_missing", Sentence("Enter a value for “{name}”.", name=variable.name))
    if variable.choices and value not in variable.choices:
        choices = ", ".join(variable.choices)
        raise ProductError(
            "variable_unknown_choice",
            Sentence("“{name}” must be one of these: {choices}.", name=variable.name, choices=choices),
        )
    if len(value) > MAX_LENGTH:
        raise ProductError(
            "variable_too_long",
            Sentence(
                "“{name}” may have at most {longest} characters. Shorten it.", name=variable.name, longest=MAX_LENGTH
            ),
        )
    return value
