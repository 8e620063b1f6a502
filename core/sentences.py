"""Sentences for people: an English template with its values, translated where somebody reads them.

A `Sentence` is raised, stored and passed on as template and values. `str()` makes text of it, in the language that is
active then, so a member of a project reads a sentence in another language than the member who stored it. Models, logs
and commands get `english`.
The template is the message id of the catalogue: `make messages` finds it as the first argument of `Sentence`, so it is
always a literal.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

_FIELD = re.compile(r"\{(\w+)\}|\{\{|\}\}")

Value: TypeAlias = "str | int | Decimal | Sentence"


class Sentence:
    """`values` go into the fields of `template`: numbers as the reader's language writes them, sentences translated.

    Without values the template is taken as it is, braces too.
    """

    __slots__ = ("template", "values")

    def __init__(self, template: str, /, **values: Value) -> None:
        self.template = template
        # A row of the admin, or a word of gettext_lazy, is not typed: its text is the value.
        self.values: Mapping[str, Value] = {
            name: value if isinstance(value, str | int | Decimal | Sentence) else str(value)
            for name, value in values.items()
        }

    @classmethod
    def of(cls, sentence: "Sentence | str") -> "Sentence":
        """Return a literal as a sentence without values, and a sentence as it is."""
        return sentence if isinstance(sentence, Sentence) else cls(sentence)

    @classmethod
    def verbatim(cls, text: str) -> "Sentence":
        """Return a text of others, such as a provider's or Django's words, which nobody translates."""
        return cls("{text}", text=text) if text else cls("")

    def about(self, subject: object) -> "Sentence":
        """Return the sentence with the name of what it is about before it."""
        return Sentence("{subject}: {sentence}", subject=str(subject), sentence=self)

    @property
    def english(self) -> str:
        """The text for models, logs and commands."""
        if not self.values:
            return self.template
        return _filled(self.template, {name: _in_english(value) for name, value in self.values.items()})

    def __str__(self) -> str:
        """Return the text in the active language; in English where the catalogue does not know the template."""
        if not self.template:
            return ""
        # Here, so that processes that read one file and end need not load Django.
        from django.utils.translation import gettext  # noqa: PLC0415

        translation = gettext(self.template)
        if not self.values:
            return translation
        return _filled(translation, {name: _read(value) for name, value in self.values.items()})

    def __bool__(self) -> bool:
        return bool(self.template)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sentence) and (self.template, self.values) == (other.template, other.values)

    def __hash__(self) -> int:
        return hash((self.template, tuple(self.values.items())))

    def __repr__(self) -> str:
        return f"<Sentence: {self.english}>"

    def shortened(self, longest: int) -> "Sentence":
        """Return the sentence with shorter texts in its fields where it has more characters: its own words stay."""
        if len(self.english) <= longest:
            return self
        if not self.values:
            return Sentence(shortened(self.template, longest))
        share = max(1, (longest - len(self.template)) // len(self.values))
        return _with_values(self.template, {name: _shortened(value, share) for name, value in self.values.items()})

    def dump(self) -> str:
        """Return the text that a row or an event holds: a template without values as it is, else JSON."""
        if not self.values and not self.template.startswith("{"):
            return self.template
        return json.dumps(_members(self), ensure_ascii=False)

    @classmethod
    def load(cls, stored: str) -> "Sentence":
        """Return the sentence that was dumped. Any other text, as in older rows, is a sentence as it stands."""
        if stored.startswith('{"text":'):
            try:
                return _sentence(json.loads(stored))
            except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
                pass
        return cls(stored)


NO_SENTENCE = Sentence("")


def gettext_noop(template: str) -> str:
    """As Django's, for modules that know no Django: mark a template for the catalogue where it is named."""
    return template


def shortened(text: str, longest: int) -> str:
    """Return the text with its middle left out where it has more characters: a sentence around a value stays whole."""
    if len(text) <= longest:
        return text
    end = longest // 3
    return f"{text[: longest - end - 1]}…{text[-end:]}"


def _filled(template: str, values: Mapping[str, str]) -> str:
    """Return the template with its fields filled in.

    Not `str.format`: a stored template may come from a process that reads files of others, and a field of `format`
    reaches into its value.
    """
    return _FIELD.sub(lambda match: values.get(match[1], match[0]) if match[1] else match[0][0], template)


def _read(value: Value) -> str:
    if isinstance(value, int | Decimal):
        from django.utils.formats import number_format  # noqa: PLC0415 - as in `__str__`

        return number_format(value, force_grouping=True)
    return str(value)


def _in_english(value: Value) -> str:
    if isinstance(value, int | Decimal):
        return f"{value:,}"
    return value.english if isinstance(value, Sentence) else value


def _shortened(value: Value, longest: int) -> Value:
    if isinstance(value, Sentence):
        return value.shortened(longest)
    return shortened(value, longest) if isinstance(value, str) else value


def _members(value: Value) -> Any:
    """Return the value as JSON holds it: a sentence as an object, a decimal number as its digits."""
    if isinstance(value, Sentence):
        return {"text": value.template, "values": {name: _members(each) for name, each in value.values.items()}}
    return {"number": str(value)} if isinstance(value, Decimal) else value


def _sentence(members: Any) -> Sentence:
    return _with_values(str(members["text"]), {name: _value(each) for name, each in members["values"].items()})


def _with_values(template: str, values: Mapping[str, Value]) -> Sentence:
    sentence = Sentence(template)
    sentence.values = values
    return sentence


def _value(member: Any) -> Value:
    if isinstance(member, dict):
        return Decimal(member["number"]) if "number" in member else _sentence(member)
    return member if isinstance(member, int) else str(member)
