"""`{{ file.error|translated }}`: a sentence that Python code wrote, in the reader's language; money; and percents."""

from decimal import Decimal

from django import template

from core import i18n

register = template.Library()
register.filter("translated", i18n.translated)
register.filter("dollars", i18n.dollars)


@register.filter
def percent(share: Decimal | float) -> str:
    """`0.65` as `65 %`."""
    return f"{float(share) * 100:g}\N{NO-BREAK SPACE}%"
