"""Read e-mail messages and mailboxes (MBOX)."""

import re
from collections import Counter
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import cast

from readers.formats.media_types import MBOX
from readers.formats.result import Extracted, paged_result, unpaged_result
from readers.nested.dispatch import NestedReader
from readers.nested.outlook import attachment
from readers.text.html import html_to_markdown

_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_MAX_DEPTH = 10  # levels of messages attached to messages
_SEPARATOR = re.compile(
    rb"^From [^\r\n]*\r?\n(?=[!-9;-~]+:)", re.M
)  # the line before each message in a mailbox (RFC 4155)


def read(path: Path, media_type: str, inner: NestedReader) -> Extracted:
    """Return each message with its main headers, its plain text (else the text of its HTML), and its attachments.

    A mailbox of several messages has one page for each message.
    """
    left_out: Counter[str] = Counter()
    content = path.read_bytes()
    messages = [letter for letter in _SEPARATOR.split(content) if letter.strip()] if media_type == MBOX else [content]
    texts = (
        "".join(_message_parts(message_from_bytes(letter, policy=policy.default), inner, left_out, 0))
        for letter in messages
    )
    if len(messages) > 1:
        return paged_result(media_type, texts, left_out=left_out)
    return unpaged_result(media_type, texts, left_out=left_out)


def _message_parts(message: EmailMessage, inner: NestedReader, left_out: Counter[str], depth: int) -> Iterator[str]:
    for name in _HEADERS:
        if value := message.get(name):
            yield f"{name}: {value}\n"
    yield "\n"
    body = message.get_body(("plain", "html"))
    if body is not None:
        yield from _content(cast(EmailMessage, body))
    attached = list(message.iter_attachments())
    if attached:
        yield "\n\nAttachments: " + ", ".join(part.get_filename() or part.get_content_type() for part in attached)
    for part in attached:
        yield from _attachment(part, inner, left_out, depth)


def _attachment(part: EmailMessage, inner: NestedReader, left_out: Counter[str], depth: int) -> Iterator[str]:
    name = part.get_filename() or part.get_content_type()
    if part.get_content_type() == "message/rfc822" and depth < _MAX_DEPTH:
        letter = part.get_payload()
        if isinstance(letter, list) and letter:
            yield f"\n\nAttachment {name}:\n\n"
            yield from _message_parts(cast(EmailMessage, letter[0]), inner, left_out, depth + 1)
    elif part.get_content_maintype() == "text":
        texts = _content(part)
        if any(text.strip() for text in texts):
            yield f"\n\nAttachment {name}:\n\n"
            yield from texts
    else:
        data = part.get_payload(decode=True)
        yield from attachment(data if isinstance(data, bytes) else b"", name, inner, left_out)


def _content(part: EmailMessage) -> list[str]:
    try:
        text = str(part.get_content())
    except LookupError:  # an unknown charset
        data = part.get_payload(decode=True)
        text = data.decode("utf-8", "replace") if isinstance(data, bytes) else ""
    # Most links in messages are long tracking addresses.
    return html_to_markdown(text, links=False) if part.get_content_subtype() == "html" else [text]
