"""Files that a person stores through the services, and that the worker reads."""

from django.core.files.base import ContentFile

from files import services
from files.models import File
from tests.conftest import Person
from tests.product import until


def upload(person: Person, content: bytes | str, name: str = "notes.txt") -> File:
    data = content.encode() if isinstance(content, str) else content
    return services.upload(user=person.user, name=name, content=ContentFile(data))


def settled(file: File) -> File:
    def look() -> bool:
        file.refresh_from_db()
        return file.status not in ("uploaded", "processing")

    until(look, f"{file.name} is read")
    return file
