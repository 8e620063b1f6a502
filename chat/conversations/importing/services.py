"""Bringing along what was written in another product: the upload is kept, a worker does the rest."""

from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import transaction
from uuid_utils.compat import uuid7

from accounts.models import User
from chat.models import Import
from core.background import enqueue
from core.errors import ProductError
from core.lookups import get_or_404


def start_import(*, user: User, name: str, content: "File[Any]") -> Import:
    """Raises `file_too_large` (413), and `import_running` (409) while one is under way."""
    if (content.size or 0) > settings.MAX_UPLOAD_BYTES:
        most = f"{settings.MAX_UPLOAD_BYTES / 1_000_000:,.0f} MB"
        detail = f"This is larger than {most}, the most that can be uploaded. Upload the conversations.json alone."
        raise ProductError("file_too_large", detail, status=413)
    pk = uuid7()
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)  # two uploads at once come one after the other
        if Import.objects.visible_to(user).live().exists():
            raise ProductError("import_running", "An import is under way. Wait until it is done.", status=409)
        blob = default_storage.save(f"imports/{pk}", content)
        job = Import.objects.create(pk=pk, owner=user, name=name[:255] or "export", blob=blob)
        transaction.on_commit(partial(enqueue, "chat.tasks.import_conversations", job.pk))
    return job


def visible_import(user: User, pk: UUID) -> Import:
    """Raises `NotFound`."""
    return get_or_404(Import.objects.visible_to(user), pk, "import")
