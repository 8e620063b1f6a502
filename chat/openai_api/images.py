"""Images of a request become files of the person, as uploaded ones are: read in the background, then shown."""

import asyncio
from collections.abc import Iterable, Sequence

from django.core.files.base import ContentFile
from django.db.models import Q

from accounts.models import User
from chat.models import Conversation
from chat.openai_api.errors import refused
from chat.openai_api.messages import Picture
from chat.realtime.follow import on_database
from core.errors import ProductError
from files import services
from files.models import File

PATIENCE, LOOK_AGAIN = 60.0, 0.05  # seconds


async def files_of(user: User, pictures: Sequence[Picture]) -> list[File]:
    """A readable file for each picture, in their order.

    Raises `invalid_image` for what is none, and `images_not_ready` (503) when they cannot be read in time.
    """
    files = await on_database(_stored)(user, pictures)
    try:
        async with asyncio.timeout(PATIENCE):
            while any(file.unread for file in files):
                await asyncio.sleep(LOOK_AGAIN)
                files = await on_database(_again)(files)
    except TimeoutError as error:
        sentence = "The images could not be read in time. Try again in a minute."
        raise ProductError("images_not_ready", sentence, status=503) from error
    for file, picture in zip(files, pictures, strict=True):
        if not file.is_image or file.status == File.Status.FAILED:
            sentence = f"This is not an image that models can be shown. {file.error}".strip()
            raise refused(picture.where, sentence, "invalid_image")
    return files


def _stored(user: User, pictures: Sequence[Picture]) -> list[File]:
    """A program sends an image again with every request: one that its last requests had is not stored twice."""
    made: dict[str, File] = {}
    for picture in pictures:
        if picture.digest not in made:
            made[picture.digest] = _known(user, picture) or services.upload(
                user=user, name=picture.name, content=ContentFile(picture.data)
            )
    return [made[picture.digest] for picture in pictures]


def _known(user: User, picture: Picture) -> File | None:
    sent_before = Q(attachments__message__conversation__origin=Conversation.Origin.API)
    rows = File.objects.owned_by(user).filter(sent_before, sha256=picture.digest, status=File.Status.READY)
    return rows.filter(name=picture.name).first()


def _again(files: Iterable[File]) -> list[File]:
    rows = File.objects.in_bulk([file.pk for file in files])
    return [rows[file.pk] if file.pk in rows else _gone(file) for file in files]


def _gone(file: File) -> File:
    file.status = File.Status.FAILED
    return file
