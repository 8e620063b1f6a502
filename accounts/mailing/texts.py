"""The texts of the mails, each in the language of its recipient."""

from collections.abc import Callable

from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, override

from accounts.mailing.sending import Mail
from accounts.models import User
from workspace.models.settings import workspace_at

EXPIRY_NOTE = gettext_lazy("It works for a day.")
UNREQUESTED_NOTE = gettext_lazy("If you did not request it, ignore this mail.")


def link(person: User, address: str) -> Mail:
    """Return the mail with the link to set the first password of an account, or a new one."""

    def words(workspace: str) -> tuple[str, list[str]]:
        values = {"workspace": workspace, "name": person.get_username()}
        if person.has_usable_password():
            subject = _("New password for %(workspace)s") % values
            first = _("With this link you choose a new password for “%(name)s” in %(workspace)s:") % values
        else:
            subject = _("Your account in %(workspace)s") % values
            first = _("You have an account in %(workspace)s. Your user name is “%(name)s”.") % values
            first += " " + _("With this link you choose your password:")
        days = settings.PASSWORD_RESET_TIMEOUT // 86_400
        expiry_note = ngettext(
            "It works once, for %(days)d day. Anybody who has it can open your account, so do not pass it on.",
            "It works once, for %(days)d days. Anybody who has it can open your account, so do not pass it on.",
            days,
        ) % {"days": days}
        unasked = _("If you did not request it, ignore this mail. Your password does not change.")
        return subject, [first, address, expiry_note, *([unasked] if person.has_usable_password() else [])]

    return _mail(person.language, person.email, words)


def confirm(person: User, to: str, address: str) -> Mail:
    """Return the mail with the link that confirms the address of an account."""

    def words(workspace: str) -> tuple[str, list[str]]:
        values = {"workspace": workspace, "name": person.get_username()}
        subject = _("Confirm your e-mail address for %(workspace)s") % values
        first = _("With this link the account “%(name)s” in %(workspace)s gets this e-mail address:") % values
        return subject, [first, address, str(EXPIRY_NOTE), str(UNREQUESTED_NOTE)]

    return _mail(person.language, to, words)


def changed(person: User, to: str) -> Mail:
    """Return the mail that informs the previous address of an account about the change."""

    def words(workspace: str) -> tuple[str, list[str]]:
        values = {"workspace": workspace, "name": person.get_username()}
        subject = _("New e-mail address for %(workspace)s") % values
        first = _("Your account “%(name)s” in %(workspace)s now has a new e-mail address.") % values
        return subject, [first, _("If this was not you, tell an administrator at once.")]

    return _mail(person.language, to, words)


def sign_up(to: str, address: str) -> Mail:
    """Return the mail with the link to sign up."""

    def words(workspace: str) -> tuple[str, list[str]]:
        values = {"workspace": workspace}
        subject = _("Your account in %(workspace)s") % values
        first = _("With this link you choose the user name and password of your account in %(workspace)s:") % values
        return subject, [first, address, str(EXPIRY_NOTE), str(UNREQUESTED_NOTE)]

    return _mail("", to, words)


def _mail(language: str, to: str, words: Callable[[str], tuple[str, list[str]]]) -> Mail:
    workspace = workspace_at()
    with override(language or workspace.default_language):
        subject, paragraphs = words(workspace.name)
    return Mail(to, subject, "\n\n".join(paragraphs) + "\n")
