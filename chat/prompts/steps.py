"""Describe the steps of an answer for users: what a tool did and which documents it returned, without its JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from chat.context.types import ContextMessage
from chat.models import Message
from core.i18n import grouped
from core.json_types import JsonObject
from core.sentences import Sentence

NAMED = 2  # documents named per result; further ones are counted


class AnswerStep(NamedTuple):
    """One step of a turn in words.

    `role` is `question`, `answer`, `call` or `result`. `files` are the ids of the files whose text a result holds.
    """

    role: str
    words: str
    files: tuple[str, ...] = ()


def answer_step(row: Message, message: ContextMessage) -> AnswerStep:
    """Describe one of the engine's messages into which `row` was expanded."""
    if message.tool_calls:
        calls = (_describe_call(row, call.id, call.name) for call in message.tool_calls)
        return AnswerStep("call", " · ".join([*filter(None, [message.text]), *calls]))
    if message.role == "tool":
        part = _part(row, "tool_result", message.tool_call_id)
        files = [str(each["file"]) for each in part.get("documents", ()) if "file" in each]
        return AnswerStep("result", _describe_result(part), tuple(files))
    return AnswerStep("question" if message.role == "user" else "answer", message.text or "")


def _part(row: Message, kind: str, call: str | None) -> Mapping[str, Any]:
    """Return the row's part of this type for the call; empty if there is none."""
    return next((part for part in row.parts if part["type"] == kind and part["id"] == call), {})


def _describe_call(row: Message, call: str, name: str) -> str:
    part = _part(row, "tool_call", call)
    result = _part(row, "tool_result", call)
    arguments = _arguments(part.get("arguments", ""))
    documents = result.get("documents", ())
    match name:
        case "search_files" if arguments.get("query"):
            action = _("Searched the files for “%(query)s”") % {"query": arguments["query"]}
        case "web_search" if arguments.get("query"):
            action = _("Searched the web for “%(query)s”") % {"query": arguments["query"]}
        case "search_conversation" if arguments.get("query"):
            action = _("Searched the conversation for “%(query)s”") % {"query": arguments["query"]}
        case "search_conversations" if arguments.get("query"):
            action = _("Searched your conversations for “%(query)s”") % {"query": arguments["query"]}
        case "read_file" if documents:
            return _("Read “%(title)s”") % {"title": documents[0]["title"]}
        case _:
            action = str(Sentence.load(part.get("label", ""))) or name
    outcome = _describe_result(result) if result else ""
    return f"{action} → {outcome}" if outcome else action


def _describe_result(result: Mapping[str, Any]) -> str:
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


def _arguments(text: str) -> JsonObject:
    """Parse the arguments of a call. A model may write invalid JSON; the result is then empty."""
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def files_read(steps: Iterable[AnswerStep]) -> frozenset[str]:
    """Return the ids of the files whose text the results of these steps hold."""
    return frozenset(pk for step in steps for pk in step.files)
