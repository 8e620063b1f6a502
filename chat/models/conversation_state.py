"""The state of a conversation: look-ups, its scope, its lock, its status, and how it settles when something ends.

Code that begins or ends a turn, a summary or a run locks the conversation first, with the functions in this module.
`chat.summaries.idle` refuses to begin work while other work is under way.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import BooleanField, Count, Exists, ExpressionWrapper, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts.models import User
from accounts.realtime import News, notify
from chat.models.conversation import Conversation, Message, NextMessage, Turn
from chat.models.summary import SummaryJob
from chat.models.tree import with_rows
from core.errors import NotFound, ProductError
from core.requests import get_or_404
from core.sentences import Sentence
from personas.models import Persona
from projects.models import Project
from projects.planner.models import Run, Task
from workspace.models import WorkspaceVersion

PASSING_REFUSALS = ("already_answering", "summarising", "too_many_answers")  # refusals that pass by themselves


@dataclass(frozen=True, slots=True)
class ChatScope:
    """The conversation of a question, if it exists already, and the project and persona that apply to it."""

    conversation: Conversation | None = None
    project: Project | None = None
    persona: Persona | None = None


def scope_of(conversation: Conversation) -> ChatScope:
    """Return the project and the persona that apply in the conversation.

    A project or persona that is no longer shared with the owner does not apply. A project's persona applies for all
    members.
    """
    project = conversation.project
    persona = conversation.persona
    if project is not None and not Project.objects.visible_to(conversation.owner).filter(pk=project.pk).exists():
        project = None
    is_project_persona = persona is not None and project is not None and project.persona_id == persona.pk
    if persona is not None and not is_project_persona and _closed(persona, conversation.owner):
        persona = None
    return ChatScope(conversation, project, persona or (project.persona if project else None))


def _is_borrowed(persona: Persona, user: User) -> bool:
    """Return whether the persona is private and belongs to another user."""
    return persona.visibility == Persona.Visibility.PRIVATE and persona.owner_id != user.pk


def _closed(persona: Persona, user: User) -> bool:
    """Return whether the user may not use the persona. Only a borrowed persona needs a query."""
    return _is_borrowed(persona, user) and not Persona.objects.visible_to(user).filter(pk=persona.pk).exists()


def require_persona(conversation: Conversation, status: "ConversationStatus") -> None:
    """Raise `persona_lost` (403) if the conversation's own persona is no longer shared with its owner."""
    if status.borrows and conversation.persona != scope_of(conversation).persona:
        raise ProductError(
            "persona_lost",
            "You no longer have access to the persona of this conversation. Choose another persona, or none, "
            "and send again. Your text is kept.",
            status=403,
        )


def visible_conversation(user: User, pk: object) -> Conversation:
    """Return a conversation of the user. Raises `NotFound`.

    The row is annotated with `waits` (whether a next message waits) and `newest_model` (id of the last model asked).
    """
    related = ("persona__budget_profile", "project__persona__budget_profile", "owner", "leaf")
    rows = Conversation.objects.visible_to(user).select_related(*related).defer("leaf__parts", "leaf__tokens")
    # In the same query, since the number of queries per page is limited.
    waits = Exists(NextMessage.objects.filter(conversation=OuterRef("pk")))
    newest_model = Coalesce("leaf__turn__model", "leaf__model")
    return get_or_404(rows.annotate(waits=waits, newest_model=newest_model), pk, "conversation")


def visible_message(user: User, pk: object) -> Message:
    related = ("conversation__persona", "conversation__project__persona", "parent")
    return get_or_404(with_rows(Message.objects.visible_to(user)).select_related(*related), pk, "message")


def visible_turn(user: User, pk: object) -> Turn:
    return get_or_404(Turn.objects.visible_to(user).select_related("conversation", "answer"), pk, "turn")


# The conversation first, then its owner's line: code that takes both locks takes them in this order. A subquery with
# FOR UPDATE is never merged into the outer query, so the row is locked before the condition takes the line's lock.
_LOCK = """
WITH locked AS (SELECT * FROM chat_conversation WHERE id = %s AND deleted IS NULL FOR UPDATE)
SELECT * FROM locked WHERE pg_advisory_xact_lock(hashtextextended('turns:' || owner_id, 0)) IS NOT NULL
"""


def lock(conversation: Conversation) -> Conversation:
    """Return the row, locked until the transaction ends, together with its owner's line.

    The sends of one person run one after the other, in all conversations. Statements after this one see all that the
    earlier sends have done. Raises `NotFound` for a conversation that was deleted meanwhile.
    """
    for locked in Conversation.objects.raw(_LOCK, [conversation.pk]):
        return locked
    raise NotFound("conversation")


def join_line(owner_id: object) -> None:
    """Lock a person's line as `lock` does, for a conversation that is not stored yet."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('turns:' || %s::text, 0))", [str(owner_id)])


class ConversationStatus(NamedTuple):
    """Facts that decide whether something may begin in a conversation.

    `answering`, `summarising`, `running`: whether an answer, a summary or a run is under way.
    `live`: the number of its owner's answers that are being written or wait, in all conversations.
    `leaf_depth`: the depth of its leaf. `version`: the version of the workspace (`workspace.models.version`).
    `borrows`: its persona is private and belongs to another user.
    `sent_before`: tokens in its newest prompt that has a count; the next prompt has the same messages.
    """

    answering: bool
    summarising: bool
    running: bool
    live: int
    leaf_depth: int | None
    version: UUID | None
    borrows: bool
    sent_before: int


_VERSION = Subquery(WorkspaceVersion.objects.values("version"))


@cache
def _statuses() -> QuerySet[Conversation, tuple[Any, ...]]:
    """Return the fields of `ConversationStatus`, in their order, for every conversation.

    The query set is built once, since building it takes longer than the query.
    """
    here = OuterRef("pk")
    owner = OuterRef("owner")
    borrowed = Persona.objects.filter(pk=OuterRef("persona"), visibility=Persona.Visibility.PRIVATE)
    counted = Turn.objects.filter(conversation=here, context_used__isnull=False).order_by("-id")
    return Conversation.objects.values_list(
        Exists(Turn.objects.live().filter(conversation=here)),
        Exists(SummaryJob.objects.live().filter(conversation=here)),
        Exists(Run.objects.filter(conversation=here, status__in=Run.UNFINISHED)),
        _live_turns_of(owner),
        Subquery(Message.with_deleted.filter(pk=OuterRef("leaf")).values("depth")),
        _VERSION,
        Exists(borrowed.exclude(owner=owner)),
        Coalesce(Subquery(counted.values("context_used")[:1]), 0),
    )


def _live_turns_of(owner: OuterRef) -> Coalesce:
    turns = Turn.objects.live().filter(conversation__owner=owner).order_by().values("conversation__owner")
    return Coalesce(Subquery(turns.annotate(count=Count("pk")).values("count")), 0)


def status_of(conversation: Conversation) -> ConversationStatus:
    """Read the status of a conversation in one query.

    Call it after `lock`, in a statement of its own: the snapshot of the locking statement is older than the lock.
    """
    return ConversationStatus(*_statuses().get(pk=conversation.pk))


def status_of_new(conversation: Conversation) -> ConversationStatus:
    """Read the status of a conversation that is not stored yet in one query, after `join_line`."""
    owner = User.objects.filter(pk=conversation.owner_id)
    live, version = owner.values_list(_live_turns_of(OuterRef("pk")), _VERSION).get()
    return ConversationStatus(
        answering=False,
        summarising=False,
        running=False,
        live=live,
        leaf_depth=None,
        version=version,
        borrows=conversation.persona is not None and _is_borrowed(conversation.persona, conversation.owner),
        sent_before=0,
    )


def require_room(status: ConversationStatus, turns: int, most: int | None) -> None:
    """Raise `too_many_answers` (429) if `turns` more turns exceed the limit of one person.

    `most` of a person's turns may be written at once; None means no limit. `settings.WAITING_TURNS` more may wait in
    the person's line (`chat.turns.line`). A run's turns do not wait in the line. They leave one place free for the
    person's own messages. The run goes on when another answer is complete.

    `status` must be read after `lock`, in the transaction that begins the turns.
    """
    live = status.live
    if most is None:
        return
    if status.running and live + turns > max(turns, most - 1):
        raise _too_many(
            Sentence(
                "{live} of your answers are being written; {most} at a time is the maximum. Wait for one, or "
                "stop one. Your text is kept.",
                live=live,
                most=most,
            )
        )
    if live + turns > max(turns, most) + settings.WAITING_TURNS:
        raise _too_many(
            Sentence(
                "{live} of your answers are being written or wait in line, and the line is full. Wait for "
                "one, or stop one. Your text is kept.",
                live=live,
            )
        )


def _too_many(detail: Sentence) -> ProductError:
    return ProductError("too_many_answers", detail, status=429, retry_after=5)


def busy() -> ProductError:
    return ProductError(
        "already_answering",
        "An answer is still being written here. Wait for it or stop it, then send again. Your text is kept.",
        status=409,
    )


def require_owner(user: User, conversation: Conversation) -> None:
    if conversation.owner_id != user.pk:
        raise NotFound("conversation")


def settle(conversation_id: UUID, due: SummaryJob | None = None) -> str:
    """Store and return the conversation's state, in the transaction that ends a turn or a summary job.

    While an answer is live, the state stays “answering”. After the last answer, the summary `due` is queued in the same
    transaction, so that no question comes between. The row is locked first: if two turns end at once, the second must
    see that the first has ended.
    """
    locked = Conversation.objects.select_for_update().filter(pk=conversation_id).first()
    if locked is None:
        return Conversation.State.IDLE
    status = status_of(locked)
    if status.answering:
        return locked.state
    if due is not None:
        SummaryJob.objects.bulk_create([due], ignore_conflicts=True)
    # The due job is live now, or it conflicts with a live job.
    summarising = status.summarising or due is not None
    locked.state = Conversation.State.SUMMARISING if summarising else Conversation.State.IDLE
    locked.updated = timezone.now()
    locked.save(update_fields=["state", "updated"])
    list_changed(locked)
    return locked.state


def state_of(conversation_id: UUID) -> str:
    states = Conversation.objects.filter(pk=conversation_id).values_list("state", flat=True)
    return states.first() or Conversation.State.IDLE


class FollowUps(NamedTuple):
    """Work that may be due in a conversation once an answer or a job has ended. A hint: each starter checks again.

    `message`: a message waits. `run`: it has a run. `summary`: a summary is queued. `draft`: a checklist of its owner
    must be drafted. `untitled`: it has no title yet. `line`: its owner has turns that no worker has claimed.
    `interrupted`: the visible answer was interrupted.
    """

    message: bool
    run: bool
    summary: bool
    draft: bool
    untitled: bool
    line: bool
    interrupted: bool


NO_FOLLOW_UPS = FollowUps(*[False] * 7)


@cache
def _follow_ups() -> QuerySet[Conversation, tuple[bool, ...]]:
    """Return the fields of `FollowUps`, in their order, for every conversation. It is built once, too."""
    here = OuterRef("pk")
    owner = OuterRef("owner")
    return Conversation.objects.values_list(
        Exists(NextMessage.objects.filter(conversation=here)),
        Exists(Run.objects.filter(conversation=here)),
        Exists(SummaryJob.objects.filter(conversation=here, status=SummaryJob.Status.QUEUED)),
        Exists(Task.objects.filter(owner=owner, draft=Task.Draft.DUE)),
        ExpressionWrapper(Q(titled=False), output_field=BooleanField()),
        Exists(_queued().filter(conversation__owner=owner)),
        Exists(Turn.objects.filter(answer=OuterRef("leaf"), status=Turn.Status.INTERRUPTED)),
    )


def follow_ups(conversation_id: UUID) -> FollowUps:
    """Read in one query which work may be due. A deleted conversation has none."""
    row = _follow_ups().filter(pk=conversation_id).first()
    return FollowUps(*row) if row is not None else NO_FOLLOW_UPS


def place_in_line(turn_id: UUID) -> int | None:
    """Return the place of a turn among its owner's unclaimed turns, counted from 1; None if it is not one of them."""
    owner = _queued().filter(pk=turn_id).values_list("conversation__owner", flat=True).first()
    return _queued().filter(conversation__owner=owner, pk__lte=turn_id).count() if owner is not None else None


def _queued() -> QuerySet[Turn]:
    return Turn.objects.filter(status=Turn.Status.QUEUED)


def list_changed(conversation: Conversation) -> None:
    """Tell the owner's pages on commit that their list of conversations has changed.

    Does nothing for a conversation that no list shows (`Conversation.objects.listed_for`).
    """
    if conversation.origin == Conversation.Origin.WORKSPACE:
        notify(conversation.owner_id, News.CONVERSATIONS)
