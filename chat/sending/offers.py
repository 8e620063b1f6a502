"""Offers that make a draft fit, or leave less of the conversation out. Each offer states the tokens that it frees.

After an answer there is one offer: to answer again with a model that has more room.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NotRequired, TypedDict
from uuid import UUID

from accounts.access.rights import models_of
from accounts.models import User
from chat.models import Conversation, Turn
from chat.models.conversation_state import ChatScope, scope_of
from chat.prompts.document_budget import chosen_files
from chat.prompts.preview import TurnDraft, plan_ahead
from chat.prompts.turn_context import base_context
from chat.prompts.wording import NO_ROOM, freed
from chat.summaries.services import estimate_freed_tokens
from files.services import get_token_count
from llm.models import Model

MAX_OFFERED_FILES = 2  # number of files to offer, the largest of the conversation


class RoomOffer(TypedDict):
    """A way to make more room for a prompt. `title`: the file's or the model's name. `frees`: tokens.

    `kind`: `remove_file` (of the draft, by its `id`), `model` (with a larger window), `leave_out` (the file `id` of the
    question `message`), `summarise` (for the model `id`), or `again` (write the answer `message` again with the
    model `id`). `fits`: whether the offer makes the draft fit; true for a draft that fits already.
    """

    kind: str
    id: str | None
    title: str
    frees: int
    fits: bool
    message: NotRequired[str]


def find_offers(
    *, user: User, scope: ChatScope, draft: TurnDraft, plan: Mapping[str, Any], model: Model
) -> list[RoomOffer]:
    """Return the offers for a `plan` of the draft under the model; empty if everything fits."""
    if not plan["fits"]:
        return [*_files_to_remove(user, draft, plan["error"]), *_larger_models(user, scope, draft, plan, model)]
    if not _lacks_room(plan):
        return []
    summary = [_summary_offer(scope.conversation, model)] if scope.conversation is not None else []
    return [*filter(None, summary), *_files_to_leave_out(plan), *_larger_models(user, scope, draft, plan, model)]


def find_larger_model_offers(turn: Turn, report: Mapping[str, Any]) -> list[RoomOffer]:
    """Return the smallest model with more room than the turn's `report` shows; empty if everything had room."""
    if not _lacks_room(report) or turn.status in Turn.LIVE or turn.model is None:
        return []
    context = base_context(user=turn.conversation.owner, model=turn.model, scope=scope_of(turn.conversation))
    room = report["limit"] + report["tools_tokens"]
    for other in sorted(models_of(turn.conversation.owner), key=lambda each: each.window):
        frees = replace(context, model=other).room.input_limit - room
        if frees > 0:
            again = RoomOffer(kind="again", id=str(other.pk), title=other.label, frees=frees, fits=True)
            return [{**again, "message": str(turn.answer_id)}]
    return []


class WordedOffer(RoomOffer):
    """An offer for a page. `words`: a sentence on the room that it makes."""

    words: str


def describe_offers(offered: Iterable[RoomOffer], limit: int) -> list[WordedOffer]:
    """Return the offers for a page. `limit`: the limit of the plan or report, in tokens."""
    more = ("model", "again")
    return [{**each, "words": freed(each["frees"], limit, more=each["kind"] in more)} for each in offered]


def _lacks_room(report: Mapping[str, Any]) -> bool:
    return bool(report["unloaded"]) or any(each.get("reason") in NO_ROOM for each in report["sources"])


def _files_to_remove(user: User, draft: TurnDraft, error: Mapping[str, Any]) -> Iterator[RoomOffer]:
    """Yield the draft's files, largest first.

    The plan's error has the number of tokens to save: over the budget for files, over the room, or over the window.
    """
    over = error.get("over")
    if over is None and "needed" in error:
        over = error["needed"] - error["limit"]
    if over is None and "tokens" in error:
        over = error["tokens"] - error["room"]
    sized = [(get_token_count(file=file) or 0, file) for file in chosen_files(user=user, ids=draft.files)]
    for size, file in sorted(sized, key=lambda each: -each[0]):
        fits = error["code"] in ("file_failed", "file_not_ready") or (over is not None and size >= over)
        yield RoomOffer(kind="remove_file", id=str(file.pk), title=file.name, frees=size, fits=fits)


def _larger_models(
    user: User, scope: ChatScope, draft: TurnDraft, plan: Mapping[str, Any], model: Model
) -> Iterator[RoomOffer]:
    """Yield the smallest model with a larger window under which the draft fits."""
    others = [each for each in models_of(user) if each.window > model.window]
    for other in sorted(others, key=lambda each: each.window):
        planned = plan_ahead(user=user, scope=scope, draft=draft, model=other)
        if planned["fits"]:
            frees = planned["limit"] - plan["limit"]
            yield RoomOffer(kind="model", id=str(other.pk), title=other.label, frees=frees, fits=True)
            return


def _files_to_leave_out(plan: Mapping[str, Any]) -> list[RoomOffer]:
    """Return files and pictures of earlier turns, largest first. In the sources, each comes before its message."""
    offered: list[RoomOffer] = []
    message = ""
    for source in reversed(plan["sources"]):
        if source["kind"] == "message":
            message = source["id"] or ""
        elif source["kind"] in ("file", "image") and source["state"] == "full" and _is_row(message):
            offer = RoomOffer(
                kind="leave_out", id=source["id"], title=source["title"], frees=source["tokens"], fits=True
            )
            offered.append({**offer, "message": message})
    return sorted(offered, key=lambda each: -each["frees"])[:MAX_OFFERED_FILES]


def _is_row(message: str) -> bool:
    """Return whether this is the id of a stored message. A draft has no id, so its files cannot be left out."""
    try:
        return bool(UUID(message))
    except ValueError:
        return False


def _summary_offer(conversation: Conversation, model: Model) -> RoomOffer | None:
    frees = estimate_freed_tokens(conversation, model)
    return RoomOffer(kind="summarise", id=str(model.pk), title="", frees=frees, fits=True) if frees else None
