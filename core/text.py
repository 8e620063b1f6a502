"""Clean texts that come from outside."""

import re

# Control characters and lone surrogates. They are not text, and PostgreSQL refuses NUL and surrogates.
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def unix_lines(text: str) -> str:
    """Return the text with LF line ends. Browsers send CR LF, which only costs a model tokens."""
    return text.replace("\r\n", "\n")


def without_margins(text: str) -> str:
    """Return the text without line ends at its beginning and blanks at its end. The first line stays indented."""
    return text.lstrip("\r\n").rstrip()


def clean(text: str) -> str:
    """Return the text without control characters and lone surrogates."""
    return _NO_TEXT.sub("", text)
