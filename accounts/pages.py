"""What the templates of settings show."""

import zoneinfo
from functools import cache
from typing import Any

from django.conf import settings
from django.utils.translation import gettext_lazy as _

from accounts.models import ApiToken, User

ENDED = 20  # tokens of the past that are listed
# What each scope lets a token do.
SCOPES = {
    "chat": _("Conversations: read them, send messages, follow and stop answers; personas and models."),
    "files": _("Files: upload, read, search and delete them."),
    "projects": _("Projects: their instructions, files, members and search."),
    "tasks": _("Tasks: plan them, run them, read what came of it."),
    "admin": _("Your account: make and revoke tokens, change settings; if you administer the workspace, that too."),
}


@cache
def zones() -> list[str]:
    """Places, as people know them, and UTC; other names of the database are accepted, but not offered."""
    places = (name for name in zoneinfo.available_timezones() if "/" in name and not name.startswith("Etc/"))
    return ["UTC", *sorted(places)]


def preferences() -> dict[str, Any]:
    return {"languages": settings.LANGUAGES, "themes": User.Theme.choices, "zones": zones()}


def fresh(user: User) -> User:
    """A copy that a form may write into."""
    return User.objects.get(pk=user.pk)


def tokens_of(user: User) -> dict[str, list[ApiToken]]:
    rows = ApiToken.objects.visible_to(user).defer("digest")
    usable = rows.usable()
    return {"tokens": list(usable), "ended": list(rows.exclude(pk__in=usable.values("pk"))[:ENDED])}
