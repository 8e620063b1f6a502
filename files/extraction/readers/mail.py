from collections.abc import Iterator
from email import message_from_binary_file, policy
from email.message import EmailMessage
from pathlib import Path
from typing import cast

from files.extraction.readers.html import readable
from files.extraction.readers.result import Extracted, whole

_HEADERS = ("From", "To", "Cc", "Date", "Subject")


def read(path: Path, media_type: str) -> Extracted:
    """The headers that people read, the plain text (else the HTML's), and the names of the attachments."""
    with path.open("rb") as source:
        message = message_from_binary_file(source, policy=policy.default)
    return whole(media_type, _parts(message))


def _parts(message: EmailMessage) -> Iterator[str]:
    for name in _HEADERS:
        if value := message.get(name):
            yield f"{name}: {value}\n"
    yield "\n"
    body = message.get_body(("plain", "html"))
    if body is not None:
        content = _content(cast(EmailMessage, body))
        yield from readable(content) if body.get_content_subtype() == "html" else [content]
    names = [part.get_filename() or part.get_content_type() for part in message.iter_attachments()]
    if names:
        yield "\n\nAttachments: " + ", ".join(names)


def _content(part: EmailMessage) -> str:
    try:
        return str(part.get_content())
    except LookupError:  # a charset that nobody knows
        data = part.get_payload(decode=True)
        return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""
