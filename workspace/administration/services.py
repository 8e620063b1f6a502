"""Change the workspace's settings together with the default budget profile and its layout."""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from accounts.models import User
from core.errors import invalid_setting
from personas.models import BudgetProfile
from personas.services import default_profile, save_profile, set_default_profile
from workspace import services as workspace
from workspace.models import Workspace

PROFILE_FIELDS = ("default_profile", "layout")


@transaction.atomic
def save_settings(*, user: User, fields: Mapping[str, Any]) -> Workspace:
    """Change the named fields: `workspace.services.FIELDS`, `default_profile`, and the profile's `layout`.

    Raises `invalid_setting`, and 403 without the rights to the rows.
    """
    chosen: BudgetProfile | None = fields.get("default_profile")
    if chosen is not None:
        set_default_profile(user=user, profile=chosen)
    if "layout" in fields:
        _set_layout(user, fields["layout"])
    own = {name: value for name, value in fields.items() if name not in PROFILE_FIELDS}
    return workspace.change_settings(user=user, fields=own)


def _set_layout(user: User, layout: str) -> None:
    """Store the layout of the default profile. Creates the profile if there is none."""
    profile = default_profile()
    profile.layout = layout
    try:
        profile.clean_fields(exclude={field.name for field in BudgetProfile._meta.fields} - {"layout"})
    except ValidationError as error:
        raise invalid_setting(error.message_dict) from error
    save_profile(user=user, profile=profile, default=True)
