"""Notify open pages of people with whom a conversation is shared that the share has changed."""

from collections.abc import Iterable
from itertools import islice
from uuid import UUID

from accounts.models import PeopleGroup
from accounts.realtime import News, notify
from chat.models import Conversation, TeamShare
from projects.models import Membership, Project

MAX_NOTIFIED = 200  # people per change; the pages of others show the change when they are loaded again


def notify_receivers(share: TeamShare) -> None:
    """Notify the people who receive the share, once the transaction is committed."""
    _notify(islice(_receivers(share), MAX_NOTIFIED))


def notify_all_receivers(conversation: Conversation) -> None:
    """Notify the people who receive any share of the conversation, once the transaction is committed."""
    people: dict[UUID, None] = {}
    for share in conversation.team_shares.all():
        people |= dict.fromkeys(islice(_receivers(share), MAX_NOTIFIED - len(people)))
    _notify(people)


def _notify(people: Iterable[UUID]) -> None:
    for person in people:
        notify(person, News.SHARED)


def _receivers(share: TeamShare) -> Iterable[UUID]:
    if share.user_id is not None:
        return [share.user_id]
    if share.group_id is not None:
        return _members([share.group_id])
    if share.project_id is not None:
        return _project_people(share.project_id)
    return []


def _project_people(project: UUID) -> Iterable[UUID]:
    members = Membership.objects.filter(project=project)
    owners = Project.objects.filter(pk=project).values_list("owner", flat=True)
    people = members.exclude(user=None).values_list("user", flat=True)[:MAX_NOTIFIED]
    groups = list(members.exclude(group=None).values_list("group", flat=True))
    return dict.fromkeys([*owners, *people, *_members(groups)])


def _members(groups: list[UUID]) -> Iterable[UUID]:
    rows = PeopleGroup.members.through.objects.filter(peoplegroup__in=groups)
    return rows.values_list("user", flat=True)[:MAX_NOTIFIED]
