"""Variables in system prompts, personas' instructions and projects' instructions, such as `{{user.name}}`.

To add a variable: 1. name it in `VARIABLES` with its meaning, in `VARIABLES_HELP` and in `projects.admin`; 2. give
its value in `chat.prompts.builder`.

A variable after a backslash is not replaced: `\\{{name}}` is sent as `{{name}}`.
"""

import re
from collections.abc import Mapping

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from core.errors import ProductError
from core.sentences import Sentence, gettext_noop

VARIABLES: Mapping[str, str | Promise] = {
    "date": _("the day of the newest message, such as 2026-11-21"),
    "weekday": _("the day of the week of the newest message, in English"),
    "user.name": _("the person's name"),
    "user.language": _("the person's language in English"),
    "persona.name": _("the persona's name"),
    "project.name": _("the project's name"),
    "model.name": _("the model's name"),
}
VARIABLES_HELP = gettext_noop(
    "Variables are replaced when a message is sent: {{date}}, {{weekday}}, {{user.name}}, {{user.language}}, "
    "{{persona.name}}, {{project.name}}, {{model.name}}."
)  # for the forms of the admin
MAX_NAME_LENGTH = 60  # characters of a variable's name
_VARIABLE = re.compile(rf"(\\?)\{{\{{[ ]{{0,3}}([A-Za-z_][\w.]{{0,{MAX_NAME_LENGTH}}})[ ]{{0,3}}\}}\}}")


def check_variables(text: str) -> None:
    """Raise `variable_unknown` if the text has a variable that does not exist."""
    for escape, name in _VARIABLE.findall(text):
        if not escape and name not in VARIABLES:
            names = ", ".join(f"{{{{{each}}}}}" for each in VARIABLES)
            raise ProductError(
                "variable_unknown",
                Sentence(
                    "There is no variable {{{{{name}}}}}. The variables are {names}. Write a backslash before the "
                    "braces to send them unchanged.",
                    name=name,
                    names=names,
                ),
            )


def fill_variables(text: str, values: Mapping[str, str]) -> str:
    """Replace each variable in the text that has a value. Variables without a value, or inside values, stay."""

    def replacement(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        return values.get(match[2], match[0])

    return _VARIABLE.sub(replacement, text) if "{{" in text else text
