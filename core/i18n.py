"""Sentences of Python code in the reader's language.

Errors, and what became of files, answers and runs, are raised, stored and told to models in English. They are
translated where a person or program reads them, so that what one member of a project has stored reads right to
another. The catalogue holds them under the context `sentence`, with the values in them as named fields.
"""

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from pathlib import Path
from string import Formatter

import polib
from django.conf import settings
from django.utils.formats import number_format
from django.utils.translation import get_language, gettext, pgettext, to_locale

from core.sentences import CONTEXT, Sentence

ADMIN = "admin"  # the context of the admin's words: names of fields, titles of columns, states
LONGEST_MATCHED = 1_000  # characters; each is compared with hundreds of forms, and so are the values in it
_NUMBER = re.compile(r"[0-9]{1,3}(,[0-9]{3})+")


def translated(sentence: str | Sentence) -> str:
    """Return the sentence in the active language; unchanged where the catalogue does not know it.

    A sentence with values is recognised up to `LONGEST_MATCHED` characters: callers control some of the values.
    """
    sentence = Sentence.load(sentence) if isinstance(sentence, str) else sentence
    if sentence.values:
        return str(sentence)
    sentence = sentence.template
    language = get_language()
    if not sentence or language is None:
        return sentence
    whole = pgettext(CONTEXT, sentence)
    if whole != sentence:
        return whole
    if len(sentence) > LONGEST_MATCHED:
        return sentence
    for form in _forms(to_locale(language)):
        values = form.values(sentence)
        if values is not None:
            return form.translation.format(**{name: _value(value) for name, value in values.items()})
    return sentence


def label(word: str) -> str:
    """A word of the admin in the active language; as it is where the catalogue does not know it."""
    return pgettext(ADMIN, word)


def grouped(number: int) -> str:
    """With the thousands set apart as the reader's language does it."""
    return number_format(number, force_grouping=True)


def percent(part: int, whole: int) -> str:
    """A share, rounded to the nearest whole percent; what is there is never said to be nothing."""
    rounded = min(100, (200 * part + whole) // (2 * whole)) if whole > 0 else 0
    if part > 0 and whole > 0 and not rounded:
        return gettext("under 1 %%") % {}
    return gettext("%(number)s %%") % {"number": rounded}


def dollars(amount: Decimal, *, up: bool = False) -> str:
    """Such as $12.50 and, of less than a cent, $0.0042: two digits that say something at least. `up` rounds up."""
    places = max(2, 1 - amount.adjusted()) if amount else 2
    shown = amount.quantize(Decimal(1).scaleb(-places), ROUND_CEILING if up else ROUND_HALF_EVEN)
    return f"${number_format(shown, places, force_grouping=True)}"


def _value(value: str) -> str:
    """A value may be a sentence or a word of ours itself: “There is no such {what}”; a number is written in English."""
    return grouped(int(value.replace(",", ""))) if _NUMBER.fullmatch(value) else translated(value)


@dataclass(frozen=True, slots=True)
class _SentenceForm:
    """A sentence with fields: the text before, between and behind them, and the translation."""

    texts: tuple[str, ...]
    names: tuple[str, ...]
    translation: str

    def values(self, sentence: str) -> dict[str, str] | None:
        """Return the fields' values, each as short as it can be; None where the sentence has another form.

        The time grows with the sentence's length alone. A regular expression with several `.*?` takes its cube.
        """
        if not self.names:  # only braces that stand for themselves
            return {} if sentence == self.texts[0] else None
        first, *between, last = self.texts
        end = len(sentence) - len(last)
        if not (sentence.startswith(first) and sentence.endswith(last)) or end < len(first):
            return None
        values = []
        start = len(first)
        for text in between:
            at = sentence.find(text, start, end)
            if at < 0:
                return None
            values.append(sentence[start:at])
            start = at + len(text)
        values.append(sentence[start:end])
        return dict(zip(self.names, values, strict=True))


@lru_cache
def _forms(locale: str) -> list[_SentenceForm]:
    """Return the catalogue's sentences with fields, those with the most words first."""
    path = catalogue(locale)
    if not path.exists():
        return []
    entries = [each for each in polib.mofile(str(path)) if each.msgctxt == CONTEXT and "{" in each.msgid]
    forms = [_form(each.msgid, each.msgstr) for each in entries]
    return sorted(forms, key=lambda form: sum(map(len, form.texts)), reverse=True)


def _form(sentence: str, translation: str) -> _SentenceForm:
    texts, names = [""], []
    for text, name, _spec, _conversion in Formatter().parse(sentence):
        texts[-1] += text
        if name:
            names.append(name)
            texts.append("")
    return _SentenceForm(tuple(texts), tuple(names), translation)


def catalogue(locale: str) -> Path:
    """The compiled catalogue of a locale such as `vi`; made from `locale/` when the product starts."""
    return Path(settings.LOCALE_PATHS[0]) / locale / "LC_MESSAGES" / "django.mo"
