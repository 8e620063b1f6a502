"""A conversation to those who act in it: look-ups, its scope, its lock, and the state that it settles in.

Everybody who begins or ends a turn, a summary or a run locks the conversation first and goes through here. Whether
nothing goes on in it says `chat.summaries.idle`.
"""

from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.db.models.functions import Coalesce

from accounts.models import User
from accounts.realtime import News, tell
from chat.models import Conversation, Message, NextMessage, SummaryJob, Turn, queries
from chat.models.queries import Standing
from chat.models.tree import with_rows
from core.errors import NotFound, ProductError
from core.requests import get_or_404
from core.sentences import Sentence
from personas.models import Persona
from projects.models import Project

NOT_NOW = ("already_answering", "summarising", "too_many_answers")  # refusals that pass by themselves


@dataclass(frozen=True, slots=True)
class ChatScope:
    """Where a question is asked: its conversation, if there is one yet, and the project and persona that hold there."""

    conversation: Conversation | None = None
    project: Project | None = None
    persona: Persona | None = None


def scope_of(conversation: Conversation) -> ChatScope:
    """A project or a persona that is not shared with the person any more counts no more. The persona of a project
    answers whoever is in the project."""
    project, persona = conversation.project, conversation.persona
    if project is not None and not Project.objects.visible_to(conversation.owner).filter(pk=project.pk).exists():
        project = None
    of_project = persona is not None and project is not None and project.persona_id == persona.pk
    if persona is not None and not of_project and _closed(persona, conversation.owner):
        persona = None
    return ChatScope(conversation, project, persona or (project.persona if project else None))


def _closed(persona: Persona, user: User) -> bool:
    """A query only where it is shared with some people alone."""
    borrowed = persona.visibility == Persona.Visibility.PRIVATE and persona.owner_id != user.pk
    return borrowed and not Persona.objects.visible_to(user).filter(pk=persona.pk).exists()


def require_persona(conversation: Conversation, found: Standing) -> None:
    """Raises `persona_lost` (403) where the conversation's own persona is not shared with its person any more."""
    if found.borrows and conversation.persona != scope_of(conversation).persona:
        raise ProductError(
            "persona_lost",
            "The persona of this conversation is not shared with you any more. Choose another one, or none, and send "
            "again; your text is kept.",
            status=403,
        )


def visible_conversation(user: User, pk: object) -> Conversation:
    """With `waits`: whether a next message does; and `asked`: the id of the model that was asked last."""
    related = ("persona__budget_profile", "project__persona__budget_profile", "owner", "leaf")
    rows = Conversation.objects.visible_to(user).select_related(*related).defer("leaf__parts", "leaf__tokens")
    # Asked along, since it is seldom so, and a page has few queries to spend.
    waits = Exists(NextMessage.objects.filter(conversation=OuterRef("pk")))
    asked = Coalesce("leaf__turn__model", "leaf__model")
    return get_or_404(rows.annotate(waits=waits, asked=asked), pk, "conversation")


def visible_message(user: User, pk: object) -> Message:
    related = ("conversation__persona", "conversation__project__persona", "parent")
    return get_or_404(with_rows(Message.objects.visible_to(user)).select_related(*related), pk, "message")


def visible_turn(user: User, pk: object) -> Turn:
    return get_or_404(Turn.objects.visible_to(user).select_related("conversation", "answer"), pk, "turn")


def lock(conversation: Conversation) -> Conversation:
    """The row, locked until the transaction ends: two sends at once come one after the other, whatever the conversation
    of their person."""
    locked = queries.lock(conversation.pk)
    if locked is None:
        raise NotFound("conversation")
    return locked


def require_room(found: Standing, wanted: int, most: int | None) -> None:
    """Raises `too_many_answers` (429) where so many more live turns are too many for one person: of `most` at once,
    None is any number, and `settings.WAITING_TURNS` more, which wait in their person's own line (`chat.turns.line`).

    Runs do not wait there, and leave one for what their person writes meanwhile; they go on when another answer is
    complete. `found` after `lock`, in the transaction that begins the turns: sends of one person at once come one after
    the other.
    """
    live = found.live
    if most is None:
        return
    if found.running and live + wanted > max(wanted, most - 1):
        raise _too_many(
            Sentence(
                "{live} answers of yours are being written, and {most} at a time are the most. Wait for one, or stop "
                "one; your text is kept.",
                live=live,
                most=most,
            )
        )
    if live + wanted > max(wanted, most) + settings.WAITING_TURNS:
        raise _too_many(
            Sentence(
                "{live} answers of yours are being written or wait, and there is no room for more. Wait for one, or "
                "stop one; your text is kept.",
                live=live,
            )
        )


def _too_many(detail: Sentence) -> ProductError:
    return ProductError("too_many_answers", detail, status=429, retry_after=5)


def busy() -> ProductError:
    return ProductError(
        "already_answering",
        "An answer is still being written here. Wait for it or stop it, then send again; your text is kept.",
        status=409,
    )


def require_owner(user: User, conversation: Conversation) -> None:
    if conversation.owner_id != user.pk:
        raise NotFound("conversation")


def settle(conversation_id: UUID, due: SummaryJob | None = None) -> str:
    """The conversation's state once a turn or a summary job has ended; inside their transaction.

    While an answer is live it stays answering. After the last one a summary that is `due` is queued: in the same
    transaction, so that no question comes between. Locked first: of two turns that end at once, the second must see
    that the first has ended.
    """
    held = Conversation.objects.select_for_update().filter(pk=conversation_id).values_list("state", flat=True).first()
    if held is None:
        return Conversation.State.IDLE
    if due is not None and not Turn.objects.live().filter(conversation=conversation_id).exists():
        SummaryJob.objects.bulk_create([due], ignore_conflicts=True)
    settled = queries.settle(conversation_id)
    if settled is None:
        return held
    list_changed(settled)
    return settled.state


def state_of(conversation_id: UUID) -> str:
    found = Conversation.objects.filter(pk=conversation_id).values_list("state", flat=True).first()
    return found or Conversation.State.IDLE


def list_changed(conversation: Conversation) -> None:
    """On commit. What no list shows, see `Conversation.objects.listed_for`, changes none."""
    if conversation.origin == Conversation.Origin.WORKSPACE:
        tell(conversation.owner_id, News.CONVERSATIONS)
