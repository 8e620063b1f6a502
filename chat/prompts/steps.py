"""The steps of an answer as a person reads them: what a tool did and what it found, never the JSON of it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from chat.context.types import ContextMessage
from chat.models import Message
from core.i18n import grouped
from core.sentences import Sentence

NAMED = 2  # documents that are named of those that a tool found


class Step(NamedTuple):
    """`role`: `question`, `answer`, `call` or `result`. `found`: ids of the files whose text a tool's result holds."""

    role: str
    words: str
    found: tuple[str, ...] = ()


def step_of(row: Message, message: ContextMessage) -> Step:
    """Of an engine's message that `row` was expanded to."""
    if message.tool_calls:
        said = [*filter(None, [message.text]), *(_called(row, call.id, call.name) for call in message.tool_calls)]
        return Step("call", " · ".join(said))
    if message.role == "tool":
        part = _part(row, "tool_result", message.tool_call_id)
        found = [str(each["file"]) for each in part.get("documents", ()) if "file" in each]
        return Step("result", _found(part), tuple(found))
    return Step("question" if message.role == "user" else "answer", message.text or "")


def _part(row: Message, kind: str, call: str | None) -> Mapping[str, Any]:
    return next((part for part in row.parts if part["type"] == kind and part["id"] == call), {})


def _called(row: Message, call: str, name: str) -> str:
    part, result = _part(row, "tool_call", call), _part(row, "tool_result", call)
    arguments = _arguments(part.get("arguments", ""))
    documents = result.get("documents", ())
    match name:
        case "search_files" if arguments.get("query"):
            did = _("Searched the files for “%(query)s”") % {"query": arguments["query"]}
        case "web_search" if arguments.get("query"):
            did = _("Searched the web for “%(query)s”") % {"query": arguments["query"]}
        case "search_conversation" if arguments.get("query"):
            did = _("Searched the conversation for “%(query)s”") % {"query": arguments["query"]}
        case "read_file" if documents:
            return _("Read “%(title)s”") % {"title": documents[0]["title"]}
        case _:
            did = str(Sentence.load(part.get("label", ""))) or name
    found = _found(result) if result else ""
    return f"{did} → {found}" if found else did


def _found(result: Mapping[str, Any]) -> str:
    if result.get("error"):
        return _("failed")
    titles = list(dict.fromkeys(str(each["title"]) for each in result.get("documents", ())))
    return _titles(titles) if titles else ""


def _titles(titles: Sequence[str]) -> str:
    named = ", ".join(titles[:NAMED])
    more = len(titles) - NAMED
    if more <= 0:
        return named
    return ngettext("%(named)s and %(count)s more", "%(named)s and %(count)s more", more) % {
        "named": named,
        "count": grouped(more),
    }


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def found_by(steps: Iterable[Step]) -> frozenset[str]:
    return frozenset(pk for step in steps for pk in step.found)
