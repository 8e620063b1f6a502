"""Template filters for sentences stored in JSON (`{{ part.label|sentence }}`), for money and for numbers."""

from decimal import Decimal

from django import template

from core import i18n
from core.sentences import Sentence

register = template.Library()
register.filter("dollars", i18n.dollars)
register.filter("cents", i18n.cents)
register.filter("percent_of", i18n.percent)


@register.filter
def sentence(stored: str | None) -> Sentence:
    """Return a sentence that `Sentence.dump` has stored in JSON. Sentences in columns of rows need no filter."""
    return Sentence.load(stored or "")


@register.filter
def percent(share: Decimal | float) -> str:
    """Return `65 %` for `0.65`."""
    return f"{float(share) * 100:g}\N{NO-BREAK SPACE}%"


@register.filter
def short(number: int) -> str:
    """Return a rounded number: `128k` for `128000`, `1M` for `1048576`."""
    for size, sign in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.0f}{sign}"
    return str(number)
