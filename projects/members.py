"""Who else is in a project: people, who are invited by its owners (`invitations`), and groups, who are simply in it."""

from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.access.holds import require_movable
from accounts.models import PeopleGroup, Role, User
from accounts.realtime import News, tell
from core.audit.services import record
from core.errors import ProductError
from core.permissions import has_right, require_right
from core.requests import identifier, or_404
from core.sentences import Sentence
from projects.handing_over import files_of_project
from projects.models import Invitation, Membership, Project
from projects.models.roles import require_owner, role_of


def members_of(project: Project) -> QuerySet[Membership]:
    """People and groups, those who came first before the others."""
    rows: QuerySet[Membership] = Membership.objects.filter(project=project).select_related("user", "group")
    return rows.order_by("created", "pk")


@transaction.atomic
def add_member(*, user: User, project: Project, person: User, role: str) -> None:
    """An administrator's act; others invite. Whoever is a member gets the role; the owner needs no membership."""
    require_right(user, "change", project)
    if person.pk != project.owner_id:
        Membership.objects.update_or_create(project=project, user=person, defaults={"role": known_role(role)})
        Invitation.objects.filter(project=project, person=person).delete()
        record(user=user, action="member.added", row=project, changes={"member": str(person.pk), "role": role})
        tell(person.pk, News.INVITATIONS)


def groups_to_choose(user: AbstractUser, project: Project) -> QuerySet[PeopleGroup]:
    """Those that this person could share the project with: groups of their own and those that they manage.
    Administrators choose among all, and they alone choose “Everyone”, in whose lists the project then stands."""
    rows = PeopleGroup.objects.exclude(memberships__project=project)
    if has_right(user, "change", project):
        return rows
    return rows.filter(pk__in=PeopleGroup.objects.visible_to(user).values("pk"), everyone=False)


@transaction.atomic
def add_group(*, user: User, project: Project, group: object, role: str = Role.READER) -> Membership:
    """Everybody who is in the group has the role from now on, for as long as they are in it. `group` is an id; one that
    is in the project already gets the role. Raises `NotFound` for a group that the user does not see."""
    require_owner(user=user, project=project)
    pk = identifier(group, "group")
    if Membership.objects.filter(project=project, group=pk).exists():
        return change_role(user=user, project=project, member=pk, role=role)
    found = or_404(groups_to_choose(user, project).filter(pk=pk).first(), "group")
    made: Membership = Membership.objects.create(project=project, group=found, role=known_role(role))
    record(user=user, action="member.added", row=project, changes={"group": str(found.pk), "role": role})
    return made


@transaction.atomic
def change_role(*, user: User, project: Project, member: object, role: str) -> Membership:
    """`member` is the id of the person or the group."""
    require_owner(user=user, project=project)
    membership = _membership(project, member)
    before, membership.role = membership.role, known_role(role)
    membership.save(update_fields=["role"])
    record(user=user, action="member.role_changed", row=project, changes=_who(membership) | {"role": [before, role]})
    return membership


@transaction.atomic
def remove_member(*, user: User, project: Project, member: object) -> None:
    """An owner may remove anybody, everybody may leave. Files that the person added stay in the project."""
    if identifier(member, "member") != user.pk:
        require_owner(user=user, project=project)
    membership = _membership(project, member)
    membership.delete()
    record(user=user, action="member.removed", row=project, changes=_who(membership))


@transaction.atomic
def hand_over(*, user: User, project: Project, member: object) -> Project:
    """An owner makes a member the one whom the project belongs to; whom it belonged to stays in it as an owner.

    The files of whom it belonged to go along where they stand in no other project of theirs; all others stay with those
    whose they are. Raises `not_owner` (403), `NotFound` for who is no member by themselves, `not_active` (422) and
    `legal_hold` (409).
    """
    if role_of(user, project) != Role.OWNER:
        raise ProductError("not_owner", "Only the owner of this project can do this. Ask them.", status=403)
    locked = Project.objects.select_for_update().get(pk=project.pk)
    require_movable(locked)
    membership = _membership(project, member)
    taker = or_404(membership.user, "member")
    if not taker.is_active:
        raise ProductError(
            "not_active",
            Sentence("“{taker}” is deactivated. Choose somebody who is active.", taker=str(taker)),
            status=422,
        )
    files = files_of_project(locked).update(owner=taker)
    membership.delete()
    Membership.objects.create(project=project, user_id=locked.owner_id, role=Role.OWNER)
    Invitation.objects.filter(project=project, person=taker).delete()
    Project.objects.filter(pk=project.pk).update(owner=taker, updated=timezone.now())
    said = {"owner": [str(locked.owner_id), str(taker.pk)], "files": files}
    record(user=user, action="project.handed_over", row=project, changes=said)
    return Project.objects.select_related("owner").get(pk=project.pk)


def _membership(project: Project, member: object) -> Membership:
    pk = identifier(member, "member")
    return or_404(members_of(project).filter(Q(user=pk) | Q(group=pk)).first(), "member")


def _who(membership: Membership) -> dict[str, object]:
    if membership.group_id is not None:
        return {"group": str(membership.group_id)}
    return {"member": str(membership.user_id)}


def known_role(role: str) -> str:
    if role not in Role.values:
        raise ProductError(
            "unknown_role", Sentence("There is no role “{role}”. The roles are reader, editor and owner.", role=role)
        )
    return role
