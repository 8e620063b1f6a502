"""Find nested files that no password has opened yet, and merge readings with different passwords.

The text of the outer file names these files, so nothing else has to be stored.
"""

import re
from dataclasses import replace

from readers.formats.media_types import MAIL, MBOX, MSG, ZIP
from readers.formats.result import SENTENCES, Extracted, ReaderSentence, gettext_noop, paged_result

CODES = ("locked_inside", "wrong_inside", "untried_inside")
STILL_CLOSED = gettext_noop("Files in it that still need a password: {names}. Enter the password on its page.")
_MAX_NAMED_FILES = 10  # closed files that a sentence names
_REASON_PATTERN = "|".join(re.escape(f"[Not read: {SENTENCES[code]}]") for code in CODES)
_PROTECTED = f"\n\n[Not read: {SENTENCES['protected']}]"
_CLOSED = re.compile(rf"^(?:# (?P<member>.+)\n\n|Attachment (?P<attached>.+): )(?:{_REASON_PATTERN})", re.M)


def closed_names(extracted: Extracted) -> list[str]:
    """Return the names of the closed files in an archive or e-mail, in the order of the text."""
    holds = extracted.media_type in (ZIP, MAIL, MBOX, MSG)
    return [match["member"] or match["attached"] for match in _CLOSED.finditer(extracted.text)] if holds else []


def refusal(extracted: Extracted, password: str) -> str:
    """Return the error code if all files in the archive are protected, else ""."""
    texts = [extracted.text[start:end] for start, end in extracted.spans]
    locked = sum(bool(_CLOSED.fullmatch(text)) for text in texts)
    if locked + sum(text.endswith(_PROTECTED) for text in texts) < len(texts):
        return ""
    return ("wrong_password" if password else "encrypted") if locked else "protected"


def closed_notice(extracted: Extracted) -> ReaderSentence | None:
    """Return the sentence that names the closed files, or None if all are open."""
    closed = closed_names(extracted)
    more = ", …" if len(closed) > _MAX_NAMED_FILES else ""
    return ReaderSentence(STILL_CLOSED, {"names": ", ".join(closed[:_MAX_NAMED_FILES]) + more}) if closed else None


def with_opened(extracted: Extracted, previous_text: str, spans: list[list[int]]) -> Extracted:
    """Return an archive, with texts from the previous reading for members that only the previous password opened.

    `previous_text` and `spans`: the text and the spans of the previous reading.
    """
    if extracted.media_type != ZIP or len(spans) != len(extracted.spans) or not closed_names(extracted):
        return extracted
    current = [extracted.text[start:end] for start, end in extracted.spans]
    previous = [previous_text[start:end] for start, end in spans]
    texts = [old if _opens_more(old, new) else new for old, new in zip(previous, current, strict=True)]
    return replace(paged_result(ZIP, texts), left_out=extracted.left_out)


def _opens_more(old: str, new: str) -> bool:
    """Return whether both texts belong to the same member, and fewer files in the old text are closed."""
    same = old.partition("\n")[0] == new.partition("\n")[0]
    return same and len(_CLOSED.findall(old)) < len(_CLOSED.findall(new))
