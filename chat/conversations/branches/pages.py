"""Where a conversation branches, as its pages show it, and what a deletion takes along."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from chat.models import Message
from chat.models.tree import asked_together, below, with_rows


@dataclass(frozen=True, slots=True)
class BranchView:
    """The message is number `number`, from 1, of the `count` at its place; `previous` and `next` are those beside it.

    `pick`: it stands beside other answers to the newest question, and one of them is to go on with; `picked`: this one.
    """

    number: int
    count: int
    previous: UUID | None
    next: UUID | None
    pick: bool
    picked: bool

    @property
    def switch(self) -> bool:
        return (not self.pick or self.picked) and bool(self.previous or self.next)


def branches_of(
    messages: Sequence[Message], places: dict[UUID, list[UUID]], leaf: UUID | None
) -> dict[UUID, BranchView]:
    """Messages of one conversation by id; `places` as `siblings` finds them, `leaf` is the conversation's."""
    group = _group(messages, places, leaf)
    return {message.pk: _view(message.pk, places[message.pk], group, leaf) for message in messages}


def side_by_side(answer: Message) -> list[Message]:
    """The answers that were asked for together with this one, itself included; empty when it was alone."""
    if answer.role != Message.Role.ASSISTANT:
        return []
    ids = asked_together(answer)
    if len(ids) == 1:
        return []
    rows = {message.pk: message for message in with_rows(Message.objects.filter(pk__in=ids))}
    return [rows[pk] for pk in ids]


def removal(message: Message) -> str:
    """What goes when the message is deleted, in words."""
    asked = sum(row.role == Message.Role.USER for row in below(message.pk))
    what = ngettext("%(count)d message and its answers", "%(count)d messages and their answers", asked)
    words = what % {"count": asked}
    if message.role == Message.Role.USER:
        return words
    return _("this answer, and below it %(words)s") % {"words": words} if asked else _("this answer")


def _group(messages: Sequence[Message], places: dict[UUID, list[UUID]], leaf: UUID | None) -> list[UUID]:
    """The newest answers when they stand side by side."""
    for message in messages:
        if message.role == Message.Role.ASSISTANT and leaf in places[message.pk] and len(places[message.pk]) > 1:
            group = asked_together(message)
            return group if leaf in group and len(group) > 1 else []
    return []


def _view(pk: UUID, place: list[UUID], group: list[UUID], leaf: UUID | None) -> BranchView:
    pick = pk in group
    first, last = (group[0], group[-1]) if pick else (pk, pk)
    before, after = place[: place.index(first)], place[place.index(last) + 1 :]
    return BranchView(
        number=place.index(pk) + 1,
        count=len(place),
        previous=before[-1] if before else None,
        next=after[0] if after else None,
        pick=pick,
        picked=pick and pk == leaf,
    )
