"""Text encodings that a user may choose if the detected one is wrong."""

from django.utils.translation import gettext_lazy as _

# Python's names, in the order of the list on a file's page.
ENCODINGS = {
    "utf-8": "UTF-8",
    "utf-16-le": "UTF-16 LE",
    "utf-16-be": "UTF-16 BE",
    "cp1252": _("Western Europe (Windows-1252)"),
    "iso8859_15": _("Western Europe (ISO 8859-15)"),
    "cp850": _("Western Europe (DOS 850)"),
    "mac_roman": _("Western Europe (Mac Roman)"),
    "cp1250": _("Central Europe (Windows-1250)"),
    "iso8859_2": _("Central Europe (ISO 8859-2)"),
    "cp852": _("Central Europe (DOS 852)"),
    "cp1257": _("Baltic (Windows-1257)"),
    "cp775": _("Baltic (DOS 775)"),
    "cp1254": _("Turkish (Windows-1254)"),
    "cp857": _("Turkish (DOS 857)"),
    "cp1251": _("Cyrillic (Windows-1251)"),
    "koi8_r": _("Cyrillic (KOI8-R)"),
    "cp866": _("Cyrillic (DOS 866)"),
    "cp1253": _("Greek (Windows-1253)"),
    "cp1255": _("Hebrew (Windows-1255)"),
    "cp1256": _("Arabic (Windows-1256)"),
    "cp1258": _("Vietnamese (Windows-1258)"),
    "cp874": _("Thai (Windows-874)"),
    "cp932": _("Japanese (Shift JIS)"),
    "euc_jp": _("Japanese (EUC-JP)"),
    "gb18030": _("Chinese, simplified (GB 18030)"),
    "big5": _("Chinese, traditional (Big5)"),
    "cp949": _("Korean (Windows-949)"),
}


def label(encoding: str) -> str:
    """Return the name of an encoding for pages. If it is not in the list, return its technical name."""
    return str(ENCODINGS.get(encoding, encoding.upper()))
