"""Create, change, delete and restore conversations, one or several at once, for pages and API.

A deleted conversation is hidden at once and erased a day later. A temporary one is erased at once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import models, transaction
from django.db.models import Count, QuerySet
from django.utils import timezone

from accounts.access.holds import is_held, require_rewritable
from accounts.access.rights import models_of
from accounts.models import User
from accounts.realtime import News, notify
from chat.conversations.erasing import erase, require_lasting
from chat.conversations.receivers import notify_all_receivers
from chat.models import Conversation, Message, Tag, Turn
from chat.models.conversation_state import list_changed, require_owner
from chat.turns.services import stop_turn
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.requests import get_or_404, identifier
from core.sentences import Sentence
from llm.models import Model
from personas.models import Persona
from projects.models import Project

Row = TypeVar("Row", bound=models.Model)
MAX_TITLE = 200
# Fields that matter only in lists of conversations.
LIST_FIELDS = ("title", "project", "archived", "pinned", "tags")
PLAIN_FIELDS = (
    *("title", "persona", "project", "effort", "archived"),
    *("tasks_in_prompts", "memory_in_prompts", "findable"),
)
MAX_PINNED = 30  # conversations per person
MAX_CHOSEN = 500  # conversations that are changed at once


def visible_model(user: User, pk: object) -> Model | None:
    """Return the model, None without an id. Raises `NotFound` if it is unknown, disabled or not for this user."""
    return get_or_404(models_of(user), pk, "model") if pk else None


def visible_persona(user: User, pk: object) -> Persona | None:
    """Return the persona, None without an id. Raises `NotFound` if this user may not use it."""
    rows = Persona.objects.visible_to(user).select_related("budget_profile", "model__provider")
    return get_or_404(rows, pk, "persona") if pk else None


def create_conversation(
    *,
    user: User,
    title: str = "",
    persona: Persona | None = None,
    project: Project | None = None,
    temporary: bool = False,
) -> Conversation:
    """Create a conversation. A temporary one is never listed, and is erased when it is closed or a day old."""
    title = title.strip()[:MAX_TITLE]
    conversation = Conversation.objects.create(
        owner=user,
        title=title,
        titled=bool(title) or temporary,  # only lists need titles, and no list has temporary ones
        persona=persona,
        project=project,
        origin=Conversation.Origin.TEMPORARY if temporary else Conversation.Origin.WORKSPACE,
    )
    list_changed(conversation)
    return conversation


def update_conversation(*, user: User, conversation: Conversation, fields: Mapping[str, Any]) -> Conversation:
    """Change fields of `PLAIN_FIELDS`, `pinned` (a boolean) or `tags` (the names of all its tags).

    Raises `empty_title`, `too_many_pinned`, `bad_tag` and `too_many_tags`, `temporary_conversation` if the conversation
    is temporary and a field of `LIST_FIELDS` changes, and `legal_hold` (409) if a title would be lost.
    """
    require_owner(user, conversation)
    if not fields.keys().isdisjoint(LIST_FIELDS):
        require_lasting(conversation)
    changes = {name: fields[name] for name in PLAIN_FIELDS if name in fields}
    if "title" in changes:
        changes["title"] = changes["title"].strip()[:MAX_TITLE]
        if not changes["title"]:
            raise ProductError("empty_title", "Enter a title for the conversation.")
        require_rewritable(conversation, conversation.title, changes["title"])
        changes["titled"] = True
    with transaction.atomic():
        if "pinned" in fields and fields["pinned"] != bool(conversation.pinned):
            changes["pinned"] = _checked_pin_time(user, [conversation]) if fields["pinned"] else None
        if "tags" in fields:
            conversation.tags.set(_get_or_create_tags(user, fields["tags"]))
            _check_tag_count(conversation.tags.count())
            _delete_unused_tags(user)
        for name, value in changes.items():
            setattr(conversation, name, value)
        conversation.save(update_fields=list(changes))
    list_changed(conversation)
    return conversation


def chosen_conversations(user: User, ids: Iterable[object]) -> list[Conversation]:
    """Return several of the user's conversations. Raises `none_chosen`, `too_many_chosen` and `not_found`."""
    pks = {identifier(each, "conversation") for each in ids}
    if not pks:
        raise ProductError("none_chosen", "Choose at least one conversation.")
    if len(pks) > MAX_CHOSEN:
        raise ProductError(
            "too_many_chosen",
            Sentence("Choose at most {most_chosen} conversations.", most_chosen=MAX_CHOSEN),
        )
    rows = list(Conversation.objects.listed_for(user).filter(pk__in=pks))
    if len(rows) != len(pks):
        raise NotFound("conversation")
    return rows


@transaction.atomic
def change_conversations(*, user: User, conversations: Sequence[Conversation], fields: Mapping[str, Any]) -> None:
    """Change several conversations, all of them or none.

    `fields` may have `archived`, `project` and `pinned` as in `update_conversation`, and `tag` and `untag`: names of
    tags that all of them get or lose. Raises `too_many_pinned`, `bad_tag`, `too_many_tags`, and `NotFound` for another
    user's conversation.
    """
    for conversation in conversations:
        require_owner(user, conversation)
    rows = Conversation.objects.filter(pk__in=[each.pk for each in conversations])
    changes = {name: fields[name] for name in ("project", "archived") if name in fields}
    if "pinned" in fields:
        changes["pinned"] = _checked_pin_time(user, conversations) if fields["pinned"] else None
    if changes:
        rows.update(**changes)
    link = Conversation.tags.through
    for tag in _get_or_create_tags(user, fields.get("tag", ())):
        link.objects.bulk_create(
            [link(conversation_id=each.pk, tag_id=tag.pk) for each in conversations], ignore_conflicts=True
        )
    if "tag" in fields:
        counts = link.objects.filter(conversation__in=conversations).values_list("conversation")
        _check_tag_count(max((number for _pk, number in counts.annotate(number=Count("pk"))), default=0))
    if "untag" in fields:
        removed = [name.casefold() for name in map(_tag_name, fields["untag"])]
        tags = [tag.pk for tag in Tag.objects.visible_to(user) if tag.name.casefold() in removed]
        link.objects.filter(conversation__in=conversations, tag__in=tags).delete()
        _delete_unused_tags(user)
    notify(user.pk, News.CONVERSATIONS)


@transaction.atomic
def delete_conversations(*, user: User, conversations: Sequence[Conversation]) -> None:
    """Delete several conversations, all of them or none, as `delete_conversation` does."""
    for conversation in conversations:
        delete_conversation(user=user, conversation=conversation)


@transaction.atomic
def restore_conversations(*, user: User, ids: Collection[object]) -> int:
    """Restore the deleted conversations among these that can be restored. Returns their number."""
    pks = [identifier(pk, "conversation") for pk in ids]
    restorable = list(Conversation.objects.restorable_by(user).filter(pk__in=pks).only("pk"))
    for conversation in restorable:
        record(user=user, action="conversation.restored", row=conversation)
        notify_all_receivers(conversation)
    restored = Conversation.objects.restorable_by(user).filter(pk__in=[each.pk for each in restorable])
    number = restored.update(deleted=None)
    notify(user.pk, News.CONVERSATIONS)
    return number


def _checked_pin_time(user: User, to_pin: Sequence[Conversation]) -> datetime:
    others = Conversation.objects.listed_for(user).exclude(pinned=None).exclude(pk__in=[each.pk for each in to_pin])
    if others.count() + len(to_pin) > MAX_PINNED:
        raise ProductError(
            "too_many_pinned",
            Sentence("You can pin at most {most_pinned} conversations. Unpin one first.", most_pinned=MAX_PINNED),
        )
    return timezone.now()


def _tag_name(typed_name: str) -> str:
    name = " ".join(typed_name.split()).removeprefix("#").strip()
    if not name or len(name) > Tag.MAX_NAME or "," in name:
        raise ProductError(
            "bad_tag",
            Sentence("A tag has one or a few words, at most {max_name} characters, no commas.", max_name=Tag.MAX_NAME),
        )
    return name


def _get_or_create_tags(user: User, names: Iterable[str]) -> list[Tag]:
    """Return the tags with these names, and create missing ones. Names that differ only in case are one tag."""
    by_key = {name.casefold(): name for name in map(_tag_name, names)}
    existing = {tag.name.casefold(): tag for tag in Tag.objects.visible_to(user)} if by_key else {}
    new = [Tag(owner=user, name=name) for key, name in by_key.items() if key not in existing]
    if len(existing) + len(new) > Tag.MAX_COUNT and new:
        raise ProductError(
            "too_many_tags",
            Sentence("You can have at most {most} tags. Use an existing tag, or remove one.", most=Tag.MAX_COUNT),
        )
    Tag.objects.bulk_create(new, ignore_conflicts=True)
    if new:
        existing = {tag.name.casefold(): tag for tag in Tag.objects.visible_to(user)}
    return [existing[key] for key in by_key if key in existing]


def _check_tag_count(number: int) -> None:
    if number > Tag.MAX_OF_ONE:
        raise ProductError(
            "too_many_tags",
            Sentence(
                "A conversation can have at most {most_of_one} tags. Remove one first.", most_of_one=Tag.MAX_OF_ONE
            ),
        )


def _delete_unused_tags(user: User) -> None:
    Tag.objects.visible_to(user).filter(conversations=None).delete()


def delete_conversation(*, user: User, conversation: Conversation) -> None:
    """Stop the answers of a conversation, then hide it. `restore_conversation` undoes the deletion.

    A temporary one is erased, at once or when its answer has stopped. A conversation under a legal hold is hidden, but
    not erased.
    """
    require_owner(user, conversation)
    for turn in Turn.objects.live().filter(conversation=conversation).select_related("conversation"):
        stop_turn(user=user, turn=turn)
    with transaction.atomic():
        conversation.deleted = timezone.now()
        conversation.save(update_fields=["deleted"])
        record(user=user, action="conversation.deleted", row=conversation)
        notify_all_receivers(conversation)
        answering = Turn.objects.live().filter(conversation=conversation).exists()
        if conversation.temporary and not answering and not is_held(conversation):
            erase(conversation)
        list_changed(conversation)


@transaction.atomic
def restore_conversation(*, user: User, pk: object) -> Conversation:
    """Restore a deleted conversation. Raises `not_found` if it was not deleted within `RESTORABLE_FOR`."""
    rows = Conversation.objects.restorable_by(user).filter(pk=identifier(pk, "conversation"))
    if not rows.update(deleted=None):
        raise NotFound("deleted conversation")
    restored = Conversation.objects.visible_to(user).get(pk=identifier(pk, "conversation"))
    record(user=user, action="conversation.restored", row=restored)
    notify_all_receivers(restored)
    list_changed(restored)
    return restored


def deleted_conversation(user: User, pk: str | None) -> Conversation | None:
    """Return the deleted conversation if it can be restored, else None."""
    return _find_by_id(Conversation.objects.restorable_by(user), pk)


def deleted_message(user: User, pk: str | None) -> Message | None:
    """Return the deleted message if it can be restored, else None."""
    return _find_by_id(Message.with_deleted.restorable_by(user), pk)


def _find_by_id(rows: QuerySet[Row], pk: str | None) -> Row | None:
    """Return the row with this id, else None. `pk` comes from a URL, so it may be any text."""
    try:
        return rows.filter(pk=UUID(pk or "")).first()
    except ValueError:
        return None
