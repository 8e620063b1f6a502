"""Links under which anybody may read a conversation: made, listed, ended."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from accounts.models import User
from chat.conversations.branches import CONTINUE
from chat.models import Conversation, Message, Share
from chat.models.conversation_state import lock, require_idle, require_owner
from chat.models.tree import branch_rows
from chat.rendering.markdown import render
from chat.rendering.references import Sources
from core.errors import ProductError
from core.lookups import get_or_404, or_404

PAGE = 100  # messages
MAX_SHARES = 50  # of one conversation


@transaction.atomic
def share(*, user: User, conversation: Conversation) -> Share:
    """A link to the branch on show as it is now.

    Raises `already_answering` (409), `nothing_to_share` and `too_many_shares`.
    """
    require_owner(user, conversation)
    locked = lock(conversation)
    require_idle(locked)
    if locked.leaf_id is None:
        raise ProductError("nothing_to_share", "There is no message to share yet. Ask something first.")
    if Share.objects.filter(conversation=locked).count() >= MAX_SHARES:
        raise ProductError("too_many_shares", f"A conversation has at most {MAX_SHARES} links. End one first.")
    return Share.objects.create(conversation=locked, leaf_id=locked.leaf_id, title=locked.title)


def end_share(*, user: User, share: Share) -> None:
    """From then on the link leads nowhere."""
    require_owner(user, share.conversation)
    share.delete()


def visible_share(user: User, pk: UUID) -> Share:
    """Raises `NotFound`."""
    return get_or_404(Share.objects.visible_to(user).select_related("conversation"), pk, "link")


def shares_of(user: User) -> QuerySet[Share]:
    return Share.objects.visible_to(user).select_related("conversation", "leaf").order_by("-id")


@dataclass(frozen=True, slots=True)
class SharedMessage:
    """What a stranger may see of a message: what was written, and the names of its files."""

    number: int
    question: bool
    text: str
    blocks: list[str]
    files: list[str]
    cut: bool


@dataclass(frozen=True, slots=True)
class SharedPage:
    title: str
    shared: datetime
    messages: list[SharedMessage] = field(default_factory=list)
    after: int | None = None


def shared_page(token: str, after: int = -1) -> SharedPage:
    """The messages below depth `after` of the branch behind the link, oldest first. Raises `NotFound`."""
    found = or_404(Share.objects.readable().filter(token=token).first(), "shared conversation")
    rows = branch_rows(found.leaf_id).filter(depth__gt=after).order_by("depth")[: PAGE + 1]
    messages = list(rows)
    more = messages[PAGE - 1].depth if len(messages) > PAGE else None
    return SharedPage(found.title, found.created, [_shared(each) for each in messages[:PAGE]], more)


def _shared(message: Message) -> SharedMessage:
    question = message.role == Message.Role.USER
    text = "" if message.text == CONTINUE and question else message.text
    return SharedMessage(
        number=message.depth + 1,
        question=question,
        text=text if question else "",
        # No sources: citations would lead to files, and what tools found is files' text too.
        blocks=[] if question else list(render(text, Sources())),
        files=[attachment.name for attachment in message.attachments.all()],
        cut=message.status not in (Message.Status.DONE, Message.Status.PENDING),
    )
