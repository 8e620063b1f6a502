"""Variables of a saved prompt.

`{{name}}` is asked for, `{{name:text}}` begins with a text, `{{name:one|two}}` is chosen. Whatever else stands in
double braces is text like any other.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.errors import ProductError
from core.sentences import Sentence

MOST = 20  # variables of one prompt
LONGEST = 20_000  # characters of a value
_VARIABLE = re.compile(r"\{\{[ \t]*([^\W\d_][\w \-]{0,39})(?::([^{}\n]{0,400}))?\}\}")


@dataclass(frozen=True, slots=True)
class Variable:
    """`choices`: what it can be; empty where it may be anything, which then begins as `default`."""

    name: str
    default: str = ""
    choices: tuple[str, ...] = ()


def variables(text: str) -> list[Variable]:
    """Those of a text, each once, in order. The first place that says more than the name decides."""
    found: dict[str, Variable] = {}
    for match in _VARIABLE.finditer(text):
        name = _name(match[1])
        if name not in found or found[name] == Variable(name):
            found[name] = _variable(name, match[2] or "")
    return list(found.values())


def _variable(name: str, said: str) -> Variable:
    choices = tuple(dict.fromkeys(choice.strip() for choice in said.split("|") if choice.strip()))
    return Variable(name, choices[0] if choices else "", choices if len(choices) > 1 else ())


def _name(written: str) -> str:
    return " ".join(written.split())


def require_usable(text: str) -> None:
    """Raises `too_many_variables`."""
    if len(variables(text)) > MOST:
        raise ProductError(
            "too_many_variables",
            Sentence("A prompt asks for {most} things at most. Write some of them into the text itself.", most=MOST),
        )


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with a value for each variable; for one without a value, what it begins with.

    Raises `variable_missing`, `variable_unknown_choice` and `variable_too_long`.
    """
    given = {variable.name: _value(variable, values.get(variable.name, "")) for variable in variables(text)}
    return _VARIABLE.sub(lambda match: given[_name(match[1])], text)


def _value(variable: Variable, value: str) -> str:
    value = value if value.strip() else variable.default
    if not value:
        raise ProductError(
            "variable_missing", Sentence("Say what to put in the place of “{name}”.", name=variable.name)
        )
    if variable.choices and value not in variable.choices:
        choices = ", ".join(variable.choices)
        raise ProductError(
            "variable_unknown_choice",
            Sentence("“{name}” can be one of these: {choices}.", name=variable.name, choices=choices),
        )
    if len(value) > LONGEST:
        raise ProductError(
            "variable_too_long",
            Sentence("“{name}” takes {longest} characters at most. Shorten it.", name=variable.name, longest=LONGEST),
        )
    return value
