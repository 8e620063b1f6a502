"""Send log records of level ERROR to Sentry, as events without any text of users.

An event has the class of the exception, its stack with the lines of code, the constant text of our log line, and ids
for finding related log lines. It has no exception message, value of a variable, request or earlier log line, since
these may hold texts, searches and tokens. This module is loaded only if `SENTRY_DSN` is set.
"""

import logging

import sentry_sdk
from sentry_sdk.integrations.atexit import AtexitIntegration
from sentry_sdk.integrations.logging import EventHandler, ignore_logger
from sentry_sdk.types import Event, Hint

from core.logs.context import log_fields, trace_of

# Loggers whose messages are constant format strings. Messages of other loggers may already contain values.
OWN_LOGGERS = frozenset(
    (
        *(
            "accounts",
            "chat",
            "config",
            "contrib",
            "core",
            "files",
            "llm",
            "personas",
            "projects",
            "readers",
            "workspace",
        ),
        "django.request",
    )
)
# Members of an event that are sent as Sentry's client made them.
_STAYING = frozenset(("event_id", "timestamp", "level", "logger", "platform", "server_name", "environment", "release"))


def handler(dsn: str) -> EventHandler:
    """Start Sentry's client without its default integrations, and return the log handler that sends it events."""
    sentry_sdk.init(
        dsn=dsn,
        default_integrations=False,
        auto_enabling_integrations=False,
        integrations=[AtexitIntegration(callback=lambda pending, timeout: None)],  # the default writes to stderr
        auto_session_tracking=False,
        send_client_reports=False,
        include_local_variables=False,
        max_breadcrumbs=0,
        before_send=_stripped,
    )
    for name in ("sentry_sdk*", "urllib3*"):  # they log failures to send an event
        ignore_logger(name)
    return EventHandler(logging.ERROR)


def _stripped(event: Event, hint: Hint) -> Event | None:
    """Return a new event with only the allowed members. https://develop.sentry.dev/sdk/data-model/event-payloads/"""
    record = hint.get("log_record")
    if record is None:
        return None
    ids = log_fields()
    ours = record.name in OWN_LOGGERS or record.name.partition(".")[0] in OWN_LOGGERS
    stripped: Event = {name: value for name, value in event.items() if name in _STAYING}  # type: ignore[assignment]  # a part of it
    stripped["logentry"] = {"message": str(record.msg) if ours else f"An error of {record.name}"}
    stripped["tags"] = {name: ids[name] for name in ("request_id", "turn_id") if name in ids}
    if "user_id" in ids:
        stripped["user"] = {"id": ids["user_id"]}
    if "request_id" in ids:
        trace_id, span_id = trace_of(ids["request_id"])
        stripped["contexts"] = {"trace": {"trace_id": f"{trace_id:032x}", "span_id": f"{span_id:016x}"}}
    if "exception" in event:
        for each in event["exception"]["values"]:
            each["value"] = ""
            each.get("mechanism", {}).pop("data", None)
        stripped["exception"] = event["exception"]
    return stripped
