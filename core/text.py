"""Cleaning of texts that come from outside."""

import re

# Control characters and lone surrogates: not text, and PostgreSQL stores none of them.
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def unix_lines(text: str) -> str:
    """Return the text with LF line ends. Browsers send CR LF, which no model needs to read."""
    return text.replace("\r\n", "\n")


def without_margins(text: str) -> str:
    """Remove line ends at the beginning and blanks at the end; the first line keeps its indentation."""
    return text.lstrip("\r\n").rstrip()


def clean(text: str) -> str:
    """Return the text without control characters and lone surrogates."""
    return _NO_TEXT.sub("", text)
