"""Errors for Sentry: lines of the log at level ERROR, as events that say where, and nothing that anybody wrote.

Of an exception go its kind and the places in the code that it passed, with the lines there; of a line of ours its
constant words; and the ids by which the log has the rest. Its sentence, values of variables, the request and what was
done before do not go: they may hold texts, searches and tokens. So this client is used and not `sentry_sdk.init`, which
hooks itself into everything. Loaded only where `SENTRY_DSN` is set.
"""

import atexit
import logging
from typing import Any

from sentry_sdk.client import Client
from sentry_sdk.utils import exceptions_from_error_tuple

from core.logs.context import known, trace_of

SECONDS = 2.0  # that the end of a process waits for what is on its way
# Whose lines are constants with places to fill in. Others put them together first, from whatever they were given.
OURS = frozenset(
    ("accounts", "audit", "chat", "config", "core", "files", "llm", "personas", "projects", "django.request")
)


class Handler(logging.Handler):
    """Of `logging`; sends on a thread of the client's own, which begins with the first event."""

    def __init__(self, dsn: str) -> None:
        super().__init__(logging.ERROR)
        self._client = Client(
            dsn=dsn,
            default_integrations=False,
            auto_enabling_integrations=False,
            auto_session_tracking=False,
            send_client_reports=False,
            include_local_variables=False,
            max_breadcrumbs=0,
        )
        atexit.register(self._client.close, SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(("sentry_sdk", "urllib3")):
            return  # they tell of events that did not leave
        try:
            self._client.capture_event(event_of(record, self._client.options))
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        self._client.flush(SECONDS)


def event_of(record: logging.LogRecord, options: dict[str, Any]) -> Any:
    """In the format of https://develop.sentry.dev/sdk/data-model/event-payloads/."""
    said = known()
    ours = record.name in OURS or record.name.partition(".")[0] in OURS
    event: dict[str, Any] = {
        "level": record.levelname.lower().replace("critical", "fatal"),
        "logger": record.name,
        "logentry": {"message": str(record.msg) if ours else f"An error of {record.name}"},
        "tags": {name: said[name] for name in ("request_id", "turn_id") if name in said},
    }
    if "user_id" in said:
        event["user"] = {"id": said["user_id"]}
    if "request_id" in said:
        trace_id, span_id = trace_of(said["request_id"])
        event["contexts"] = {"trace": {"trace_id": f"{trace_id:032x}", "span_id": f"{span_id:016x}"}}
    if record.exc_info and record.exc_info[0] is not None:
        values = exceptions_from_error_tuple(record.exc_info, options)
        for each in values:
            each["value"] = ""
            each.get("mechanism", {}).pop("data", None)
        event["exception"] = {"values": values}
    return event
