"""The pages of settings, in groups. To add one, add a row to `GROUPS`; its view passes the `place` to the template."""

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True, slots=True)
class SettingsPage:
    """A page of settings: the name of its address, and a symbol of `static/icons.svg`."""

    place: str
    title: str | Promise
    address: str
    icon: str


@dataclass(frozen=True, slots=True)
class SettingsGroup:
    """Pages that stand together. `key` names the group in the page."""

    key: str
    title: str | Promise
    pages: tuple[SettingsPage, ...]

    def has(self, place: str) -> bool:
        return any(page.place == place for page in self.pages)


GROUPS = (
    SettingsGroup(
        "you",
        _("You"),
        (
            SettingsPage("preferences", _("Preferences"), "settings:preferences", "settings"),
            SettingsPage("memory", _("Memory"), "chat:memory", "book"),
            SettingsPage("groups", _("Groups"), "settings:groups", "people"),
            SettingsPage("shares", _("Shared links"), "chat:shares", "share"),
            SettingsPage("usage", _("My usage"), "chat:usage", "chart"),
            SettingsPage("import", _("Import and export"), "chat:imports", "download"),
        ),
    ),
    SettingsGroup(
        "security",
        _("Security"),
        (
            # First, since on a phone its group opens it: the next ones may ask for a new sign-in.
            SettingsPage("password", _("Password"), "settings:password", "lock"),
            SettingsPage("email", _("E-mail"), "settings:email", "mail"),
            SettingsPage("second-factor", _("Second factor"), "settings:second-factor", "admin"),
            SettingsPage("sessions", _("Sessions"), "settings:sessions", "leave"),
        ),
    ),
    SettingsGroup(
        "programs",
        _("Programs"),
        (
            SettingsPage("tokens", _("API tokens"), "settings:tokens", "key"),
            SettingsPage("tools", _("Connected tools"), "settings:tools", "wrench"),
            SettingsPage("webhooks", _("Webhooks"), "settings:webhooks", "bolt"),
        ),
    ),
)
