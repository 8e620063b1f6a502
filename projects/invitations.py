"""Invitations to projects. A user sees nothing of a project before they accept.

An invitation does not reveal whether a user name exists: an unknown name can be invited like any other.
"""

from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from accounts.models import Role, User
from accounts.realtime import News, notify
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.requests import get_or_404
from core.sentences import Sentence
from projects.members import check_role
from projects.models import Invitation, Membership, Project
from projects.models.invitation import MAX_USERNAME
from projects.models.roles import require_owner

LIFETIME = timedelta(days=30)
MAX_OF_PROJECT = 50  # pending invitations per project
MAX_OF_OWNER = 200  # pending invitations to all projects of one owner


@transaction.atomic
def invite(*, user: User, project: Project, username: str, role: str = Role.READER) -> Invitation:
    """Invite a user name. A second invitation of a name changes its role and restarts its time.

    Raises `bad_username`, `owner_is_member`, `already_member` and `too_many_invitations`.
    """
    require_owner(user=user, project=project)
    name = _check_username(username)
    role = check_role(role)
    owner = project.owner_id  # invitations count for the owner, even if a member with the role of an owner sends them
    User.objects.select_for_update(no_key=True).get(pk=owner)  # simultaneous invitations must not exceed the limits
    person = User.objects.filter(username=name).first()
    if person is not None and person.pk == owner:
        raise ProductError("owner_is_member", "This person owns the project and needs no other role.", status=409)
    if person is not None and Membership.objects.filter(project=project, user=person).exists():
        sentence = Sentence("This person is already a member. Change their role in the list of members.")
        raise ProductError("already_member", sentence, status=409)
    rows = Invitation.objects.filter(project__owner=owner)
    rows.filter(expires__lte=timezone.now()).delete()
    row = rows.filter(project=project, username=name).first()
    if row is None:
        _check_limits(rows, project)
        row = Invitation(project=project, username=name)
    if row.person != person:
        row.person = person
        row.declined = None
    row.role = role
    row.expires = timezone.now() + LIFETIME
    row.save()
    changes = {"member": None if person is None else str(person.pk), "role": role}
    record(user=user, action="member.invited", row=project, changes=changes)
    _notify_invited(row)
    return row


def _check_username(username: str) -> str:
    name = username.strip()
    if not 0 < len(name) <= MAX_USERNAME or "\x00" in name:
        raise ProductError(
            "bad_username",
            Sentence("Enter one user name, with 1 to {max_username} characters.", max_username=MAX_USERNAME),
        )
    return name


def _check_limits(rows: QuerySet[Invitation], project: Project) -> None:
    """Raise `too_many_invitations` (409). `rows`: all invitations of the owner."""
    sentence = Sentence("Too many invitations are unanswered. Withdraw some of them, or wait until they expire.")
    if rows.filter(project=project).count() >= MAX_OF_PROJECT or rows.count() >= MAX_OF_OWNER:
        raise ProductError("too_many_invitations", sentence, status=409)


def withdraw(*, user: User, project: Project, invitation: object) -> None:
    """Delete the invitation with this id. Raises `NotFound` if it is not pending in this project."""
    require_owner(user=user, project=project)
    row = get_or_404(Invitation.objects.sent(project), invitation, "invitation")
    row.delete()
    _notify_invited(row)


def get_received(user: User, pk: UUID) -> Invitation:
    """Return an invitation that the user may answer. Raises `NotFound`, also for an expired invitation."""
    return get_or_404(Invitation.objects.visible_to(user), pk, "invitation")


@transaction.atomic
def accept(*, user: User, invitation: Invitation) -> Project:
    """Make the user a member of the project, and delete the invitation. Raises `NotFound` as `get_received`."""
    rows = Invitation.objects.visible_to(user).select_for_update(of=("self",)).select_related("project")
    row = get_or_404(rows, invitation.pk, "invitation")
    Membership.objects.update_or_create(project=row.project, user=user, defaults={"role": row.role})
    record(user=user, action="member.joined", row=row.project, changes={"role": row.role})
    row.delete()
    _notify_invited(row)
    notify(row.project.owner_id, News.INVITATIONS)
    return row.project


def decline(*, user: User, invitation: Invitation) -> None:
    """Decline an invitation without a notice to the owner. Raises `NotFound` as `get_received`."""
    if not Invitation.objects.visible_to(user).filter(pk=invitation.pk).update(declined=timezone.now()):
        raise NotFound("invitation")
    _notify_invited(invitation)


def _notify_invited(row: Invitation) -> None:
    if row.person_id is not None:
        notify(row.person_id, News.INVITATIONS)
