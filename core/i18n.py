"""Numbers in the reader's language, words of the admin, and paths of catalogues. Sentences: `core.sentences`."""

from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from pathlib import Path

from django.conf import settings
from django.utils.formats import number_format
from django.utils.translation import gettext, pgettext

ADMIN = "admin"  # the gettext context of the admin's words: names of fields, titles of columns, states


def label(word: str) -> str:
    """Return a word of the admin in the active language; as it is where the catalogue does not have it."""
    return pgettext(ADMIN, word)


def grouped(number: int) -> str:
    """Return the number with the thousands separators of the reader's language."""
    return number_format(number, force_grouping=True)


def percent(part: int, whole: int) -> str:
    """Return a share, rounded to whole percent; a part above 0 never reads as 0 %."""
    rounded = min(100, (200 * part + whole) // (2 * whole)) if whole > 0 else 0
    if part > 0 and whole > 0 and not rounded:
        return gettext("under 1 %%") % {}
    return gettext("%(number)s %%") % {"number": rounded}


def dollars(amount: Decimal, *, up: bool = False) -> str:
    """Return an amount such as $12.50, or $0.0042 below a cent: at least two significant digits. `up` rounds up."""
    places = max(2, 1 - amount.adjusted()) if amount else 2
    shown = amount.quantize(Decimal(1).scaleb(-places), ROUND_CEILING if up else ROUND_HALF_EVEN)
    return f"${number_format(shown, places, force_grouping=True)}"


def catalogue(locale: str) -> Path:
    """Return the path of the compiled catalogue of a locale such as `vi`; the product compiles it when it starts."""
    return Path(settings.LOCALE_PATHS[0]) / locale / "LC_MESSAGES" / "django.mo"
