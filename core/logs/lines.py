"""Format log lines, as text or JSON. Secrets and queries are removed from addresses."""

import logging
import re
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404
from django.http.multipartparser import MultiPartParserError
from pythonjsonlogger.json import JsonFormatter as JsonLines

from core.logs.context import log_fields

# Django's exceptions for a refused request. Django logs each with a traceback.
REFUSALS = (PermissionDenied, SuspiciousOperation, BadRequest, MultiPartParserError, Http404)

# Matches the token of a share, our secrets that programs send, and the query of an address.
_SECRET = re.compile(
    r"(?P<share>/(?:s|%73)/+)[\w.~%-]{16,}"
    r"|(?P<mark>\b(?:gh|whsec)_)[\w+/=%-]{16,}"
    r"|(?P<query>(?<=/)\?)\S+|(?P<named>(?<=[\w.~%-])\?)(?=[\w%])\S+"
)
_ATTRIBUTES = ("asctime", "levelname", "name", "message")  # attributes of a record that each JSON line has
_MEMBERS = {"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "error"}  # JSON names of attributes


def without_secrets(text: str) -> str:
    """Return an address, or a line with addresses, with an ellipsis in place of each secret."""
    return _SECRET.sub(lambda match: f"{match[match.lastgroup or 0]}…", text)


class RefusalFilter(logging.Filter):
    """Removes the traceback from the line about a refused request, since the refusal is not an error in the code."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], REFUSALS):
            record.exc_info = record.exc_text = None
        return True


class Formatter(logging.Formatter):
    """Removes secrets from lines and their tracebacks: warnings of Django, daphne and Twisted contain addresses."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class JsonFormatter(JsonLines):
    """Formats a line as a JSON object: `time` (ISO 8601, UTC), `level`, `logger`, `message`, `error` (a traceback), and
    the fields of `core.logs.context`. A line adds members by `extra={"fields": ...}`."""

    def __init__(self) -> None:
        super().__init__(_ATTRIBUTES, rename_fields=_MEMBERS, json_default=str, json_ensure_ascii=False)

    def format(self, record: logging.LogRecord) -> str:
        # Libraries attach requests and bodies to a record, and JsonLines would write them. So it gets a reduced record.
        attributes = {name: getattr(record, name) for name in ("created", "levelname", "name", "exc_info")}
        attributes["msg"] = without_secrets(record.getMessage())
        return super().format(logging.makeLogRecord({**attributes, **log_fields(), **getattr(record, "fields", {})}))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def formatException(self, ei: Any) -> str:
        return without_secrets(str(super().formatException(ei)))
