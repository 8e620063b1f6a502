"""What is logged of an address: not what in it is a secret, or what somebody searched for."""

import logging
import re

# The token of a share, secrets of ours that programs carry, and everything behind the question mark of an address.
_SECRET = re.compile(
    r"(?P<share>/(?:s|%73)/+)[\w.~%-]{16,}"
    r"|(?P<mark>\b(?:gh|whsec)_)[\w+/=%-]{16,}"
    r"|(?P<query>(?<=/)\?)\S+|(?P<named>(?<=[\w.~%-])\?)(?=[\w%])\S+"
)


def without_secrets(text: str) -> str:
    """An address, or a line that may hold some: an ellipsis stands in the place of each secret."""
    return _SECRET.sub(lambda found: f"{found[found.lastgroup or 0]}…", text)


class Formatter(logging.Formatter):
    """Of whole lines, tracebacks with them: Django, daphne and Twisted name addresses in their warnings."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))
