"""E-mail addresses that their owners confirm by a link: for their own account, or for a sign-up.

A link is signed and carries all the data of the request. Nothing is stored until the owner follows it.
"""

from functools import partial
from typing import TypedDict, cast

from django.core import signing
from django.core.exceptions import ValidationError
from django.db import transaction
from django.urls import reverse

from accounts.access.login import providers
from accounts.mailing import sending, texts
from accounts.models import User
from core.audit.services import record
from core.background import enqueue
from core.errors import ProductError, invalid_setting
from core.sentences import Sentence
from workspace.models.settings import workspace_at

LINK_DAYS = 1
# The purposes that links are signed for.
CHANGE = "accounts.mailing.change"
SIGN_UP = "accounts.mailing.sign-up"


class ChangeLink(TypedDict):
    """The data of a link that confirms another address. `before`: the address when the link was made."""

    person: str
    email: str
    before: str


class SignUpLink(TypedDict):
    """The data of a link to sign up."""

    email: str


# The address of an account


@transaction.atomic
def change_email(*, user: User, email: str, origin: str) -> bool:
    """Change a person's address. If mail is set up, the address is stored only when they follow the mailed link.

    Returns whether it is stored now. `origin`: scheme and host of this site. Raises `invalid_setting` and `mail_failed`
    (502).
    """
    if not sending.has_mail_server() or not email:
        _store(user, email, confirmed=not email)
        return True
    link: ChangeLink = {"person": str(user.pk), "email": email, "before": user.email}
    key = signing.dumps(link, salt=CHANGE, compress=True)
    address = origin + reverse("settings:email", query={"key": key})
    sending.send([texts.confirm(user, email, address)])
    return False


@transaction.atomic
def confirm_email(*, user: User, key: str) -> None:
    """Store the address of a followed link. Raises `link_ended_error` (404), also for another person's link."""
    link = cast("ChangeLink | None", _read(key, CHANGE))
    if link is None or link["person"] != str(user.pk) or link["before"] != user.email:
        raise link_ended_error()
    before = user.email
    _store(user, link["email"], confirmed=True)
    if before:  # the reader of that mailbox may not have requested the change
        transaction.on_commit(partial(enqueue, "accounts.tasks.mail_changed", str(user.pk), before))


def mail_changed(*, person: User, before: str) -> None:
    sending.send([texts.changed(person, before)])


def _store(user: User, email: str, *, confirmed: bool) -> None:
    user.email = email
    user.email_confirmed = confirmed
    try:
        user.clean_fields(exclude={field.name for field in User._meta.fields} - {"email"})
    except ValidationError as error:
        raise invalid_setting(error.message_dict) from error
    user.save(update_fields=["email", "email_confirmed"])
    record(user=user, action="person.email_changed", row=user, name=user.get_username())


# Signing up


def sign_up_is_open() -> bool:
    """Return whether people with an address of the right domain may sign up."""
    return workspace_at().sign_up and sending.has_mail_server() and not any(each.only for each in providers())


def is_allowed_domain(email: str) -> bool:
    """Return whether the domain of the address may sign up. Every domain may if the workspace names none."""
    domains = workspace_at().sign_up_domain_names
    return not domains or email.rpartition("@")[2].lower() in domains


def request_account(*, email: str, origin: str) -> None:
    """Mail a link to sign up. A worker looks up whether an account has the address, so that no response reveals it."""
    transaction.on_commit(partial(enqueue, "accounts.tasks.mail_sign_up", email, origin))


def mail_sign_up(*, email: str, origin: str) -> bool:
    """Mail the link to sign up. Returns False, and mails nothing, if an account has the address."""
    if User.objects.filter(email__iexact=email).exists():
        return False
    link: SignUpLink = {"email": email}
    key = signing.dumps(link, salt=SIGN_UP, compress=True)
    sending.send([texts.sign_up(email, origin + reverse("sign-up-confirmed", query={"key": key}))])
    return True


def read_sign_up_address(key: str) -> str:
    """Return the confirmed address of a link. Raises `link_ended_error` (404), also if an account has it by now."""
    link = cast("SignUpLink | None", _read(key, SIGN_UP))
    if link is None or not sign_up_is_open() or not is_allowed_domain(link["email"]):
        raise link_ended_error()
    if User.objects.filter(email__iexact=link["email"]).exists():
        raise link_ended_error()
    return link["email"]


@transaction.atomic
def create_account(*, key: str, username: str, password: str) -> User:
    """Create an account with the confirmed address of a link. Raises `link_ended_error` (404)."""
    person = User.objects.create_user(username, email=read_sign_up_address(key), password=password)
    record(user=person, action="person.added", row=person, name=username, changes={"sign_up": True})
    return person


def _read(key: str, salt: str) -> object:
    """Return the data of a link, None if it has expired or was not signed for this purpose."""
    try:
        return signing.loads(key, salt=salt, max_age=LINK_DAYS * 86_400)
    except signing.BadSignature:
        return None


def link_ended_error() -> ProductError:
    sentence = Sentence("This link has expired or was used already. Request a new one.")
    return ProductError("link_ended", sentence, status=404)
