"""`{{ part.label|sentence }}`: a sentence that JSON holds, in the reader's language; money; and numbers."""

from decimal import Decimal

from django import template

from core import i18n
from core.sentences import Sentence

register = template.Library()
register.filter("dollars", i18n.dollars)
register.filter("percent_of", i18n.percent)


@register.filter
def sentence(stored: str | None) -> Sentence:
    """A sentence as `Sentence.dump` has stored it in JSON. Rows have theirs in columns, which need no filter."""
    return Sentence.load(stored or "")


@register.filter
def percent(share: Decimal | float) -> str:
    """`0.65` as `65 %`."""
    return f"{float(share) * 100:g}\N{NO-BREAK SPACE}%"


@register.filter
def short(number: int) -> str:
    """`128000` as `128k`, `1048576` as `1M`: for what is read at a glance."""
    for size, sign in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.0f}{sign}"
    return str(number)
