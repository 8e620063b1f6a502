"""Files in other files that a password still closes: named, and opened one password after another.

What says that a file is closed stands in the text of the file that holds it, so nothing else has to be kept.
"""

import re
from dataclasses import replace

from readers.formats.media_types import MAIL, MBOX, MSG, ZIP
from readers.formats.result import SENTENCES, Extracted, ReaderSentence, gettext_noop, paged

CODES = ("locked_inside", "wrong_inside", "untried_inside")
STILL_CLOSED = gettext_noop("Files in it that a password still closes: {names}. Enter the password on its page.")
_NAMED = 10  # of them
_WHY = "|".join(re.escape(f"[Not read: {SENTENCES[code]}]") for code in CODES)
_PROTECTED = f"\n\n[Not read: {SENTENCES['protected']}]"
_CLOSED = re.compile(rf"^(?:# (?P<member>.+)\n\n|Attachment (?P<attached>.+): )(?:{_WHY})", re.M)


def closed_names(found: Extracted) -> list[str]:
    """Return the names of what is closed in an archive or a letter, in the order of the text."""
    holds = found.media_type in (ZIP, MAIL, MBOX, MSG)
    return [match["member"] or match["attached"] for match in _CLOSED.finditer(found.text)] if holds else []


def refusal(found: Extracted, password: str) -> str:
    """The code of the error where nothing but protected files is in an archive; empty if there is more."""
    texts = [found.text[start:end] for start, end in found.spans]
    locked = sum(bool(_CLOSED.fullmatch(text)) for text in texts)
    if locked + sum(text.endswith(_PROTECTED) for text in texts) < len(texts):
        return ""
    return ("wrong_password" if password else "encrypted") if locked else "protected"


def closed_notice(found: Extracted) -> ReaderSentence | None:
    """Return the sentence that names the closed files; None if there are none."""
    closed = closed_names(found)
    more = ", …" if len(closed) > _NAMED else ""
    return ReaderSentence(STILL_CLOSED, {"names": ", ".join(closed[:_NAMED]) + more}) if closed else None


def with_opened(found: Extracted, before: str, spans: list[list[int]]) -> Extracted:
    """The same; members of an archive that this reading's password does not open have the text of the reading before,
    whose text and spans these are, if that one opened more of them."""
    if found.media_type != ZIP or len(spans) != len(found.spans) or not closed_names(found):
        return found
    now = [found.text[start:end] for start, end in found.spans]
    then = [before[start:end] for start, end in spans]
    texts = [old if _opens_more(old, new) else new for old, new in zip(then, now, strict=True)]
    return replace(paged(ZIP, texts), left_out=found.left_out)


def _opens_more(old: str, new: str) -> bool:
    """Whether both are of the same member, and less of the old one is closed."""
    same = old.partition("\n")[0] == new.partition("\n")[0]
    return same and len(_CLOSED.findall(old)) < len(_CLOSED.findall(new))
