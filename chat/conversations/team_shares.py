"""Share conversations with people, groups and projects of the workspace.

1. The owner shares the branch on show with one recipient. The terms say whether readers may copy it, and how much of
   each answer's report they see.
2. Recipients find it under “Shared with me”. They see what a reader of a link sees (`chat.conversations.sharing`):
   texts, names of models and names of attached files. Files, results of tools, reasoning, instructions and other
   branches are not shared.
3. A recipient who may copy it gets a conversation of their own with the texts (`chat.conversations.copying`).
4. The owner can withdraw the share. A recipient can remove a share that only they received, and the owner of a project
   a share with the project. Copies stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from accounts.access.rights import require
from accounts.models import PeopleGroup, Right, Role, User
from chat.conversations.erasing import require_lasting
from chat.conversations.receivers import notify_receivers
from chat.models import Attachment, Conversation, Message, TeamShare
from chat.models.tree import branch_rows
from chat.summaries.idle import lock_idle
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.requests import get_or_404, identifier
from core.sentences import Sentence
from projects.models import Project
from projects.models.roles import get_role

MAX_SHARES = 50  # shares of one conversation
MAX_SHARES_OF_PERSON = 1_000
MAX_CHOICES = 200  # groups or projects in a form
MAX_NAMED_FILES = 5  # files that the form names


@dataclass(frozen=True, slots=True)
class Recipient:
    """One of a user name, a group (its id) and a project (its id); the others are empty. Values are as written."""

    username: str = ""
    group: object = None
    project: object = None


@dataclass(frozen=True, slots=True)
class TeamTerms:
    """The terms of a share. The fields are those of `TeamShare`."""

    may_copy: bool = False
    shows_context: bool = False
    names_sources: bool = False


class SharePreview(NamedTuple):
    """Contents of a share of the displayed branch. `files`: the names of the first files, `MAX_NAMED_FILES` at most."""

    messages: int
    files: Sequence[str]
    file_count: int
    has_other_branches: bool


def preview_share(conversation: Conversation) -> SharePreview:
    """Return what readers of the branch on show would get, and the files that they would not get."""
    branch = branch_rows(conversation.leaf_id)
    messages = branch.count()
    names = Attachment.objects.filter(message__in=branch.values("pk")).order_by("name").values_list("name", flat=True)
    others = Message.objects.filter(conversation=conversation).count() > messages
    return SharePreview(messages, list(names.distinct()[:MAX_NAMED_FILES]), names.distinct().count(), others)


def groups_to_choose(user: User) -> QuerySet[PeopleGroup]:
    """Return the groups with which the user may share: groups they are in or manage."""
    return PeopleGroup.objects.visible_to(user).filter(everyone=False)[:MAX_CHOICES]


def projects_to_choose(user: User) -> QuerySet[Project]:
    """Return the projects with which the user may share: those that they may change."""
    return Project.objects.editable_by(user)[:MAX_CHOICES]


def share_conversation(*, user: User, conversation: Conversation, recipient: Recipient, terms: TeamTerms) -> TeamShare:
    """Share the current branch as it is now. A second share with a recipient replaces the branch and the terms.

    A user name that does not exist is stored like any other.

    Raises the errors of `lock_idle`, `right_missing` (403), `temporary_conversation` (409), `nothing_to_share`,
    `one_recipient`, `bad_username`, `own_name`, `too_many_shares`, and `NotFound` for a group or a project that the
    user cannot choose.
    """
    require(user, Right.SHARE_INSIDE)
    require_lasting(conversation)
    with lock_idle(user, conversation) as locked:
        if locked.leaf_id is None:
            raise ProductError("nothing_to_share", "There is no message to share yet. Ask something first.")
        row = _find_or_build_share(user, locked, recipient)
        new = row._state.adding
        if new:
            _check_limits(user, locked)
        row.leaf_id = locked.leaf_id
        row.title = locked.title
        row.may_copy = terms.may_copy
        row.shows_context = terms.shows_context
        row.names_sources = terms.shows_context and terms.names_sources
        row.updated = timezone.now()
        row.save()
        _record(user, "team_share.made" if new else "team_share.changed", row)
        notify_receivers(row)
        return row


def _find_or_build_share(user: User, conversation: Conversation, recipient: Recipient) -> TeamShare:
    """Return the share with this recipient, stored or new."""
    if [bool(recipient.username.strip()), bool(recipient.group), bool(recipient.project)].count(True) != 1:
        raise ProductError("one_recipient", "Enter one person, or choose one group or one project.")
    rows = TeamShare.objects.filter(conversation=conversation)
    if recipient.group:
        pk = identifier(recipient.group, "group")
        groups = PeopleGroup.objects.visible_to(user).filter(everyone=False)
        group = get_or_404(groups, pk, "group")
        return rows.filter(group=group).first() or TeamShare(conversation=conversation, group=group)
    if recipient.project:
        project = get_or_404(Project.objects.editable_by(user), recipient.project, "project")
        return rows.filter(project=project).first() or TeamShare(conversation=conversation, project=project)
    return _find_or_build_user_share(user, conversation, recipient.username.strip())


def _find_or_build_user_share(user: User, conversation: Conversation, name: str) -> TeamShare:
    if len(name) > TeamShare.MAX_USERNAME or "\x00" in name:
        sentence = Sentence(
            "Enter one user name, with 1 to {max_username} characters, or choose a group.",
            max_username=TeamShare.MAX_USERNAME,
        )
        raise ProductError("bad_username", sentence)
    person = User.objects.filter(username=name).first()
    if person is not None and person.pk == user.pk:
        raise ProductError("own_name", "This is your own name. Enter another person.")
    rows = TeamShare.objects.filter(conversation=conversation)
    stored = rows.filter(Q(username=name) | Q(user=person) if person is not None else Q(username=name)).first()
    row = stored or TeamShare(conversation=conversation, username=name)
    row.user = person
    return row


def _check_limits(user: User, conversation: Conversation) -> None:
    """Raise `too_many_shares` if there are too many already.

    Two shares that are made at the same moment may both pass. The limits need not be exact.
    """
    if TeamShare.objects.filter(conversation=conversation).count() >= MAX_SHARES:
        sentence = Sentence(
            "A conversation is shared with at most {most} people, groups and projects. Share it with a group instead.",
            most=MAX_SHARES,
        )
        raise ProductError("too_many_shares", sentence)
    if TeamShare.objects.filter(conversation__owner=user).count() >= MAX_SHARES_OF_PERSON:
        sentence = Sentence("You have {most} shares, which is the maximum. End one first.", most=MAX_SHARES_OF_PERSON)
        raise ProductError("too_many_shares", sentence)


def _record(user: User, action: str, row: TeamShare) -> None:
    recipient = {"person": row.user_id, "group": row.group_id, "project": row.project_id}
    changes: dict[str, object] = {name: str(pk) for name, pk in recipient.items() if pk is not None}
    changes |= {"conversation": str(row.conversation_id), "may_copy": row.may_copy, "shows_context": row.shows_context}
    record(user=user, action=action, row=row, changes=changes)


@transaction.atomic
def end_team_share(*, user: User, share: TeamShare) -> None:
    """Withdraw a share, or remove one that the user has received (`may_end`). Raises `NotFound`."""
    if not may_end(user, share):
        raise NotFound("shared conversation")
    _record(user, "team_share.ended", share)
    notify_receivers(share)
    share.delete()


def may_end(user: User, share: TeamShare) -> bool:
    """Return whether the user owns the conversation, is the only recipient, or owns the project that received it."""
    if user.pk in (share.conversation.owner_id, share.user_id):
        return True
    return share.project is not None and get_role(user, share.project) == Role.OWNER


def list_shares(user: User) -> QuerySet[TeamShare]:
    """Return the shares of the user's conversations, newest first."""
    return TeamShare.objects.visible_to(user).select_related("conversation", "leaf", "group", "project")


def list_received(user: User) -> QuerySet[TeamShare]:
    """Return the shares that the user has received, newest first. `owner_name`: the name of the person who shares."""
    rows = TeamShare.objects.received_by(user).annotate(owner_name=F("conversation__owner__username"))
    return rows.select_related("conversation", "leaf", "group", "project")


def get_received_share(user: User, pk: UUID) -> TeamShare:
    """Return a share that the user can read. Raises `NotFound`."""
    return get_or_404(list_received(user), pk, "shared conversation")


def get_own_or_received_share(user: User, pk: UUID) -> TeamShare:
    """Return a share that the user has made or can read. Raises `NotFound`."""
    return list_shares(user).filter(pk=pk).first() or get_received_share(user, pk)
