"""Changes to limits."""

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import transaction

from accounts.models import Limit
from core.audit.services import load_stored, record, record_saved
from core.errors import invalid_setting
from core.permissions import require_right, require_store


@transaction.atomic
def save_limit(*, user: AbstractUser | None, limit: Limit) -> Limit:
    """Store a limit. It applies from the next turn on. Raises `invalid_setting`, `staff_only`, `right_missing`."""
    require_store(user, limit)
    try:
        limit.full_clean()
    except ValidationError as error:
        raise invalid_setting(error.message_dict) from error
    before = None if limit._state.adding else load_stored(limit)
    limit.save()
    record_saved(user=user, kind="limit", row=limit, before=before)
    return limit


@transaction.atomic
def delete_limit(*, user: AbstractUser | None, limit: Limit) -> None:
    """Delete a limit. Raises `staff_only` and `right_missing`."""
    require_right(user, "delete", limit)
    record(user=user, action="limit.deleted", row=limit)
    limit.delete()
