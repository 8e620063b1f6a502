"""What the templates of a conversation show: plain values, made of rows with a fixed number of queries."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from accounts.access.rights import models_of
from accounts.models import User
from chat.conversations.branches import BranchView, branches_of, side_by_side
from chat.models import Conversation, Message, SummaryJob, Turn
from chat.models.conversation_state import ChatScope
from chat.models.summary import NO_MARKS, Marks, marks_on
from chat.models.tree import branch, branch_rows, ids_down_to, newest_leaf, siblings, with_rows
from chat.rendering.kept import blocks_of
from chat.rendering.page_size import MAX_ASIDE, MAX_CHARACTERS, MAX_HTML, characters_of, count_fitting, html_size
from chat.rendering.references import Sources, cited, cited_numbers
from chat.summaries.views import SummaryView, of_branch
from chat.turns.services import shown as shown_call
from chat.turns.smaller import offers_send_less
from core.errors import ProductError
from core.i18n import percent
from files.models import File
from llm.models import Effort
from personas.models import Persona
from personas.services import model_for

OFFERED = 12  # models that a page brings along; each weighs some 100 bytes
FIRST = 8  # messages that a conversation opens with at most, the newest; those above come with scrolling
LINES = 40  # of text with which a screen is full: of long messages fewer are enough
LINE = 80  # characters
PAGE = 24  # messages of one page further up
BELOW = 12  # messages that are shown below the one it opens at

# Why a fallback was asked, by the error's code.
NOT_AVAILABLE = {
    "provider_unreachable": _("its provider could not be reached"),
    "provider_timeout": _("it did not answer in time"),
    "provider_overloaded": _("its provider had a problem of its own"),
    "rate_limited": _("its provider received too many requests"),
    "quota_exhausted": _("its provider's account has no credit left"),
    "bad_credentials": _("its provider refused the API key"),
    "secret_lost": _("its stored API key cannot be read"),
    "stream_cut": _("the connection broke off"),
    "malformed_stream": _("its provider sent a broken answer"),
}


class Attached(NamedTuple):
    """A file of a question, and whether it is left out by itself; of a deleted one what `files_of` has."""

    file: File | dict[str, str]
    left_out: bool


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message with what only its page knows.

    `parts` are the row's parts with what a page needs: text has `blocks` (safe HTML), a tool call its `result`.
    `cited`: how many sources it cites. `marks`: those of the branch. `newest`: the branch on show ends here. `beside`:
    the answers to show side by side in this one's place, itself among them. `summary`: it stands for everything up to
    here. `failed`: why the newest one could not be written. `html_size`: of itself alone, in bytes.
    """

    row: Message
    parts: list[dict[str, Any]]
    cited: int
    marks: Marks = NO_MARKS
    branch: BranchView | None = None
    newest: bool = False
    beside: "list[MessageView]" = field(default_factory=list)
    summary: SummaryView | None = None
    failed: SummaryJob | None = None
    html_size: int = 0

    @property
    def size(self) -> int:
        """How many bytes its place on a page has, about."""
        return sum(view.html_size for view in self.beside) if self.beside else self.html_size

    @property
    def continues(self) -> bool:
        """A question that only asks to go on."""
        return self.row.continues

    @property
    def retryable(self) -> bool:
        live_or_done = self.row.status in (Message.Status.PENDING, Message.Status.DONE)
        return not live_or_done and hasattr(self.row, "turn")

    @property
    def send_less(self) -> bool:
        """Whether a shorter prompt might be answered where this one was refused."""
        turn: Turn | None = getattr(self.row, "turn", None)
        return turn is not None and self.row.status == Message.Status.FAILED and offers_send_less(turn, self.row)

    @property
    def declined(self) -> bool:
        return self.row.finish_reason in (*Turn.DECLINED, Turn.UNKNOWN_END)

    @property
    def doubts(self) -> int:
        """How many of its sentences their passages do not carry."""
        return sum(len(part["check"]["doubts"]) for part in self.row.parts if "check" in part)

    @property
    def fallback(self) -> Promise | str:
        """Why another model than the one that was asked has answered; empty when none has."""
        turn: Turn | None = getattr(self.row, "turn", None)
        return NOT_AVAILABLE.get(turn.fallback_reason, "") if turn is not None else ""

    @property
    def percent(self) -> str:
        """Of the model's limit, that the answer's context has used; empty while that is not known."""
        turn: Turn | None = getattr(self.row, "turn", None)
        if turn is None or turn.context_used is None or not turn.context_limit:
            return ""
        return percent(turn.context_used, turn.context_limit)

    @property
    def mark(self) -> str | None:
        """Of its whole turn."""
        return self.marks.by_message.get(self.row.pk)

    @property
    def attached(self) -> list[Attached]:
        left_out = self.marks.files.get(self.row.pk, frozenset())
        return [Attached(file, getattr(file, "pk", None) in left_out) for file in files_of(self.row)]


def _view(message: Message, sources: Sources, blocks: Sequence[list[str]]) -> MessageView:
    """`blocks`: as `chat.rendering.kept` has them."""
    if message.role != Message.Role.ASSISTANT:
        return MessageView(message, parts=[], cited=0, html_size=html_size(message, ()))
    cites = sum(1 for _source in cited(message.text, sources))
    return MessageView(message, _parts(message.parts, blocks), cites, html_size=html_size(message, blocks))


def files_of(message: Message) -> list[File | dict[str, str]]:
    """What was uploaded with it; of a file that was deleted since, its name alone."""
    attached = message.attachments.all()
    return [each.file or {"name": each.name, "status": "deleted"} for each in attached]


def titles_of(conversation: Conversation) -> dict[str, str]:
    ids = [pk for pk in conversation.documents if "/" not in pk]  # the others are addresses of pages
    return {str(pk): name for pk, name in File.objects.filter(pk__in=ids).values_list("pk", "name")} if ids else {}


def sources_of(message: Message, titles: Mapping[str, str]) -> Sources:
    """What the answer's citations lead to: the passages its searches found, else the whole file."""
    numbers = message.conversation.documents
    sources = Sources()
    sources.learn({"number": numbers[pk], "title": title, "file": pk} for pk, title in titles.items())
    for part in message.parts:
        sources.learn(part.get("documents", ()))
    return sources


def _parts(parts: list[dict[str, Any]], blocks: Sequence[list[str]]) -> list[dict[str, Any]]:
    """`blocks`: of each text, in their order."""
    parts = _short_asides(parts)
    results = {part["id"]: part for part in parts if part["type"] == "tool_result"}
    shown: list[dict[str, Any]] = []
    texts = 0
    for part in parts:
        match part["type"]:
            case "text":
                shown.append({**part, "blocks": blocks[texts]})
                texts += 1
            case "tool_call":
                result = results.get(part["id"])
                found = Sources()
                found.learn(result.get("documents", ()) if result else ())
                shown.append({**shown_call(part), "result": result, "found": list(found.values())})
            case _:
                shown.append(part)
    return shown


def _short_asides(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts, of which the reasoning and the results have `MAX_ASIDE` characters together; the first ones go on."""
    left, shortened = MAX_ASIDE, []
    for part in parts:
        text = "" if part["type"] == "text" else part.get("text", "")
        shortened.append({**part, "text": f"{text[:left]}…"} if len(text) > left else part)
        left -= min(left, len(text))
    return shortened


def _a_screen_of(messages: list[Message]) -> list[Message]:
    """Of the newest messages as many as fill one."""
    lines = 0
    for index, message in reversed(list(enumerate(messages))):
        shown = message.text[: LINE * LINES]  # as much fills a screen whatever follows
        lines += sum(1 + len(line) // LINE for line in shown.splitlines())
        if lines >= LINES:
            return messages[index:]
    return messages


def _newest_that_fit(messages: list[Message]) -> list[Message]:
    """Of the newest messages as many as one page may render."""
    return messages[-count_fitting(map(characters_of, reversed(messages)), MAX_CHARACTERS) :]


def branch_page(
    conversation: Conversation, before: Message | None = None, *, newest: int | None = None
) -> tuple[list[MessageView], UUID | None]:
    """The newest messages of the branch on show (without a number as many as fill a screen), or a page above `before`;
    and where to go on upwards, if anywhere."""
    end = conversation.leaf if before is None else before.parent
    if end is None:
        return [], None
    messages = branch(end.pk, newest=PAGE if before else newest or FIRST, leaf_depth=end.depth)
    if before is None and newest is None:
        messages = _a_screen_of(messages)
    views = placed(_newest_that_fit(messages), conversation, beside=before is None)
    views = views[-count_fitting((view.size for view in reversed(views)), MAX_HTML) :]
    older = views[0].row.pk if views[0].row.depth > 0 else None
    summary, failed = of_branch(conversation)
    for index, view in enumerate(views):
        if summary is not None and view.row.pk == summary.row.last_id:
            views[index] = replace(view, summary=summary)
    if failed is not None and before is None:
        views[-1] = replace(views[-1], failed=failed)
    return views, older


def answers_page(turns: Sequence[Turn], *, question: bool) -> list[MessageView]:
    """A new question (unless it is on the page already) and its pending answers."""
    ids = [turns[0].answer_id] + ([turns[0].user_message_id] if question else [])
    rows = list(with_rows(Message.objects.filter(pk__in=ids)).order_by("depth"))
    return placed(rows, turns[0].conversation, beside=True)


def one_message(message: Message) -> MessageView:
    return placed([message], message.conversation)[0]


def placed(messages: Sequence[Message], conversation: Conversation, *, beside: bool = False) -> list[MessageView]:
    """Messages of one branch with their places in the tree; `beside`: the last one with those to show in its scope."""
    for message in messages:
        message.conversation = conversation  # which the row would otherwise ask the database for
    places, last = siblings(messages), messages[-1]
    group = side_by_side(last) if beside and len(places[last.pk]) > 1 else []
    # An answer that is being written has grown between the two queries: the page shows one of them.
    newer = {message.pk: message for message in group}
    messages = [newer.get(message.pk, message) for message in messages]
    places |= {message.pk: places[last.pk] for message in group}
    branches = branches_of([*messages, *group], places, conversation.leaf_id)
    marks = marks_on(conversation.pk, conversation.leaf_id)

    for message in group:
        message.conversation = conversation
    answers = [message for message in (*messages, *group) if message.role == Message.Role.ASSISTANT]
    _learn_numbers(conversation, answers)
    titles = titles_of(conversation)
    sources = {message.pk: sources_of(message, titles) for message in answers}
    blocks = blocks_of([(message, sources[message.pk]) for message in (*messages, *group) if message.pk in sources])

    def view(message: Message) -> MessageView:
        newest = message.pk == conversation.leaf_id
        shown = _view(message, sources.get(message.pk, Sources()), blocks.get(message.pk, ()))
        return replace(shown, marks=marks, branch=branches[message.pk], newest=newest)

    views = [view(message) for message in messages]
    if group:
        views[-1] = replace(views[-1], beside=[view(message) for message in group])
    return views


def _learn_numbers(conversation: Conversation, answers: Sequence[Message]) -> None:
    """Documents get their numbers while an answer is written, so a row of before lacks those of one that is complete by
    now. A number never changes."""
    texts = (part["text"] for answer in answers for part in answer.parts if part["type"] == "text")
    if any(not cited_numbers(text) <= set(conversation.documents.values()) for text in texts):
        conversation.refresh_from_db(fields=["documents"])


def being_written(views: Sequence[MessageView]) -> bool:
    """Whether the page shows an answer that grows; by its row, since the conversation's may be of a moment before."""
    return any(each.row.status == Message.Status.PENDING for view in views for each in (view, *view.beside))


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Instead of the newest messages. `other_branch`: than that of the conversation's leaf."""

    message: UUID
    other_branch: bool


def page_at(conversation: Conversation, message: Message) -> dict[str, Any]:
    """A conversation opened at one of its messages, wherever that is in the tree.

    For the template: `messages`, `older`, and `excerpt` unless the newest messages are among them. Looking changes
    nothing: the branch that the conversation goes on with stays the stored one, also when the message is on another,
    which is then only shown, with a button to go on from there. A search hit that silently moved the end of the
    conversation would make the next question continue another one than its writer has in mind.
    """
    leaf = conversation.leaf
    path = ids_down_to(leaf.pk, message.depth) if leaf else []
    other = message.pk not in path
    if leaf and other and message.parent_id == leaf.parent_id:
        other = message.pk not in {each.pk for each in side_by_side(leaf)}
    if not other and len(path) <= PAGE // 2:
        messages, older = branch_page(conversation, newest=PAGE)
        if any(each.row.pk == message.pk for view in messages for each in (view, *view.beside)):
            return {"messages": messages, "older": older}
    if other:
        path = ids_down_to(newest_leaf(message.pk) or message.pk, message.depth)
    end = path[max(0, len(path) - 1 - BELOW)]
    rows = branch(end, newest=PAGE, leaf_depth=message.depth + min(BELOW, len(path) - 1))
    views = _around(message, rows, conversation)
    return {
        "messages": views,
        "older": views[0].row.pk if views[0].row.depth else None,
        "excerpt": Excerpt(message.pk, other),
    }


def _around(message: Message, rows: Sequence[Message], conversation: Conversation) -> list[MessageView]:
    """Of the rows as many as a page may hold: the message itself, those below it, then those above it."""
    at = next(index for index, row in enumerate(rows) if row.pk == message.pk)
    from_message = [*range(at, len(rows)), *reversed(range(at))]
    chosen = from_message[: count_fitting((characters_of(rows[each]) for each in from_message), MAX_CHARACTERS)]
    views = dict(zip(sorted(chosen), placed([rows[each] for each in sorted(chosen)], conversation), strict=True))
    chosen = chosen[: count_fitting((views[each].size for each in chosen), MAX_HTML)]
    return [views[each] for each in sorted(chosen)]


def first_since(conversation: Conversation, day: str) -> UUID:
    """The first question on the branch of `day` (ISO 8601) or later, in the reader's time zone; without a day the very
    first. Raises `bad_day` and `nothing_since`."""
    rows = branch_rows(conversation.leaf_id).filter(role=Message.Role.USER)
    if day:
        try:
            start = datetime.combine(date.fromisoformat(day), time.min)
        except ValueError as error:
            raise ProductError("bad_day", "Write the day as in 2026-11-21.") from error
        rows = rows.filter(created__gte=timezone.make_aware(start))
    found = rows.order_by("depth").values_list("pk", flat=True).first()
    if found is None:
        raise ProductError("nothing_since", "Nothing was written here on that day or later. Choose an earlier one.")
    return found


def choices(user: User, scope: ChatScope, *, all_models: bool) -> dict[str, Any]:
    """What can be chosen at the composer, and what is chosen: the model asked last goes on, if it still can.

    Unless `all_models`, the page offers the first of many models and the chosen one; the others are fetched."""
    persona = scope.persona
    asked = getattr(scope.conversation, "newest_model", None)
    models = list(models_of(user))
    chosen = next((model for model in models if model.pk == asked), None)
    if chosen is None:
        with suppress(ProductError):
            chosen = model_for(persona, user)
    offered = models if all_models else models[:OFFERED] + [each for each in models[OFFERED:] if each == chosen]
    bundled = bool(chosen and settings.BUNDLED_MODEL_URL and chosen.provider.base_url == settings.BUNDLED_MODEL_URL)
    return {
        "models": models,
        "offered_models": offered,
        "chosen_model": chosen,
        "efforts": [each for each in Effort if any(each in model.offered_efforts for model in models)],
        "chosen_effort": scope.conversation.effort if scope.conversation else "",
        "personas": Persona.objects.visible_to(user),
        "chosen_persona": persona,
        "project": scope.project,
        "bundled": bundled,
    }
