"""Rules for giving rights and changing accounts. They prevent privilege escalation.

Without them, a user with the right to change people could become a superuser: through the form of their own account, a
group, or the password of a person with more rights.
"""

from collections.abc import Iterable

from django.contrib.auth.models import AbstractUser, Group, Permission
from django.db.models import Q, QuerySet

from accounts.models import User
from core.errors import ProductError
from core.sentences import Sentence


def rights_of(person: AbstractUser) -> QuerySet[Permission]:
    """Return the rights of a person and of their groups, even if the account is inactive. A superuser has all."""
    if person.is_superuser:
        return Permission.objects.all()
    return Permission.objects.filter(Q(user=person) | Q(group__user=person)).distinct()


def outranks(person: User, user: AbstractUser) -> bool:
    """Return whether `person` has a right that `user` lacks."""
    if user.is_superuser:
        return False
    if person.is_superuser or (person.is_staff and not user.is_staff):
        return True
    return rights_of(person).exclude(pk__in=rights_of(user).values("pk")).exists()


def is_last_admin(person: AbstractUser) -> bool:
    """Return whether the person is the only active superuser."""
    admins = User.objects.filter(is_active=True, is_superuser=True)
    return admins.filter(pk=person.pk).exists() and not admins.exclude(pk=person.pk).exists()


def group_outranks(group: Group, user: AbstractUser) -> bool:
    """Return whether `group` gives a right that `user` lacks."""
    return _first_missing(user, group.permissions.all()) is not None


def require_rank(user: AbstractUser | None, person: User) -> None:
    """Raise `outranked` (403) if `person` has a right that `user` lacks. Without a user, the product itself acts."""
    if user is not None and outranks(person, user):
        sentence = Sentence(
            (
                "“{person}” has rights that you do not have. Only a superuser, or a person with the same rights, "
                "can change this."
            ),
            person=str(person),
        )
        raise ProductError("outranked", sentence, status=403)


def require_held(user: AbstractUser | None, permissions: Iterable[Permission], groups: Iterable[Group] = ()) -> None:
    """Raise `right_not_held` (403) if `user` lacks one of the rights that they want to give or take away."""
    if user is None:
        return
    group_permissions = Permission.objects.filter(group__in=[group.pk for group in groups])
    lacking = _first_missing(user, permissions) or _first_missing(user, group_permissions)
    if lacking is not None:
        name = f"{lacking.content_type.app_label}.{lacking.codename}"
        sentence = Sentence(
            "You lack the right “{name}”, so you cannot give it or take it away. Ask a superuser.", name=name
        )
        raise ProductError("right_not_held", sentence, status=403)


def _first_missing(user: AbstractUser, permissions: Iterable[Permission]) -> Permission | None:
    if user.is_superuser:
        return None
    rows = Permission.objects.filter(pk__in=[permission.pk for permission in permissions])
    return rows.exclude(pk__in=rights_of(user).values("pk")).select_related("content_type").first()
