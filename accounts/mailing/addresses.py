"""E-mail addresses that their owners confirm by a link: of one's own account, and of somebody who wants one.

A link is signed and holds all that is asked for: before it is followed nothing is stored.
"""

from functools import partial
from typing import Any

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
CHANGE, SIGN_UP = "accounts.mailing.change", "accounts.mailing.sign-up"  # what a link is signed for


# One's own


@transaction.atomic
def change_email(*, user: User, email: str, origin: str) -> bool:
    """Stores another address of one's own. Where mails are sent it is stored once a link in one of them was followed.

    Whether it is stored now. `origin` is scheme and host of this site. Raises `invalid_setting`, `mail_failed` (502).
    """
    if not sending.is_set() or not email:
        _store(user, email, confirmed=not email)
        return True
    key = signing.dumps({"person": str(user.pk), "email": email, "before": user.email}, salt=CHANGE, compress=True)
    address = origin + reverse("settings:email", query={"key": key})
    sending.send([texts.confirm(user, email, address)])
    return False


@transaction.atomic
def confirm_email(*, user: User, key: str) -> None:
    """Raises `link_ended` (404) for a link of somebody else, too."""
    asked = _read(key, CHANGE)
    if asked is None or asked["person"] != str(user.pk) or asked["before"] != user.email:
        raise link_ended()
    before = user.email
    _store(user, asked["email"], confirmed=True)
    if before:  # whoever reads it may not have asked for this
        transaction.on_commit(partial(enqueue, "accounts.tasks.mail_changed", str(user.pk), before))


def mail_changed(*, person: User, before: str) -> None:
    sending.send([texts.changed(person, before)])


def _store(user: User, email: str, *, confirmed: bool) -> None:
    user.email, user.email_confirmed = email, confirmed
    try:
        user.clean_fields(exclude={field.name for field in User._meta.fields} - {"email"})
    except ValidationError as error:
        raise invalid_setting(error.message_dict) from error
    user.save(update_fields=["email", "email_confirmed"])
    record(user=user, action="person.email_changed", row=user, name=user.get_username())


# Somebody who wants an account


def sign_up_is_open() -> bool:
    """Whether whoever has an address of the right domain may make an account."""
    return workspace_at().sign_up and sending.is_set() and not any(each.only for each in providers())


def is_welcome(email: str) -> bool:
    """Whether the address is of one of the domains that the workspace names, or it names none."""
    domains = workspace_at().sign_up_domain_names
    return not domains or email.rpartition("@")[2].lower() in domains


def ask_for_account(*, email: str, origin: str) -> None:
    """Whether somebody has the address already is looked up by a worker, so that nothing tells it."""
    transaction.on_commit(partial(enqueue, "accounts.tasks.mail_sign_up", email, origin))


def mail_sign_up(*, email: str, origin: str) -> bool:
    """Mails the link with which whoever reads it makes an account; False where one has the address already."""
    if User.objects.filter(email__iexact=email).exists():
        return False
    key = signing.dumps({"email": email}, salt=SIGN_UP, compress=True)
    sending.send([texts.sign_up(email, origin + reverse("sign-up-confirmed", query={"key": key}))])
    return True


def address_of_sign_up(key: str) -> str:
    """The address that has answered. Raises `link_ended` (404) for one that somebody has by now, too."""
    asked = _read(key, SIGN_UP)
    taken = asked is None or User.objects.filter(email__iexact=asked["email"]).exists()
    if asked is None or taken or not sign_up_is_open() or not is_welcome(asked["email"]):
        raise link_ended()
    return str(asked["email"])


@transaction.atomic
def make_account(*, key: str, username: str, password: str) -> User:
    """An account with the address that has answered. Raises `link_ended` (404)."""
    person = User.objects.create_user(username, email=address_of_sign_up(key), password=password)
    said = {"sign_up": True}
    record(user=person, action="person.added", row=person, name=username, changes=said)
    return person


def _read(key: str, salt: str) -> Any:
    try:
        return signing.loads(key, salt=salt, max_age=LINK_DAYS * 86_400)
    except signing.BadSignature:
        return None


def link_ended() -> ProductError:
    sentence = Sentence("This link has ended, or was used already. Ask for another one.")
    return ProductError("link_ended", sentence, status=404)
