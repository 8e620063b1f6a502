"""Format numbers in the reader's language, and translate labels of the admin. Sentences: `core.sentences`."""

from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from pathlib import Path

from django.conf import settings
from django.utils.formats import number_format
from django.utils.translation import gettext, pgettext

ADMIN = "admin"  # the gettext context of the admin's labels: names of fields, titles of columns, states


def label(word: str) -> str:
    """Return a label of the admin in the active language, or the label itself if the catalogue does not have it."""
    return pgettext(ADMIN, word)


def grouped(number: int) -> str:
    """Return the number with the thousands separators of the reader's language."""
    return number_format(number, force_grouping=True)


def percent(part: int, whole: int) -> str:
    """Return a share as text, rounded to whole percent. A part above 0 is never shown as 0 %."""
    rounded = min(100, (200 * part + whole) // (2 * whole)) if whole > 0 else 0
    if part > 0 and whole > 0 and not rounded:
        return gettext("under 1 %%") % {}
    return gettext("%(number)s %%") % {"number": rounded}


def dollars(amount: Decimal, *, up: bool = False) -> str:
    """Return an amount with at least two significant digits, such as $12.50 or $0.0042. `up` rounds up."""
    places = max(2, 1 - amount.adjusted()) if amount else 2
    shown = amount.quantize(Decimal(1).scaleb(-places), ROUND_CEILING if up else ROUND_HALF_EVEN)
    return f"${number_format(shown, places, force_grouping=True)}"


def cents(amount: Decimal) -> str:
    """Return an amount in whole cents, such as $12.50. A smaller one is “< $0.01”, and nothing is $0.00."""
    cent = Decimal("0.01")
    less = "< " if 0 < amount < cent else ""
    shown = cent if less else amount.quantize(cent, ROUND_HALF_EVEN)
    return f"{less}${number_format(shown, 2, force_grouping=True)}"


def catalogue(locale: str) -> Path:
    """Return the path of the compiled catalogue of a locale such as `vi`. The product compiles it when it starts."""
    return Path(settings.LOCALE_PATHS[0]) / locale / "LC_MESSAGES" / "django.mo"
