"""Change the shares of a persona. Its `visibility` in the whole workspace is a field of the persona, not a share."""

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.access.holds import require_movable
from accounts.access.rights import require
from accounts.models import PeopleGroup, Right, Role, User, strongest
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.locks import lock
from core.permissions import has_right
from core.requests import get_or_404, identifier
from core.sentences import Sentence
from personas.models import Persona, PersonaShare
from personas.sharing.names import NAMES_LOCK, unique_name
from personas.sharing.roles import require_owner, strongest_role

MAX_SHARES = 200  # shares per persona


def list_shares(user: User, persona: Persona) -> QuerySet[PersonaShare]:
    """Return all shares, for an owner of the persona. Raises `not_owner` (403)."""
    require_owner(user=user, persona=persona)
    rows: QuerySet[PersonaShare] = PersonaShare.objects.filter(persona=persona).select_related("user", "group")
    return rows


def addable_groups(user: User, persona: Persona) -> QuerySet[PeopleGroup]:
    """Return the groups that the user may add: groups they are in or manage; for administrators, all groups."""
    rows = PeopleGroup.objects.filter(everyone=False).exclude(personashares__persona=persona)
    if has_right(user, "change", persona):
        return rows
    return rows.filter(pk__in=PeopleGroup.objects.visible_to(user).values("pk"))


@transaction.atomic
def share(
    *, user: User, persona: Persona, username: str = "", group: object = None, role: str = Role.READER
) -> PersonaShare:
    """Share the persona with a user name or with a `group` (its id). An existing share gets the new role.

    A user name that does not exist is stored like any other.

    Raises `not_owner` and `right_missing` (403), `NotFound` for a group that the user does not see, `bad_username`,
    `owner_has_it` (409), `unknown_role` and `too_many_shares` (409).
    """
    require_owner(user=user, persona=persona)
    if not has_right(user, "change", persona):
        require(user, Right.PUBLISH_PERSONAS)
    Persona.objects.select_for_update(no_key=True).get(pk=persona.pk)  # simultaneous shares must not exceed the limit
    row = _group_share(user, persona, group) if group else _user_share(persona, username)
    new = row._state.adding
    previous = row.role
    row.role = _check_role(role)
    if new and persona.shares.count() >= MAX_SHARES:
        sentence = Sentence(
            "A persona has at most {most} shares. Remove some, or share it with a group.", most=MAX_SHARES
        )
        raise ProductError("too_many_shares", sentence, status=409)
    row.save()
    changes = _recipient(row) | {"role": row.role if new else [previous, row.role]}
    record(user=user, action="persona.shared" if new else "persona.share_changed", row=persona, changes=changes)
    return row


def _group_share(user: User, persona: Persona, group: object) -> PersonaShare:
    """Return the share of a group, stored or new."""
    pk = identifier(group, "group")
    row = PersonaShare.objects.filter(persona=persona, group=pk).first()
    return row or PersonaShare(persona=persona, group=get_or_404(addable_groups(user, persona), pk, "group"))


def _user_share(persona: Persona, username: str) -> PersonaShare:
    """Return the share of a user name, stored or new."""
    name = username.strip()
    if not 0 < len(name) <= PersonaShare.MAX_USERNAME or "\x00" in name:
        sentence = Sentence(
            "Give the user name of one person, of 1 to {max_username} characters, or a group.",
            max_username=PersonaShare.MAX_USERNAME,
        )
        raise ProductError("bad_username", sentence)
    person = User.objects.filter(username=name).first()
    if person is not None and person.pk == persona.owner_id:
        raise ProductError("owner_has_it", "This person already owns the persona.", status=409)
    rows = PersonaShare.objects.filter(persona=persona)
    stored = rows.filter(Q(username=name) | Q(user=person) if person is not None else Q(username=name)).first()
    row = stored or PersonaShare(persona=persona, username=name)
    row.user = row.user or person
    return row


@transaction.atomic
def change_share(*, user: User, persona: Persona, share: object, role: str) -> PersonaShare:
    """Change the role of a share (its id). A stronger role needs the right to publish personas, as sharing does.

    Raises `NotFound`, `not_owner` and `right_missing` (403), and `unknown_role`.
    """
    row = get_or_404(list_shares(user, persona).select_for_update(of=("self",)), share, "share")
    if strongest([row.role, _check_role(role)]) != row.role and not has_right(user, "change", persona):
        require(user, Right.PUBLISH_PERSONAS)
    previous = row.role
    row.role = role
    row.save(update_fields=["role"])
    changes = _recipient(row) | {"role": [previous, row.role]}
    record(user=user, action="persona.share_changed", row=persona, changes=changes)
    return row


@transaction.atomic
def remove_share(*, user: User, persona: Persona, share: object) -> None:
    """Remove a share (its id). Owners may remove any share, other users only their own.

    `chat.turns.rights` then stops the answers of users who lost the persona. Raises `NotFound` and `not_owner` (403).
    """
    own = PersonaShare.objects.filter(persona=persona, user=user)
    row = own.filter(pk=identifier(share, "share")).first() or get_or_404(list_shares(user, persona), share, "share")
    row.delete()
    record(user=user, action="persona.unshared", row=persona, changes=_recipient(row))


@transaction.atomic
def hand_over(*, user: User, persona: Persona, share: object) -> Persona:
    """Make the user of a share (its id) the owner of the persona. The previous owner keeps a share as an owner.

    Raises `not_owner` (403), `NotFound` for a share without a user, `not_active` (422) and `legal_hold` (409).
    """
    if strongest_role(user, persona) != Role.OWNER:
        raise ProductError("not_owner", "Only an owner of this persona can do this. Ask an owner.", status=403)
    lock(NAMES_LOCK)
    locked = Persona.objects.select_for_update(of=("self",)).select_related("owner").get(pk=persona.pk)
    row = get_or_404(PersonaShare.objects.filter(persona=locked).select_related("user"), share, "share")
    require_movable(locked)
    new_owner = row.user
    previous = locked.owner
    if new_owner is None:
        raise NotFound("share")
    if not new_owner.is_active:
        raise ProductError(
            "not_active", Sentence("“{taker}” is deactivated. Choose an active person.", taker=new_owner), status=422
        )
    row.delete()
    if previous is not None:
        PersonaShare(persona=locked, user=previous, username=previous.get_username(), role=Role.OWNER).save()
    other_personas = Persona.objects.visible_to(new_owner).exclude(pk=locked.pk)
    name = (
        unique_name(locked.name, new_owner) if other_personas.filter(name__iexact=locked.name).exists() else locked.name
    )
    Persona.objects.filter(pk=locked.pk).update(owner=new_owner, name=name, updated=timezone.now())
    changes = {"owner": [str(previous.pk) if previous is not None else None, str(new_owner.pk)]}
    record(user=user, action="persona.handed_over", row=locked, changes=changes)
    return Persona.objects.select_related("owner").get(pk=locked.pk)


def _recipient(row: PersonaShare) -> dict[str, object]:
    """Return the group or the user of a share for an audit entry."""
    if row.group_id is not None:
        return {"group": str(row.group_id)}
    return {"person": str(row.user_id) if row.user_id is not None else None}


def _check_role(role: str) -> str:
    if role not in Role.values:
        raise ProductError(
            "unknown_role", Sentence("There is no role “{role}”. The roles are reader, editor and owner.", role=role)
        )
    return role
