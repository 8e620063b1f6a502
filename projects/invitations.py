"""Invitations to projects: sent by an owner, answered by a person, until when nothing of the project is theirs to see.

Whether a user name exists is said to nobody: a name that nobody has is invited like any other.
"""

from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from accounts.models import Role, User
from accounts.realtime import News, tell
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.requests import get_or_404
from core.sentences import Sentence
from projects.members import known_role
from projects.models import Invitation, Membership, Project
from projects.models.invitation import MAX_USERNAME
from projects.models.roles import require_owner

LASTS = timedelta(days=30)
MOST_OF_PROJECT, MOST_OF_OWNER = 50, 200  # pending


@transaction.atomic
def invite(*, user: User, project: Project, username: str, role: str = Role.READER) -> Invitation:
    """Asks somebody to join. Of a name that was invited before, the role changes and the time begins anew.

    Raises `bad_username`, `owner_is_member`, `already_member` and `too_many_invitations`.
    """
    require_owner(user=user, project=project)
    name, role = _checked(username), known_role(role)
    owner = project.owner_id  # whose invitations all of the project are, whichever of its owners sends them
    User.objects.select_for_update(no_key=True).get(pk=owner)  # two at once would both see room for one
    person = User.objects.filter(username=name).first()
    if person is not None and person.pk == owner:
        raise ProductError("owner_is_member", "This person owns the project and needs no other role.", status=409)
    if person is not None and Membership.objects.filter(project=project, user=person).exists():
        sentence = Sentence("This person is in the project already. Change their role in the list of members.")
        raise ProductError("already_member", sentence, status=409)
    rows = Invitation.objects.filter(project__owner=owner)
    rows.filter(expires__lte=timezone.now()).delete()
    row = rows.filter(project=project, username=name).first()
    if row is None:
        _require_room(rows, project)
        row = Invitation(project=project, username=name)
    if row.person != person:
        row.person, row.declined = person, None
    row.role, row.expires = role, timezone.now() + LASTS
    row.save()
    said = {"member": None if person is None else str(person.pk), "role": role}
    record(user=user, action="member.invited", row=project, changes=said)
    _tell(row)
    return row


def _checked(username: str) -> str:
    name = username.strip()
    if not 0 < len(name) <= MAX_USERNAME or "\x00" in name:
        raise ProductError(
            "bad_username",
            Sentence("Give the user name of one person, of 1 to {max_username} characters.", max_username=MAX_USERNAME),
        )
    return name


def _require_room(rows: QuerySet[Invitation], project: Project) -> None:
    """`rows`: all that the owner has sent."""
    sentence = Sentence("Too many invitations are not answered yet. Withdraw some of them, or wait until they end.")
    if rows.filter(project=project).count() >= MOST_OF_PROJECT or rows.count() >= MOST_OF_OWNER:
        raise ProductError("too_many_invitations", sentence, status=409)


def withdraw(*, user: User, project: Project, invitation: object) -> None:
    """`invitation` is an id. Raises `NotFound` for one that is not pending in this project."""
    require_owner(user=user, project=project)
    row = get_or_404(Invitation.objects.sent(project), invitation, "invitation")
    row.delete()
    _tell(row)


def received(user: User, pk: UUID) -> Invitation:
    """Raises `NotFound` for what is not the user's to answer, or not any more."""
    return get_or_404(Invitation.objects.visible_to(user), pk, "invitation")


@transaction.atomic
def accept(*, user: User, invitation: Invitation) -> Project:
    """From then on the user is a member. Raises `NotFound` as `received`."""
    rows = Invitation.objects.visible_to(user).select_for_update(of=("self",)).select_related("project")
    row = get_or_404(rows, invitation.pk, "invitation")
    Membership.objects.update_or_create(project=row.project, user=user, defaults={"role": row.role})
    record(user=user, action="member.joined", row=row.project, changes={"role": row.role})
    row.delete()
    _tell(row)
    tell(row.project.owner_id, News.INVITATIONS)
    return row.project


def decline(*, user: User, invitation: Invitation) -> None:
    """The owner is not told. Raises `NotFound` as `received`."""
    if not Invitation.objects.visible_to(user).filter(pk=invitation.pk).update(declined=timezone.now()):
        raise NotFound("invitation")
    _tell(invitation)


def _tell(row: Invitation) -> None:
    if row.person_id is not None:
        tell(row.person_id, News.INVITATIONS)
