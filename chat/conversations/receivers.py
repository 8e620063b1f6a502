"""Tell people that what is shared with them has changed."""

from collections.abc import Iterable
from itertools import islice
from uuid import UUID

from accounts.models import PeopleGroup
from accounts.realtime import News, notify
from chat.models import Conversation, TeamShare
from projects.models import Membership, Project

MAX_TOLD = 200  # people per change; the pages of others show it when they are loaded next


def tell_receivers(share: TeamShare) -> None:
    """Tell the people whom the share reaches, once the transaction is committed."""
    _tell(islice(_receivers(share), MAX_TOLD))


def tell_receivers_of(conversation: Conversation) -> None:
    """Tell the people whom any share of the conversation reaches, once the transaction is committed."""
    people: dict[UUID, None] = {}
    for share in conversation.team_shares.all():
        people |= dict.fromkeys(islice(_receivers(share), MAX_TOLD - len(people)))
    _tell(people)


def _tell(people: Iterable[UUID]) -> None:
    for person in people:
        notify(person, News.SHARED)


def _receivers(share: TeamShare) -> Iterable[UUID]:
    if share.user_id is not None:
        return [share.user_id]
    if share.group_id is not None:
        return _members([share.group_id])
    if share.project_id is not None:
        return _people_of(share.project_id)
    return []


def _people_of(project: UUID) -> Iterable[UUID]:
    members = Membership.objects.filter(project=project)
    owners = Project.objects.filter(pk=project).values_list("owner", flat=True)
    people = members.exclude(user=None).values_list("user", flat=True)[:MAX_TOLD]
    groups = list(members.exclude(group=None).values_list("group", flat=True))
    return dict.fromkeys([*owners, *people, *_members(groups)])


def _members(groups: list[UUID]) -> Iterable[UUID]:
    rows = PeopleGroup.members.through.objects.filter(peoplegroup__in=groups)
    return rows.values_list("user", flat=True)[:MAX_TOLD]
