"""Links under which anybody may read a conversation: made, listed, ended."""

from itertools import chain
from typing import NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from accounts.models import User
from accounts.models.workspace import workspace_at
from chat.conversations.branches import CONTINUE
from chat.models import Conversation, Message, Share
from chat.models.conversation_state import idle, require_owner
from chat.models.tree import branch_rows
from chat.rendering.kept import blocks_of
from chat.rendering.references import Sources
from core.errors import ProductError
from core.requests import get_or_404, or_404

PAGE = 100  # messages
MAX_SHARES = 50  # of one conversation


def share(*, user: User, conversation: Conversation) -> Share:
    """A link to the branch on show as it is now.

    Raises what `idle` raises, `sharing_off` (403), `nothing_to_share` and `too_many_shares`.
    """
    if not workspace_at().sharing:
        sentence = "Links to conversations are switched off in this workspace. An administrator can switch them on."
        raise ProductError("sharing_off", sentence, status=403)
    with idle(user, conversation) as locked:
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


class SharedMessage(NamedTuple):
    """A message as a stranger sees it: of a question its row, of an answer its text as safe HTML too.

    No page for strangers shows more of the row than what was written, and the names of its files.
    """

    row: Message
    blocks: list[str]

    @property
    def continues(self) -> bool:
        return self.row.role == Message.Role.USER and self.row.text == CONTINUE


class SharedPage(NamedTuple):
    share: Share
    messages: list[SharedMessage]
    after: int | None


def shared_page(token: str, after: int = -1) -> SharedPage:
    """The messages below depth `after` of the branch behind the link, oldest first. Raises `NotFound`."""
    found = or_404(Share.objects.readable().filter(token=token).first(), "shared conversation")
    rows = list(branch_rows(found.leaf_id).filter(depth__gt=after).order_by("depth")[: PAGE + 1])
    more = rows[PAGE - 1].depth if len(rows) > PAGE else None
    # No sources: citations would lead to files, and what tools found is files' text too.
    blocks = blocks_of([(row, Sources()) for row in rows[:PAGE] if row.role == Message.Role.ASSISTANT])
    messages = [SharedMessage(row, list(chain.from_iterable(blocks.get(row.pk, ())))) for row in rows[:PAGE]]
    return SharedPage(found, messages, more)
