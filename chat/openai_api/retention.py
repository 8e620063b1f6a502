"""Conversations of programs are kept for a while, for their reports, and then forgotten."""

from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from chat.models import Conversation
from chat.openai_api.messages import is_picture
from files import services
from files.models import File

BATCH = 200


def forget_old() -> None:
    """Removes those that are older than `settings.API_CONVERSATION_DAYS`, with the images that came with them alone."""
    if not settings.API_CONVERSATION_DAYS:
        return
    before = timezone.now() - timedelta(days=settings.API_CONVERSATION_DAYS)
    ended = Conversation.objects.filter(origin=Conversation.Origin.API, state=Conversation.State.IDLE)
    old = ended.filter(updated__lt=before)
    while batch := list(old.order_by("updated").values_list("pk", flat=True)[:BATCH]):
        images = list(File.objects.filter(attachments__message__conversation__in=batch).distinct())
        Conversation.objects.filter(pk__in=batch).delete()
        unused = File.objects.filter(pk__in=[file.pk for file in images], attachments=None, project_entries=None)
        for file in unused.select_related("owner"):
            if is_picture(file.name, file.sha256):
                services.delete(user=file.owner, file=file)
