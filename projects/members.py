"""Manage members of projects: users, who accept an invitation (`invitations`), and groups, added by owners directly."""

from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.access.holds import require_movable
from accounts.models import PeopleGroup, Role, User
from accounts.realtime import News, notify
from core.audit.services import record
from core.errors import ProductError
from core.permissions import has_right, require_right
from core.requests import identifier, or_404
from core.sentences import Sentence
from projects.handing_over import exclusive_files
from projects.models import Invitation, Membership, Project
from projects.models.roles import get_role, require_owner


def list_members(project: Project) -> QuerySet[Membership]:
    """Return the users and groups of a project, oldest first."""
    rows: QuerySet[Membership] = Membership.objects.filter(project=project).select_related("user", "group")
    return rows.order_by("created", "pk")


@transaction.atomic
def add_member(*, user: User, project: Project, person: User, role: str) -> None:
    """Add a user without an invitation, for administrators. A member gets the new role. The owner is not added."""
    require_right(user, "change", project)
    if person.pk != project.owner_id:
        Membership.objects.update_or_create(project=project, user=person, defaults={"role": check_role(role)})
        Invitation.objects.filter(project=project, person=person).delete()
        record(user=user, action="member.added", row=project, changes={"member": str(person.pk), "role": role})
        notify(person.pk, News.INVITATIONS)


def groups_to_choose(user: AbstractUser, project: Project) -> QuerySet[PeopleGroup]:
    """Return the groups that the user may add: groups they are in or manage; for administrators, all groups.

    Only administrators may add “Everyone”, since every user then sees the project in their list.
    """
    rows = PeopleGroup.objects.exclude(memberships__project=project)
    if has_right(user, "change", project):
        return rows
    return rows.filter(pk__in=PeopleGroup.objects.visible_to(user).values("pk"), everyone=False)


@transaction.atomic
def add_group(*, user: User, project: Project, group: object, role: str = Role.READER) -> Membership:
    """Share the project with a group (its id). Its users have the role while they are in the group.

    A group that is already a member gets the new role. Raises `NotFound` for a group that the user does not see.
    """
    require_owner(user=user, project=project)
    pk = identifier(group, "group")
    if Membership.objects.filter(project=project, group=pk).exists():
        return change_role(user=user, project=project, member=pk, role=role)
    chosen = or_404(groups_to_choose(user, project).filter(pk=pk).first(), "group")
    membership: Membership = Membership.objects.create(project=project, group=chosen, role=check_role(role))
    record(user=user, action="member.added", row=project, changes={"group": str(chosen.pk), "role": role})
    return membership


@transaction.atomic
def change_role(*, user: User, project: Project, member: object, role: str) -> Membership:
    """Change the role of a member. `member` is the id of the user or the group."""
    require_owner(user=user, project=project)
    membership = _membership(project, member)
    before = membership.role
    membership.role = check_role(role)
    membership.save(update_fields=["role"])
    changes = _member_change(membership) | {"role": [before, role]}
    record(user=user, action="member.role_changed", row=project, changes=changes)
    return membership


@transaction.atomic
def remove_member(*, user: User, project: Project, member: object) -> None:
    """Remove a member. Owners may remove any member, others only themselves. Files that the member added stay."""
    if identifier(member, "member") != user.pk:
        require_owner(user=user, project=project)
    membership = _membership(project, member)
    membership.delete()
    record(user=user, action="member.removed", row=project, changes=_member_change(membership))


@transaction.atomic
def hand_over(*, user: User, project: Project, member: object) -> Project:
    """Make a member the owner of the project. The previous owner stays a member with the role of an owner.

    The `exclusive_files` change their owner, too. Raises `not_owner` (403), `NotFound` for a user who is a member only
    through a group, `not_active` (422) and `legal_hold` (409).
    """
    if get_role(user, project) != Role.OWNER:
        raise ProductError("not_owner", "Only the owner of this project can do this. Ask them.", status=403)
    locked = Project.objects.select_for_update().get(pk=project.pk)
    require_movable(locked)
    membership = _membership(project, member)
    new_owner = or_404(membership.user, "member")
    if not new_owner.is_active:
        raise ProductError(
            "not_active",
            Sentence("“{taker}” is deactivated. Choose an active person.", taker=str(new_owner)),
            status=422,
        )
    files = exclusive_files(locked).update(owner=new_owner)
    membership.delete()
    Membership.objects.create(project=project, user_id=locked.owner_id, role=Role.OWNER)
    Invitation.objects.filter(project=project, person=new_owner).delete()
    Project.objects.filter(pk=project.pk).update(owner=new_owner, updated=timezone.now())
    changes = {"owner": [str(locked.owner_id), str(new_owner.pk)], "files": files}
    record(user=user, action="project.handed_over", row=project, changes=changes)
    return Project.objects.select_related("owner").get(pk=project.pk)


def _membership(project: Project, member: object) -> Membership:
    pk = identifier(member, "member")
    return or_404(list_members(project).filter(Q(user=pk) | Q(group=pk)).first(), "member")


def _member_change(membership: Membership) -> dict[str, object]:
    """Return the group or the user of a membership for an audit entry."""
    if membership.group_id is not None:
        return {"group": str(membership.group_id)}
    return {"member": str(membership.user_id)}


def check_role(role: str) -> str:
    """Return the role. Raises `unknown_role`."""
    if role not in Role.values:
        raise ProductError(
            "unknown_role", Sentence("There is no role “{role}”. The roles are reader, editor and owner.", role=role)
        )
    return role
