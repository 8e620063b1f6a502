"""Sentences of Python code in the reader's language.

Errors, and what became of files, answers and runs, are raised, stored and told to models in English. They are
translated where a person or program reads them, so that what one member of a project has stored reads right to
another. The catalogue holds them under the context `sentence`, with the values in them as named fields.
"""

import re
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from pathlib import Path
from string import Formatter

import polib
from django.conf import settings
from django.utils.formats import number_format
from django.utils.translation import get_language, gettext, pgettext, to_locale

CONTEXT = "sentence"
ADMIN = "admin"  # the context of the admin's words: names of fields, titles of columns, states
_NUMBER = re.compile(r"[0-9]{1,3}(,[0-9]{3})+")


def translated(sentence: str) -> str:
    """In the active language; as it is where the catalogue does not know it, such as what a provider said."""
    language = get_language()
    if not sentence or language is None:
        return sentence
    whole = pgettext(CONTEXT, sentence)
    if whole != sentence:
        return whole
    for form, words in _forms(to_locale(language)):
        if found := form.fullmatch(sentence):
            return words.format(**{name: _value(value) for name, value in found.groupdict().items()})
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


@lru_cache
def _forms(locale: str) -> list[tuple[re.Pattern[str], str]]:
    """Sentences with fields, as (what they look like, their translation), those with the most words first."""
    path = catalogue(locale)
    if not path.exists():
        return []
    entries = [each for each in polib.mofile(str(path)) if each.msgctxt == CONTEXT and "{" in each.msgid]
    entries.sort(key=lambda each: len(re.sub(r"\{\w+\}", "", each.msgid)), reverse=True)
    return [(_form(each.msgid), each.msgstr) for each in entries]


def _form(sentence: str) -> re.Pattern[str]:
    pieces = (
        re.escape(text) + (f"(?P<{name}>.*?)" if name else "")
        for text, name, _spec, _how in Formatter().parse(sentence)
    )
    return re.compile("".join(pieces), re.DOTALL)


def catalogue(locale: str) -> Path:
    """The compiled catalogue of a locale such as `vi`; made from `locale/` when the product starts."""
    return Path(settings.LOCALE_PATHS[0]) / locale / "LC_MESSAGES" / "django.mo"
