"""Changes to the workspace's settings. `workspace.models.settings` reads them."""

from collections.abc import Mapping
from copy import copy
from io import BytesIO
from typing import IO, Any

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import transaction
from PIL import Image, UnidentifiedImageError

from core.audit.services import field_changes, record
from core.errors import ProductError, invalid_setting
from core.permissions import require_right
from core.sentences import Sentence
from workspace.models import Workspace

FIELDS = (
    *("name", "accent", "notice", "about", "suggestions", "languages", "default_language"),
    *("date_awareness", "task_tools", "today_tasks"),
    *("memory", "memory_unasked", "memory_answering", "memory_days"),
    "search_approval",
    *("citation_model", "page_reader", "sharing", "session_days", "session_most_days", "password_length"),
    *("second_factor", "sign_up", "sign_up_domains"),
    *("api_conversation_days", "conversation_days"),
)
MAX_LOGO = 2_000_000  # bytes of an upload
MAX_SIDE = 4_096  # pixels of an upload
LOGO_SIDE = 256  # pixels of the stored picture
LOGO_FORMATS = ("PNG", "JPEG", "WEBP")


@transaction.atomic
def change_settings(*, user: AbstractUser | None, fields: Mapping[str, Any]) -> Workspace:
    """Change the settings in `fields`. Names that are not in `FIELDS` are ignored. Raises `invalid_setting`."""
    row = _locked(user)
    before = copy(row)
    names = [name for name in FIELDS if name in fields]
    for field in Workspace._meta.concrete_fields:
        if field.name in names:
            field.save_form_data(row, fields[field.name])
    try:
        row.full_clean(validate_constraints=False)
    except ValidationError as error:
        raise invalid_setting(error.message_dict) from error
    row.save(update_fields=names)
    if changes := field_changes(before, row):
        record(user=user, action="workspace.changed", row=row, changes=changes)
    return row


@transaction.atomic
def set_logo(*, user: AbstractUser | None, picture: IO[bytes] | None) -> Workspace:
    """Store the logo; None removes it. Raises `bad_logo` (422)."""
    row = _locked(user)
    row.logo = make_logo(picture) if picture is not None else b""
    row.save(update_fields=["logo"])
    record(user=user, action="workspace.changed", row=row, changes={"logo": None})
    return row


@transaction.atomic
def set_setup(*, user: AbstractUser | None, state: Workspace.Setup) -> None:
    row = _locked(user)
    row.setup = state
    row.save(update_fields=["setup"])


def _locked(user: AbstractUser | None) -> Workspace:
    """Return the row, locked until the transaction ends. Create it if it is missing."""
    require_right(user, "change", Workspace)
    Workspace.objects.get_or_create(pk=Workspace.ONLY)
    return Workspace.objects.select_for_update().get(pk=Workspace.ONLY)


def make_logo(picture: IO[bytes]) -> bytes:
    """Return an uploaded picture as a PNG of at most `LOGO_SIDE` pixels a side, without any metadata.

    Raises `bad_logo` (422).
    """
    content = picture.read(MAX_LOGO + 1)
    if len(content) > MAX_LOGO:
        raise _bad_logo_error(
            Sentence("The picture has more than 2 MB. Make it smaller; 256 pixels a side are enough.")
        )
    try:
        with Image.open(BytesIO(content), formats=LOGO_FORMATS) as image:
            if max(image.size) > MAX_SIDE:
                raise _bad_logo_error(
                    Sentence(
                        "The picture has more than {largest_side} pixels a side. Make it smaller.",
                        largest_side=MAX_SIDE,
                    )
                )
            logo = image.convert("RGBA")
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _bad_logo_error(Sentence("This picture cannot be read. Choose a PNG, JPEG or WebP file.")) from error
    logo.thumbnail((LOGO_SIDE, LOGO_SIDE))
    logo.info.clear()
    file = BytesIO()
    logo.save(file, "PNG", optimize=True)
    return file.getvalue()


def _bad_logo_error(sentence: Sentence | str) -> ProductError:
    return ProductError("bad_logo", sentence, status=422)
