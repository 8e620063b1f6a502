"""Build the values for the templates of a conversation from its rows, with a fixed number of queries."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from accounts.access.offered_models import offered_models, with_favourites
from accounts.access.rights import models_of
from accounts.models import User
from chat.conversations.branches import BranchView, answers_side_by_side, build_branch_views
from chat.memory.listing import ShownFact, proposals_below
from chat.models import Conversation, Message, SummaryJob, Turn
from chat.models.conversation_state import ChatScope
from chat.models.parts import MessagePart
from chat.models.summary import NO_MARKS, Marks, marks_on
from chat.models.tree import branch, branch_rows, ids_down_to, newest_leaf, siblings, with_rows
from chat.rendering.cache import render_answers
from chat.rendering.page_size import MAX_ASIDE, MAX_CHARACTERS, MAX_HTML, count_characters, count_fitting, html_size
from chat.rendering.references import Sources, cited_numbers, cited_sources
from chat.summaries.views import SummaryView, summary_of_branch
from chat.turns.services import with_decision_members as shown_call
from chat.turns.smaller import offers_send_less
from core.errors import ProductError
from core.i18n import percent
from files.models import File
from llm.models import Effort, Model
from personas.models import Persona
from personas.services import model_for
from projects.models import Project

MODELS_IN_PAGE = 12  # models listed in the page itself; each takes about 100 bytes
FIRST_PAGE = 8  # most messages on the first page of a conversation; scrolling loads older ones
SCREEN_LINES = 40  # lines of text that fill a screen; a conversation with long messages opens with fewer messages
LINE_CHARACTERS = 80  # characters per line
PAGE = 24  # messages per page of older ones
MESSAGES_BELOW = 12  # messages shown below the message at which a conversation is opened
FOLDED_CHARACTERS = 2_000  # characters, or 25 lines, from which a question shows its beginning only
FOLDED_LINES = 25

# Why a fallback model was used, by the code of the error.
FALLBACK_REASONS = {
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


# A part of a message with the additional members for its template. `MessageView` describes them.
ShownPart = Mapping[str, Any]


class DeletedFile(TypedDict):
    """An attached file that was deleted since. `status` is `deleted`."""

    name: str
    status: str


class AttachedFile(NamedTuple):
    """A file of a question. `left_out`: the user has excluded this file alone, not the whole turn."""

    file: File | DeletedFile
    left_out: bool


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message as its page shows it.

    `parts` are the row's `separated_parts`. A text part also has `blocks` (safe HTML), a tool call also its `result`
    and the documents it `found`. `cited_sources` is the number of cited sources. `marks` are those on the displayed
    branch.
    `newest`: this is the last message of the displayed branch. `alternatives` are the answers shown side by side,
    including this one. `summary` covers everything up to this message. `failed` is the failed job of a newer summary.
    `html_size` is the size of this message alone, in bytes. `proposals` are the facts that wait below the answer.
    """

    row: Message
    parts: list[ShownPart]
    cited: int
    marks: Marks = NO_MARKS
    branch: BranchView | None = None
    newest: bool = False
    alternatives: "list[MessageView]" = field(default_factory=list)
    summary: SummaryView | None = None
    failed: SummaryJob | None = None
    html_size: int = 0
    proposals: Sequence[ShownFact] = ()

    @property
    def size(self) -> int:
        """Return the estimated bytes of the message on a page, with its alternatives."""
        return sum(view.html_size for view in self.alternatives) if self.alternatives else self.html_size

    @property
    def continues(self) -> bool:
        """Return whether the message is a question that only asks to continue."""
        return self.row.continues

    @property
    def characters(self) -> int:
        return len(self.row.text)

    @property
    def folds(self) -> bool:
        """Return whether the message is a question that is so long that its page shows the beginning only."""
        text = self.row.text
        return len(text) >= FOLDED_CHARACTERS or text.count("\n") >= FOLDED_LINES

    @property
    def retryable(self) -> bool:
        """Return whether the message is an incomplete answer that can be regenerated."""
        live_or_done = self.row.status in (Message.Status.PENDING, Message.Status.DONE)
        return not live_or_done and hasattr(self.row, "turn")

    @property
    def send_less(self) -> bool:
        """Return whether the provider refused the prompt and might accept a shorter one."""
        turn: Turn | None = getattr(self.row, "turn", None)
        return turn is not None and self.row.status == Message.Status.FAILED and offers_send_less(turn, self.row)

    @property
    def declined(self) -> bool:
        """Return whether the model declined to answer or stopped for an unknown reason."""
        return self.row.finish_reason in (*Turn.DECLINED, Turn.UNKNOWN_END)

    @property
    def doubts(self) -> int:
        """Return the number of sentences that their cited passages do not support."""
        return sum(len(part["check"]["doubts"]) for part in self.row.parts if "check" in part)

    @property
    def fallback(self) -> Promise | str:
        """Return why a fallback answered instead of the chosen model; empty without a fallback."""
        turn: Turn | None = getattr(self.row, "turn", None)
        return FALLBACK_REASONS.get(turn.fallback_reason, "") if turn is not None else ""

    @property
    def percent(self) -> str:
        """Return the share of the model's context limit that was used, in percent; empty while unknown."""
        turn: Turn | None = getattr(self.row, "turn", None)
        if turn is None or turn.context_used is None or not turn.context_limit:
            return ""
        return percent(turn.context_used, turn.context_limit)

    @property
    def mark(self) -> str | None:
        """Return the mark on the message's whole turn."""
        return self.marks.by_message.get(self.row.pk)

    @property
    def attached(self) -> list[AttachedFile]:
        """Return the files that were uploaded with the message."""
        excluded = self.marks.files.get(self.row.pk, frozenset())
        return [AttachedFile(file, getattr(file, "pk", None) in excluded) for file in attached_files(self.row)]


def _view(message: Message, sources: Sources, blocks: Sequence[list[str]]) -> MessageView:
    """Return the view of a message. `blocks` come from `chat.rendering.cache`."""
    if message.role != Message.Role.ASSISTANT:
        return MessageView(message, parts=[], cited=0, html_size=html_size(message, ()))
    cites = sum(1 for _source in cited_sources(message.text, sources))
    return MessageView(message, _parts(message.separated_parts, blocks), cites, html_size=html_size(message, blocks))


def attached_files(message: Message) -> list[File | DeletedFile]:
    """Return the files that were uploaded with a message."""
    attached = message.attachments.all()
    return [each.file or DeletedFile(name=each.name, status="deleted") for each in attached]


def find_original(conversation: Conversation | None) -> Message | None:
    """Return the message down to which the conversation was copied from another; None if it is gone or nothing was."""
    if conversation is None or conversation.forked_from is None:
        return None
    rows = Message.objects.visible_to(conversation.owner).select_related("conversation").defer("parts", "tokens")
    return rows.filter(pk=conversation.forked_from).first()


def file_titles(conversation: Conversation) -> dict[str, str]:
    """Return the names of the files that have a citation number in the conversation, by id."""
    ids = [pk for pk in conversation.documents if "/" not in pk]  # ids with a slash are URLs of web pages
    return {str(pk): name for pk, name in File.objects.filter(pk__in=ids).values_list("pk", "name")} if ids else {}


def sources_of_message(message: Message, titles: Mapping[str, str]) -> Sources:
    """Return the documents that an answer can cite: passages from its searches, otherwise whole files."""
    numbers = message.conversation.documents
    sources = Sources()
    sources.add_documents({"number": numbers[pk], "title": title, "file": pk} for pk, title in titles.items())
    for part in message.parts:
        sources.add_documents(part.get("documents", ()))
    return sources


def _parts(parts: Sequence[MessagePart], blocks: Sequence[list[str]]) -> list[ShownPart]:
    """Return the parts as the page shows them. `blocks` has the rendered blocks of each text part, in order."""
    short = _short_asides(parts)
    results = {part["id"]: part for part in short if part["type"] == "tool_result"}
    shown: list[ShownPart] = []
    texts = 0
    for part in short:
        match part["type"]:
            case "text":
                shown.append({**part, "blocks": blocks[texts]})
                texts += 1
            case "tool_call":
                result = results.get(part["id"])
                documents = Sources()
                documents.add_documents(result.get("documents", ()) if result else ())
                shown.append({**shown_call(part), "result": result, "found": list(documents.values())})
            case _:
                shown.append({**part})
    return shown


def _short_asides(parts: Sequence[MessagePart]) -> list[MessagePart]:
    """Shorten reasoning and results to `MAX_ASIDE` characters in total. Earlier parts use the limit first."""
    remaining = MAX_ASIDE
    shortened: list[MessagePart] = []
    for part in parts:
        text = "" if part["type"] == "text" else part.get("text", "")
        shortened.append({**part, "text": f"{text[:remaining]}…"} if len(text) > remaining else part)
        remaining -= min(remaining, len(text))
    return shortened


def _fill_screen(messages: list[Message]) -> list[Message]:
    """Return as many of the newest messages as fill a screen."""
    lines = 0
    for index, message in reversed(list(enumerate(messages))):
        shown = message.text[: LINE_CHARACTERS * SCREEN_LINES]  # a longer text fills a screen anyway
        lines += sum(1 + len(line) // LINE_CHARACTERS for line in shown.splitlines())
        if lines >= SCREEN_LINES:
            return messages[index:]
    return messages


def _newest_that_fit(messages: list[Message]) -> list[Message]:
    """Return as many of the newest messages as one page may render."""
    return messages[-count_fitting(map(count_characters, reversed(messages)), MAX_CHARACTERS) :]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a conversation around `message`, shown instead of its newest messages.

    `other_branch`: the message is not on the branch of the conversation's leaf.
    """

    message: UUID
    other_branch: bool


class MessagesPage(NamedTuple):
    """The messages of one page, oldest first.

    `older` is the first message of this page, above which the older page ends. It is None at the beginning of the
    conversation. `excerpt` is set if the page does not show the newest messages.
    """

    messages: list[MessageView]
    older: UUID | None
    excerpt: Excerpt | None = None


NO_MESSAGES = MessagesPage([], None)


def branch_page(
    conversation: Conversation, before: Message | None = None, *, newest: int | None = None
) -> MessagesPage:
    """Return the newest messages of the displayed branch: `newest` of them, or by default as many as fill a screen.

    With `before` return the page above that message.
    """
    end = conversation.leaf if before is None else before.parent
    if end is None:
        return NO_MESSAGES
    messages = branch(end.pk, newest=PAGE if before else newest or FIRST_PAGE, leaf_depth=end.depth)
    if before is None and newest is None:
        messages = _fill_screen(messages)
    views = build_views(_newest_that_fit(messages), conversation, side_by_side_last=before is None)
    views = views[-count_fitting((view.size for view in reversed(views)), MAX_HTML) :]
    older = views[0].row.pk if views[0].row.depth > 0 else None
    summary, failed = summary_of_branch(conversation)
    for index, view in enumerate(views):
        if summary is not None and view.row.pk == summary.row.last_id:
            views[index] = replace(view, summary=summary)
    if failed is not None and before is None:
        views[-1] = replace(views[-1], failed=failed)
    return MessagesPage(views, older)


def answers_page(turns: Sequence[Turn], *, question: bool) -> list[MessageView]:
    """Return the pending answers of a new question. With `question` return the question above them, too."""
    ids = [turns[0].answer_id] + ([turns[0].user_message_id] if question else [])
    rows = list(with_rows(Message.objects.filter(pk__in=ids)).order_by("depth"))
    return build_views(rows, turns[0].conversation, side_by_side_last=True)


def one_message(message: Message) -> MessageView:
    """Return the view of one message by itself."""
    return build_views([message], message.conversation)[0]


def build_views(
    messages: Sequence[Message], conversation: Conversation, *, side_by_side_last: bool = False
) -> list[MessageView]:
    """Return the views of messages of one branch, with their places in the tree.

    `side_by_side_last`: the last message gets its alternatives, the answers that are shown side by side with it.
    """
    for message in messages:
        message.conversation = conversation  # the row would otherwise query the database for it
    places = siblings(messages)
    last = messages[-1]
    group = answers_side_by_side(last) if side_by_side_last and len(places[last.pk]) > 1 else []
    # An answer that is being written may have grown between the two queries. The page shows the newer row.
    newer = {message.pk: message for message in group}
    messages = [newer.get(message.pk, message) for message in messages]
    places |= {message.pk: places[last.pk] for message in group}
    branches = build_branch_views([*messages, *group], places, conversation.leaf_id)
    marks = marks_on(conversation.pk, conversation.leaf_id)

    for message in group:
        message.conversation = conversation
    answers = [message for message in (*messages, *group) if message.role == Message.Role.ASSISTANT]
    _reload_numbers(conversation, answers)
    proposals = proposals_below(conversation, [answer.pk for answer in answers])
    titles = file_titles(conversation)
    sources = {message.pk: sources_of_message(message, titles) for message in answers}
    blocks = render_answers(
        [(message, sources[message.pk]) for message in (*messages, *group) if message.pk in sources]
    )

    def view(message: Message) -> MessageView:
        newest = message.pk == conversation.leaf_id
        shown = _view(message, sources.get(message.pk, Sources()), blocks.get(message.pk, ()))
        waiting = proposals.get(message.pk, ())
        return replace(shown, marks=marks, branch=branches[message.pk], newest=newest, proposals=waiting)

    views = [view(message) for message in messages]
    if group:
        views[-1] = replace(views[-1], alternatives=[view(message) for message in group])
    return views


def _reload_numbers(conversation: Conversation, answers: Sequence[Message]) -> None:
    """Reload the citation numbers if an answer cites a number that the conversation's row does not have.

    Documents get their numbers while an answer is written, so a row that was read earlier may lack some. A number never
    changes.
    """
    texts = (part["text"] for answer in answers for part in answer.parts if part["type"] == "text")
    if any(not cited_numbers(text) <= set(conversation.documents.values()) for text in texts):
        conversation.refresh_from_db(fields=["documents"])


def has_live_answer(views: Sequence[MessageView]) -> bool:
    """Return whether the page shows an answer that is still being written.

    The answers' rows decide, since the conversation's row may have been read earlier.
    """
    return any(each.row.status == Message.Status.PENDING for view in views for each in (view, *view.alternatives))


def page_at(conversation: Conversation, message: Message) -> MessagesPage:
    """Return the page around a message, which may be anywhere in the conversation's tree.

    The conversation's leaf does not move: a message on another branch is only shown, with a button to continue there.
    If a search hit silently moved the leaf, the next question would continue the wrong branch.
    """
    leaf = conversation.leaf
    path = ids_down_to(leaf.pk, message.depth) if leaf else []
    other = message.pk not in path
    if leaf and other and message.parent_id == leaf.parent_id:
        other = message.pk not in {each.pk for each in answers_side_by_side(leaf)}
    if not other and len(path) <= PAGE // 2:
        newest = branch_page(conversation, newest=PAGE)
        if any(each.row.pk == message.pk for view in newest.messages for each in (view, *view.alternatives)):
            return newest
    if other:
        path = ids_down_to(newest_leaf(message.pk) or message.pk, message.depth)
    end = path[max(0, len(path) - 1 - MESSAGES_BELOW)]
    rows = branch(end, newest=PAGE, leaf_depth=message.depth + min(MESSAGES_BELOW, len(path) - 1))
    views = _around(message, rows, conversation)
    return MessagesPage(views, views[0].row.pk if views[0].row.depth else None, Excerpt(message.pk, other))


def _around(message: Message, rows: Sequence[Message], conversation: Conversation) -> list[MessageView]:
    """Return as many views as fit on a page. The message has priority, then the rows below it, then the rows above."""
    position = next(index for index, row in enumerate(rows) if row.pk == message.pk)
    from_message = [*range(position, len(rows)), *reversed(range(position))]
    chosen = from_message[: count_fitting((count_characters(rows[each]) for each in from_message), MAX_CHARACTERS)]
    views = dict(zip(sorted(chosen), build_views([rows[each] for each in sorted(chosen)], conversation), strict=True))
    chosen = chosen[: count_fitting((views[each].size for each in chosen), MAX_HTML)]
    return [views[each] for each in sorted(chosen)]


def first_since(conversation: Conversation, day: str) -> UUID:
    """Return the first question of the branch on or after `day` (ISO 8601), in the reader's time zone.

    An empty day means the beginning of the branch. Raises `bad_day` and `nothing_since`.
    """
    rows = branch_rows(conversation.leaf_id).filter(role=Message.Role.USER)
    if day:
        try:
            start = datetime.combine(date.fromisoformat(day), time.min)
        except ValueError as error:
            raise ProductError("bad_day", "Write the day as a date such as 2026-11-21.") from error
        rows = rows.filter(created__gte=timezone.make_aware(start))
    first = rows.order_by("depth").values_list("pk", flat=True).first()
    if first is None:
        raise ProductError("nothing_since", "There are no messages on or after that day. Choose an earlier day.")
    return first


class ComposerChoices(TypedDict):
    """The choices in the composer, for its template."""

    models: list[Model]
    offered_models: list[Model]
    chosen_model: Model | None
    efforts: list[Effort]
    chosen_effort: str
    personas: QuerySet[Persona]
    chosen_persona: Persona | None
    project: Project | None
    bundled: bool


def choices(user: User, scope: ChatScope, *, all_models: bool) -> ComposerChoices:
    """Return the choices in the composer. The model used last stays chosen if it is still usable.

    Without `all_models`, only the first `MODELS_IN_PAGE` models and the chosen one are listed. The page fetches the
    others. A hidden model is listed where it is chosen already.
    """
    persona = scope.persona
    last_asked = getattr(scope.conversation, "newest_model", None)
    models = list(offered_models(user))
    chosen = next((model for model in models if model.pk == last_asked), None)
    if chosen is None and last_asked is not None:
        chosen = with_favourites(models_of(user), user).filter(pk=last_asked).first()
    if chosen is None:
        with suppress(ProductError):
            default = model_for(persona, user)
            chosen = next((model for model in models if model == default), default)
    if chosen is not None and chosen not in models:
        models = [chosen, *models]
    offered = (
        models if all_models else models[:MODELS_IN_PAGE] + [each for each in models[MODELS_IN_PAGE:] if each == chosen]
    )
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
