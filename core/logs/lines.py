"""Lines of the log: of addresses not what in them is a secret, or what somebody searched for; also as JSON."""

import json
import logging
import re
from datetime import UTC, datetime

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404
from django.http.multipartparser import MultiPartParserError

from core.logs.context import known

# Django's words for a request that is refused; it logs each with a traceback.
REFUSALS = (PermissionDenied, SuspiciousOperation, BadRequest, MultiPartParserError, Http404)

# The token of a share, secrets of ours that programs carry, and everything behind the question mark of an address.
_SECRET = re.compile(
    r"(?P<share>/(?:s|%73)/+)[\w.~%-]{16,}"
    r"|(?P<mark>\b(?:gh|whsec)_)[\w+/=%-]{16,}"
    r"|(?P<query>(?<=/)\?)\S+|(?P<named>(?<=[\w.~%-])\?)(?=[\w%])\S+"
)


def without_secrets(text: str) -> str:
    """An address, or a line that may hold some: an ellipsis stands in the place of each secret."""
    return _SECRET.sub(lambda found: f"{found[found.lastgroup or 0]}…", text)


class RefusalFilter(logging.Filter):
    """Takes the traceback off a line that says that a request was refused: the code did what it should."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], REFUSALS):
            record.exc_info = record.exc_text = None
        return True


class Formatter(logging.Formatter):
    """Of whole lines, tracebacks with them: Django, daphne and Twisted name addresses in their warnings."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class JsonFormatter(Formatter):
    """An object a line: `time` (ISO 8601, UTC), `level`, `logger`, `message`, what is known of where it comes from (see
    `core.logs.context`), and `error`, the traceback, where there is one. What a line brings as `extra={"fields": …}`
    are further members."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            **known(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            said["error"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(said, ensure_ascii=False, default=str)
