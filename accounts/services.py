"""Changes to people, their sessions and tokens."""

import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import AbstractUser, Group, Permission
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounts.access.authentication import token_digest
from accounts.access.delegation import is_last_admin, require_held, require_rank
from accounts.access.holds import is_held
from accounts.access.rights import require
from accounts.access.sessions import close_sockets, end, end_sessions, public_name, token_group
from accounts.deletion import delete_unowned
from accounts.models import AdminRecord, ApiToken, Right, Session, User
from core.audit.services import field_changes, load_stored, record
from core.errors import NotFound, ProductError, invalid_setting
from core.faces import FaceFields
from core.permissions import has_right, require_right, require_store
from core.sentences import Sentence
from core.time_zones import is_zone, present_name
from workspace.models.settings import all_languages, workspace_at

MAX_NAME = 100
PREFERENCES = (
    *("icon", "colour", "language", "timezone", "theme"),
    *("accepts_model_tasks", "asks_before_search", "tasks_in_prompts"),
)
TOKEN_LIFE = timedelta(days=90)  # if no expiry is chosen
TOKEN_PREFIX = "gh_"  # noqa: S105 - a marker by which secret scanners recognise our tokens, not a secret


class PreferenceFields(FaceFields, total=False):
    """The new values of the `PREFERENCES` that change."""

    language: str
    timezone: str
    theme: str
    accepts_model_tasks: bool
    asks_before_search: bool
    tasks_in_prompts: bool


@transaction.atomic
def create_token(
    *,
    user: User,
    name: str,
    scopes: Sequence[str] | None = None,
    expires: datetime | None = None,
    asking: ApiToken | None = None,
) -> tuple[ApiToken, str]:
    """Create a token. Returns the row and the token itself, which cannot be read again.

    If `scopes` is None, the token has all scopes except `ApiToken.NOT_BY_DEFAULT`. `asking` is the token of a program
    that makes the request. It can grant neither a scope that it lacks nor a later expiry. Raises `empty_name`,
    `no_scope`, `unknown_scope`, `already_expired`, and with 403 `right_missing`, `scope_not_held` and
    `outlives_its_maker`.
    """
    require(user, Right.TOKENS)
    name = name.strip()[:MAX_NAME]
    if not name:
        raise ProductError("empty_name", "Give the token a name, so that you recognise it in the list.")
    chosen = _scopes(scopes)
    if expires is not None and expires <= timezone.now():
        raise ProductError("already_expired", "The token would expire in the past. Choose a later time.")
    if asking is not None:
        _require_within(asking, chosen, expires)
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    row = ApiToken.objects.create(user=user, name=name, digest=token_digest(token), scopes=chosen, expires=expires)
    changes = {"scopes": chosen, "expires": None if expires is None else expires.isoformat()}
    record(user=user, action="token.made", row=row, name=name, changes=changes)
    return row, token


def _scopes(names: Sequence[str] | None) -> list[str]:
    """Return the named scopes in the order of `ApiToken.SCOPES`, or the default scopes for None."""
    usual = [scope for scope in ApiToken.SCOPES if scope not in ApiToken.NOT_BY_DEFAULT]
    chosen = usual if names is None else [scope for scope in ApiToken.SCOPES if scope in names]
    unknown = sorted(set(names or ()) - set(ApiToken.SCOPES))
    if unknown:
        scopes = ", ".join(ApiToken.SCOPES)
        raise ProductError(
            "unknown_scope",
            Sentence("There is no scope “{unknown}”. The scopes are {known}.", unknown=unknown[0], known=scopes),
        )
    if not chosen:
        raise ProductError("no_scope", "Choose at least one scope. Without a scope the token would be useless.")
    return chosen


def _require_within(asking: ApiToken, scopes: Sequence[str], expires: datetime | None) -> None:
    """Raise `scope_not_held` or `outlives_its_maker` (403) if the new token would exceed the asking token."""
    lacking = [scope for scope in scopes if scope not in asking.scopes]
    if lacking:
        sentence = Sentence(
            "This token lacks the scope “{lacking}”, so it cannot give that scope to another token. Omit the scope.",
            lacking=lacking[0],
        )
        raise ProductError("scope_not_held", sentence, status=403)
    if asking.expires is not None and (expires is None or expires > asking.expires):
        end = asking.expires.isoformat(timespec="minutes")
        sentence = Sentence(
            (
                "This token ends at {end}, and a token that it creates cannot end later. Set “expires” to that "
                "time or earlier."
            ),
            end=end,
        )
        raise ProductError("outlives_its_maker", sentence, status=403)


def default_expiry(asking: ApiToken | None = None) -> datetime:
    """Return the default expiry of a new token: after `TOKEN_LIFE`, but not later than the asking token's expiry."""
    end = timezone.now() + TOKEN_LIFE
    return min(end, asking.expires) if asking is not None and asking.expires is not None else end


@transaction.atomic
def revoke_token(*, user: AbstractUser, token: ApiToken) -> None:
    """Revoke a token at once. Its row stays as a record. Administrators with the right may revoke any token.

    Raises `NotFound` for another user's token.
    """
    if token.user_id != user.pk and not has_right(user, "change", token):
        raise NotFound("token")
    token.expires = timezone.now()
    token.save(update_fields=["expires"])
    record(user=user, action="token.revoked", row=token, name=token.name, changes={"owner": str(token.user_id)})
    transaction.on_commit(partial(close_sockets, token_group(token.pk)))


@transaction.atomic
def revoke_tokens(*, user: User) -> int:
    """Revoke all valid tokens of a person. Returns their number."""
    usable = list(ApiToken.objects.visible_to(user).usable())
    for token in usable:
        revoke_token(user=user, token=token)
    return len(usable)


def change_preferences(*, user: User, fields: PreferenceFields) -> User:
    """Change the preferences in `fields`. Raises `invalid_setting`."""
    changed_names = [name for name in PREFERENCES if name in fields]
    language = fields.get("language", user.language)
    if language and language != user.language:
        offered = workspace_at().languages
        if language in all_languages() and language not in offered:
            sentence = Sentence(
                "This workspace does not offer that language. Choose one of {offered}.", offered=", ".join(offered)
            )
            raise ProductError("invalid_setting", sentence)
    user.language = language
    user.timezone = fields.get("timezone", user.timezone)
    user.theme = fields.get("theme", user.theme)
    user.icon = fields.get("icon", user.icon)
    user.colour = fields.get("colour", user.colour)
    user.accepts_model_tasks = fields.get("accepts_model_tasks", user.accepts_model_tasks)
    user.asks_before_search = fields.get("asks_before_search", user.asks_before_search)
    user.tasks_in_prompts = fields.get("tasks_in_prompts", user.tasks_in_prompts)
    try:
        user.clean_fields(exclude={field.name for field in User._meta.fields} - set(changed_names))
    except ValidationError as error:
        raise invalid_setting(error.message_dict) from error
    if "timezone" in fields:
        user.timezone_source = User.ZoneSource.CHOSEN
    user.save(update_fields=[*changed_names, "timezone_source"])
    return user


def hide_tasks_notice(*, user: User) -> None:
    """Remember that the person has read the notice that tasks go along with messages."""
    user.tasks_notice_seen = True
    user.save(update_fields=["tasks_notice_seen"])


def take_browsers_zone(*, user: User, name: str) -> bool:
    """Store the browser's time zone for a person who still has the workspace's time zone.

    Returns whether it was stored. A zone that was chosen or stored earlier does not change. Raises `invalid_setting`.
    """
    if not is_zone(name):
        raise ProductError("invalid_setting", ("The browser's time zone is unknown here. Choose one in the settings."))
    undecided = User.objects.filter(pk=user.pk, timezone_source=User.ZoneSource.WORKSPACE)
    return bool(undecided.update(timezone=present_name(name), timezone_source=User.ZoneSource.BROWSER))


@transaction.atomic
def change_password(*, user: User, password: str) -> None:
    """Store a person's own password and end all their sessions. The caller signs the current browser in again.

    API tokens stay valid.
    """
    action = "password.changed" if user.has_usable_password() else "password.chosen"
    user.set_password(password)
    user.password_once = False
    user.save(update_fields=["password", "password_once"])
    record(user=user, action=action, row=user, name=user.get_username())
    end_sessions(user=user)


@transaction.atomic
def save_password(*, user: AbstractUser, person: User) -> None:
    """Store a person's password that an administrator has set or disabled, and end the person's sessions.

    After the first sign-in with this password, the person has to choose another one.
    """
    require_store(user, person)
    require_rank(user, person)
    person.password_once = person.has_usable_password() and person.pk != user.pk
    person.save(update_fields=["password", "password_once"])
    action = "password.set" if person.has_usable_password() else "password.switched_off"
    record(user=user, action=action, row=person, name=person.get_username())
    end_sessions(user=person)


@transaction.atomic
def end_session(*, user: User, name: str) -> None:
    """End a person's session by its public name, see `accounts.access.sessions`. Raises `NotFound`."""
    for row in Session.objects.visible_to(user):
        if public_name(row.session_key) == name:
            end([row])
            record(user=user, action="session.ended", row=user, name=user.get_username())
            return
    raise NotFound("session")


@transaction.atomic
def sign_out_elsewhere(*, user: User, here: str | None, tokens: bool = False) -> None:
    """End all sessions of a person except the one with the key `here`. `tokens`: revoke their API tokens, too."""
    end_sessions(user=user, but=here)
    if tokens:
        revoke_tokens(user=user)
    record(user=user, action="person.signed_out_everywhere", row=user, name=user.get_username())


LAST_ADMIN = gettext_noop("This is the last administrator with all rights. Make another person a superuser first.")


@transaction.atomic
def save_user(*, user: AbstractUser, person: User) -> None:
    """Store the changes that an administrator's form made to a person.

    Raises `last_admin` (409) if no administrator would be left, and `outranked` and `right_not_held` (see
    `access.delegation`).
    """
    require_store(user, person)
    before = load_stored(person)
    if before is not None:
        require_rank(user, before)
    if person.is_superuser and not user.is_superuser:
        raise ProductError("right_not_held", "Only a superuser can make another person a superuser.", status=403)
    if not (person.is_active and person.is_superuser) and is_last_admin(person):
        raise ProductError("last_admin", LAST_ADMIN, status=409)
    if before is not None and before.timezone != person.timezone:
        person.timezone_source = User.ZoneSource.CHOSEN
    person.save()
    _record_person(user, before, person)
    if not person.is_active:
        end_all(person)


def _record_person(user: AbstractUser, before: User | None, person: User) -> None:
    """Record the change as one act, the most important that applies: access, then rights, then other changes."""
    changes = field_changes(before or User(), person)
    if before is None:
        action = "person.added" if person.has_usable_password() else "person.invited"
    elif before.is_active != person.is_active:
        action = "person.activated" if person.is_active else "person.deactivated"
    elif {"is_staff", "is_superuser"} & changes.keys():
        action = "person.rights_changed"
    else:
        action = "person.changed"
    if changes:
        record(user=user, action=action, row=person, name=person.get_username(), changes=changes)


def end_all(person: User) -> None:
    """Sign a person out everywhere, and close the sockets of their programs."""
    end_sessions(user=person)
    for token in ApiToken.objects.visible_to(person).values_list("pk", flat=True):
        transaction.on_commit(partial(close_sockets, token_group(token)))


@transaction.atomic
def set_rights(
    *, user: AbstractUser, person: User, groups: Collection[Group], permissions: Collection[Permission]
) -> None:
    """Give a person exactly these groups and rights. Raises `outranked` and `right_not_held`."""
    require_store(user, person)
    require_rank(user, person)
    groups_before = set(person.groups.all())
    permissions_before = set(person.user_permissions.all())
    require_held(user, set(permissions) ^ permissions_before, set(groups) ^ groups_before)
    person.groups.set(groups)
    person.user_permissions.set(permissions)
    changes = _differing("groups", groups_before, groups) | _differing("permissions", permissions_before, permissions)
    if changes:
        record(user=user, action="person.rights_changed", row=person, name=person.get_username(), changes=changes)


def _differing(
    name: str, before: Collection[Group] | Collection[Permission], after: Collection[Group] | Collection[Permission]
) -> dict[str, list[list[str]]]:
    """Return the change in related rows by name, like `core.audit.services.field_changes`. Empty without a change."""
    if set(before) == set(after):
        return {}
    return {name: [sorted(_name_of(each) for each in rows) for rows in (before, after)]}


def _name_of(row: Group | Permission) -> str:
    return row.codename if isinstance(row, Permission) else row.name


@transaction.atomic
def save_group(*, user: AbstractUser, group: Group, permissions: Collection[Permission]) -> None:
    """Store a group with exactly these rights. Raises `right_not_held`."""
    require_store(user, group)
    before = load_stored(group)
    permissions_before = set() if group._state.adding else set(group.permissions.all())
    require_held(user, set(permissions) ^ permissions_before)
    group.save()
    group.permissions.set(permissions)
    changes = field_changes(before or Group(), group) | _differing("permissions", permissions_before, permissions)
    if before is None or changes:
        action = "group.added" if before is None else "group.changed"
        record(user=user, action=action, row=group, name=group.name, changes=changes)


@transaction.atomic
def delete_group(*, user: AbstractUser, group: Group) -> None:
    """Delete a group. Raises `right_not_held` if its members would lose a right that `user` lacks."""
    require_right(user, "delete", group)
    require_held(user, group.permissions.all())
    record(user=user, action="group.deleted", row=group, name=group.name)
    group.delete()


def delete_user(*, user: AbstractUser, person: User) -> None:
    """Delete a person with all their rows. The log of their actions in the admin stays.

    Raises as `require_deletable`.
    """
    require_deletable(user, person)
    entries = LogEntry.objects.filter(user=person).select_related("content_type")
    with transaction.atomic():
        records = (AdminRecord.of(entry, person.get_username()) for entry in entries.iterator(chunk_size=1000))
        AdminRecord.objects.bulk_create(records, batch_size=1000)
        end_all(person)
        record(user=user, action="person.deleted", row=person, name=person.get_username())
        delete_unowned(person)
        person.delete()


def require_deletable(user: AbstractUser, person: User) -> None:
    """Raise `staff_only`, `right_missing`, `outranked`, `last_admin` or `legal_hold` (409)."""
    require_right(user, "delete", person)
    require_rank(user, person)
    require_another_admin(person)
    require_no_hold(person)


def require_no_hold(person: User) -> None:
    """Raise `legal_hold` (409) if a legal hold covers the person or a row that would be deleted with them."""
    if is_held(person):
        sentence = Sentence(
            "This person is under a legal hold, or one of their conversations or files is. Remove the legal hold first."
        )
        raise ProductError("legal_hold", sentence, status=409)


def require_another_admin(person: User) -> None:
    """Raise `last_admin` (409) for the last active superuser."""
    if is_last_admin(person):
        raise ProductError("last_admin", LAST_ADMIN, status=409)
