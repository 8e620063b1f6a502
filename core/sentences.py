"""Sentences for people: an English template with its values, translated where somebody reads them.

A `Sentence` is raised, stored and passed on as template and values. `str()` returns its text in the active language, so
two members of a project can read a stored sentence in different languages. Models, logs and commands get `english`.

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
    """A sentence with values for the fields of its template.

    Numbers among the values are formatted for the reader's language, sentences are translated. Without values the
    template is used as it is, braces included.
    """

    __slots__ = ("template", "values")

    def __init__(self, template: str, /, **values: Value) -> None:
        self.template = template
        # Code of the admin is untyped and passes rows and lazy translations. Their text is the value.
        self.values: Mapping[str, Value] = {
            name: value if isinstance(value, str | int | Decimal | Sentence) else str(value)
            for name, value in values.items()
        }

    @classmethod
    def of(cls, sentence: "Sentence | str") -> "Sentence":
        """Return a string as a sentence without values, and a sentence unchanged."""
        return sentence if isinstance(sentence, Sentence) else cls(sentence)

    @classmethod
    def verbatim(cls, text: str) -> "Sentence":
        """Return a sentence for a text that is not translated, such as a message from a provider or from Django."""
        return cls("{text}", text=text) if text else cls("")

    def about(self, subject: object) -> "Sentence":
        """Return the sentence with its subject and a colon before it."""
        return Sentence("{subject}: {sentence}", subject=str(subject), sentence=self)

    @property
    def english(self) -> str:
        """Return the text for models, logs and commands."""
        if not self.values:
            return self.template
        return _fill(self.template, {name: _in_english(value) for name, value in self.values.items()})

    def __str__(self) -> str:
        """Return the text in the active language, or in English if the catalogue lacks the template."""
        if not self.template:
            return ""
        # Imported here, so that short-lived processes that read one file need not load Django.
        from django.utils.translation import gettext  # noqa: PLC0415

        translation = gettext(self.template)
        if not self.values:
            return translation
        return _fill(translation, {name: _in_active_language(value) for name, value in self.values.items()})

    def __bool__(self) -> bool:
        return bool(self.template)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sentence) and (self.template, self.values) == (other.template, other.values)

    def __hash__(self) -> int:
        return hash((self.template, tuple(self.values.items())))

    def __repr__(self) -> str:
        return f"<Sentence: {self.english}>"

    def shortened(self, longest: int) -> "Sentence":
        """Return the sentence with shortened values if it has more than `longest` characters. The template stays whole.

        A sentence without values is shortened itself.
        """
        if len(self.english) <= longest:
            return self
        if not self.values:
            return Sentence(shortened(self.template, longest))
        share = max(1, (longest - len(self.template)) // len(self.values))
        return _with_values(self.template, {name: _shortened(value, share) for name, value in self.values.items()})

    def dump(self) -> str:
        """Return the text to store in a row or an event: the template if it has no values, otherwise JSON."""
        if not self.values and not self.template.startswith("{"):
            return self.template
        return json.dumps(_members(self), ensure_ascii=False)

    @classmethod
    def load(cls, stored: str) -> "Sentence":
        """Return the sentence that was dumped. Any other text, as in older rows, becomes a sentence without values."""
        if stored.startswith('{"text":'):
            try:
                return _sentence(json.loads(stored))
            except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
                pass
        return cls(stored)


NO_SENTENCE = Sentence("")


def gettext_noop(template: str) -> str:
    """Mark a template for translation, like Django's function, in modules that do not import Django."""
    return template


def shortened(text: str, longest: int) -> str:
    """Return the text without its middle if it has more than `longest` characters.

    The beginning and the end stay, since they may be words of a sentence around a long value.
    """
    if len(text) <= longest:
        return text
    end = longest // 3
    return f"{text[: longest - end - 1]}…{text[-end:]}"


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Return the template with its fields filled in.

    `str.format` would be unsafe: a stored template may come from a process that reads untrusted files, and a field of
    `format` can access attributes of its value.
    """
    return _FIELD.sub(lambda match: values.get(match[1], match[0]) if match[1] else match[0][0], template)


def _in_active_language(value: Value) -> str:
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
    """Return the value for JSON: a sentence as an object, a decimal number as an object with its digits."""
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
