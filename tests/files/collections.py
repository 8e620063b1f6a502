"""Files with given chunks, indexed by the product."""

from collections.abc import Sequence
from uuid import uuid4

from accounts.models import User
from files.index.indexing import index_chunks
from files.models import Chunk, File


def new_owner() -> User:
    return User.objects.create_user(f"owner-{uuid4().hex[:12]}")


def chunked(owner: User, texts: Sequence[str], name: str = "notes.txt") -> File:
    """A file that has been read and not yet indexed; its chunks lie one after another on page 1, 2, …"""
    file = File.objects.create(
        owner=owner, name=name, size=1, sha256=uuid4().hex * 2, blob="none", status=File.Status.READY
    )
    start, chunks = 0, []
    for ordinal, text in enumerate(texts):
        end = start + len(text)
        chunks.append(
            Chunk(file=file, ordinal=ordinal, page=ordinal + 1, start=start, end=end, text=text, tokens=len(text) // 4)
        )
        start = end
    Chunk.objects.bulk_create(chunks)
    return file


def indexed(owner: User, texts: Sequence[str], name: str = "notes.txt") -> File:
    file = chunked(owner, texts, name)
    index_chunks(file)
    return file
