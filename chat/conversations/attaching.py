"""Attach a past conversation to a message, as a file with its text.

1. `own_source` and `shared_source` return a conversation that the person may attach, with the end of its branch.
2. `attach` writes as much of it as the message may carry: the whole branch; else its summary with the messages below
   it; else the messages that match what the person has written. The first lines of the file, and its name, say which.
3. The file belongs to the person and goes with the message like any other. So plan, report, marks, search and export
   treat it as one, and it stays as it was when it was attached.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from django.core.files.base import ContentFile
from django.utils.translation import gettext, ngettext

from accounts.models import User
from chat.context.rendering import MAX_CHARACTERS
from chat.context.types import DocumentBudget
from chat.conversations.copying import require_copyable
from chat.models import Conversation, Message, TeamShare
from chat.models.conversation_state import ChatScope
from chat.models.summary import bracketed, in_force
from chat.models.tree import branch_rows, on_branches
from chat.models.words import ranked
from chat.prompts.document_budget import budget, chosen_files, document_tokens
from chat.prompts.turn_context import base_context
from chat.tools.conversation import quotation
from chat.tools.past_conversations import PastQuery, parse_past_query, weighed
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.requests import get_or_404
from core.sentences import Sentence
from files.models import File
from files.services import store
from llm import tokens
from llm.models import Model

MAX_MESSAGES = 5_000  # of a branch that is attached whole
MAX_TEXT = 4_000_000  # of the text of a file
READ_AT_ONCE = 20  # messages, since an answer may have long results of tools
CANDIDATES = 100  # messages that are weighed against what the person has written
PASSAGES = 30  # messages that are quoted at most

AttachedForm = Literal["whole", "summary", "passages"]


@dataclass(frozen=True, slots=True)
class AttachableConversation:
    """A conversation to attach, down to the message `leaf`. `share`: through which the person may read it."""

    conversation: Conversation
    leaf: UUID
    title: str
    share: TeamShare | None = None

    @property
    def author(self) -> str:
        """Return the name of the person who wrote the questions."""
        return self.conversation.owner.username


@dataclass(frozen=True, slots=True)
class Draft:
    """The message to which a conversation is attached: its text, its files, and the model that will answer."""

    scope: ChatScope
    model: Model
    text: str = ""
    files: Sequence[UUID] = ()


@dataclass(frozen=True, slots=True)
class AttachedConversation:
    """The file with the text of a conversation. It has `messages` of its `total` messages word for word."""

    file: File
    form: AttachedForm
    messages: int
    total: int


@dataclass(frozen=True, slots=True)
class _Text:
    form: AttachedForm
    text: str
    messages: int


def own_source(user: User, pk: object) -> AttachableConversation:
    """Return a conversation of the user as a source. Raises `NotFound`, also if it is temporary or has no message."""
    rows = Conversation.objects.listed_for(user).select_related("owner")
    conversation = get_or_404(rows, pk, "conversation")
    if conversation.leaf_id is None:
        raise NotFound("conversation")
    return AttachableConversation(conversation, conversation.leaf_id, conversation.title)


def shared_source(user: User, pk: object) -> AttachableConversation:
    """Return a shared conversation as a source. Raises `NotFound`, and `copy_not_allowed` (403)."""
    share = get_or_404(
        TeamShare.objects.received_by(user).select_related("conversation__owner"), pk, "shared conversation"
    )
    require_copyable(share)
    return AttachableConversation(share.conversation, share.leaf_id, share.title, share)


def attach(*, user: User, source: AttachableConversation, draft: Draft) -> AttachedConversation:
    """Store the text of the conversation as a file of the user, and return it.

    Raises `own_conversation`, `file_not_ready` if another file of the draft is still being read,
    `conversation_too_long` if not even a part of it fits, and the errors of `files.services.store`.
    """
    place = draft.scope.conversation
    if place is not None and place.pk == source.conversation.pk:
        raise ProductError("own_conversation", "This is the conversation in which you are. Attach another one.")
    allowed = budget(base_context(user=user, model=draft.model, scope=draft.scope), draft.scope)
    selected = [document_tokens(file) for file in chosen_files(user=user, ids=draft.files)]
    if None in selected:
        raise ProductError("file_not_ready", "Another file is still being read. Attach the conversation in a moment.")
    room = _Room(allowed, [size or 0 for size in selected])
    total = branch_rows(source.leaf).count()
    written = (
        _whole(user, source, room, total)
        or _summary(user, source, room, total)
        or _passages(user, source, room, total, draft.text)
    )
    title = _title(source).replace("/", "-").replace("\\", "-")  # a name may be a path
    name = f"{title} ({_form_in_words(written)}).md"
    content = ContentFile(written.text.encode(), name=name)
    file = store(user=user, name=name, content=content, with_conversation=True)
    if source.share is not None:
        record(user=user, action="team_share.copied", row=source.share, changes={"file": str(file.pk)})
    return AttachedConversation(file, written.form, written.messages, total)


@dataclass(frozen=True, slots=True)
class _Room:
    """The room of the message for the text, in tokens of the document budget."""

    allowed: DocumentBudget
    selected: Sequence[int]

    @property
    def left(self) -> int:
        return max(0, self.allowed.selectable_up_to - sum(self.selected))

    @property
    def characters(self) -> int:
        """Return the characters above which no text fits."""
        return min(MAX_TEXT, self.left * MAX_CHARACTERS)

    def takes(self, text: str) -> bool:
        return len(text) <= self.characters and self.allowed.accepts(tokens.count(text), self.selected)


def _title(source: AttachableConversation) -> str:
    return source.title or gettext("New conversation")


def _form_in_words(written: _Text) -> str:
    """Return what the file has of the conversation, for its name."""
    if written.form == "whole":
        return gettext("conversation")
    if written.form == "summary":
        return gettext("summary of a conversation")
    return ngettext("%(count)d passage of a conversation", "%(count)d passages of a conversation", written.messages) % {
        "count": written.messages
    }


def _whole(user: User, source: AttachableConversation, room: _Room, total: int) -> _Text | None:
    """Return all messages; None if they do not fit."""
    if total > MAX_MESSAGES:
        return None
    blocks = _blocks_within(user, source, branch_rows(source.leaf).order_by("depth").iterator(READ_AT_ONCE), room)
    if blocks is None:
        return None
    text = "\n\n".join([_head(user, source, f"All {total} messages, word for word."), *blocks])
    return _Text("whole", text, total) if room.takes(text) else None


def _summary(user: User, source: AttachableConversation, room: _Room, total: int) -> _Text | None:
    """Return the summary and the messages that it does not stand for; None without a summary that fits.

    Readers of a share get no summary, since it is the owner's.
    """
    summary = in_force(source.conversation.pk, source.leaf) if source.share is None else None
    if summary is None:
        return None
    rows = branch_rows(source.leaf).order_by("depth")
    aside = {*map(UUID, summary.left_aside)}
    others = (row for row in rows.iterator(READ_AT_ONCE) if row.depth > summary.last.depth or row.pk in aside)
    blocks = _blocks_within(user, source, others, room)
    if blocks is None:
        return None
    words = f"A summary of {total - len(blocks)} messages, and the other {len(blocks)} word for word."
    text = "\n\n".join([_head(user, source, words), *bracketed(summary.sections), *blocks])
    return _Text("summary", text, len(blocks)) if room.takes(text) else None


def _passages(user: User, source: AttachableConversation, room: _Room, total: int, question: str) -> _Text:
    """Return the messages that match the question, the best that fit. Raises `conversation_too_long`."""
    query = parse_past_query(question)
    rows = _matching(source, query) if query.terms else []
    chosen: list[Message] = []
    used = tokens.count(_head(user, source, _passages_head(PASSAGES, total, question)))
    for row in rows:
        size = tokens.count(_block(user, source, row, query)) + 2
        if room.allowed.accepts(used + size, room.selected):
            chosen.append(row)
            used += size
    if not chosen:
        sentence = Sentence(
            "“{title}” is too long to go along whole, and nothing in it matches your message. Write first what you "
            "want to know, then attach it again.",
            title=_title(source),
        )
        raise ProductError("conversation_too_long", sentence)
    chosen.sort(key=lambda row: row.depth)
    head = _head(user, source, _passages_head(len(chosen), total, question))
    return _Text("passages", "\n\n".join([head, *(_block(user, source, row, query) for row in chosen)]), len(chosen))


def _passages_head(count: int, total: int, question: str) -> str:
    line = " ".join(question.split())[:200]
    return (
        f"{count} of {total} messages that match “{line}”. The others are left out. […] marks where a message is cut."
    )


def _matching(source: AttachableConversation, query: PastQuery) -> list[Message]:
    """Return the messages of the branch that match best."""
    conversations = Conversation.objects.filter(pk=source.conversation.pk)
    owners = [source.conversation.owner_id]
    ids = ranked(owners=owners, conversations=conversations, terms=query.terms, limit=CANDIDATES)
    on_branch = on_branches([source.leaf], ids)
    return weighed(list(Message.objects.filter(pk__in=on_branch).defer("tokens")), query.words)[:PASSAGES]


def _blocks_within(
    user: User, source: AttachableConversation, rows: Iterable[Message], room: _Room
) -> list[str] | None:
    """Return the messages as text; None as soon as they are longer than any text that fits."""
    blocks: list[str] = []
    length = 0
    for row in rows:
        blocks.append(_block(user, source, row))
        length += len(blocks[-1])
        if length > room.characters:
            return None
    return blocks


def _block(user: User, source: AttachableConversation, row: Message, query: PastQuery | None = None) -> str:
    """Return a message below a line with its time and author. With `query`, a long one is cut around its words."""
    author = source.author if row.role == Message.Role.USER else "a model"
    text = quotation(row.text, query.phrases) if query is not None else row.text
    files = [attached.name for attached in row.attachments.all()]
    names = f"\n(Its files are not included: {', '.join(files)})" if files else ""
    return f"## {row.created.astimezone(user.zone):%Y-%m-%d %H:%M}, {author}\n{text}{names}"


def _head(user: User, source: AttachableConversation, words: str) -> str:
    """Return the first lines of the file."""
    day = f"{source.conversation.created.astimezone(user.zone):%Y-%m-%d}"
    return f"# {source.title or 'New conversation'}\nA past conversation of {source.author}, begun {day}. {words}"
