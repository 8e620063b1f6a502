"""Decide whether the person wrote quoted words themselves, so that they may support a fact.

A source is a message that the owner of the conversation has written and sent. Messages of runs, of programs that speak
OpenAI's protocol, of imports and of copies of other people's conversations have no turn of the owner, so they
are not sources. Some words of a message are not the person's own: quoted lines, code blocks, passages in quotation
marks, and text of an earlier file, answer or tool result of the conversation.
"""

import re
import unicodedata
from collections.abc import Sequence
from uuid import UUID

from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Left

from chat.ledger.models import ModelCall
from chat.memory.terms import stems
from chat.models import Attachment, Conversation, Message, Turn
from chat.models.tree import ids_down_to
from files.models import FileText
from projects.models import ProjectFile
from projects.planner.models import RunStep

MAX_MESSAGES = 400  # newest messages of a branch that are searched for a source
MAX_FILES = 20  # files of a conversation that are compared
MAX_COMPARED_CHARACTERS = 400_000  # characters of answers, and of each file, that are compared
MIN_CONTENT_WORDS = 2  # content words of a quote, unless it is a whole message
MIN_COPIED_WORDS = 4  # a shorter quote may be in a file by chance
MAX_QUOTE = 1_000  # characters

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
# A quotation without an end goes to the end of its line, so the time is linear. It may contain opening marks.
_QUOTATION = re.compile(r"“[^”\n]*+(?:”|$)|„[^“”\n]*+(?:[“”]|$)|«[^»\n]*+(?:»|$)|\"[^\"\n]*+\"", re.M)
_QUOTATION_MARKS = str.maketrans({"’": "'", "‘": "'", "´": "'", "…": " ", "“": '"', "”": '"', "„": '"'})


def remove_quotations(text: str) -> str:
    """Return the text without quoted lines, code blocks and quotations of several words."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if fence:
            fence = "" if match and match[1].startswith(fence) else fence
        elif match:
            fence = match[1]
        elif not line.lstrip().startswith((">", "|")):
            lines.append(line)
    return _QUOTATION.sub(
        lambda quoted: quoted[0] if len(quoted[0].split()) < MIN_COPIED_WORDS else " ", "\n".join(lines)
    )


def normalise_text(text: str) -> str:
    """Return the text in lower case, in one line, with one kind of quotation marks and apostrophes."""
    return " ".join(unicodedata.normalize("NFC", text).translate(_QUOTATION_MARKS).casefold().split())


def owner_messages(conversation: Conversation) -> "Sequence[Message]":
    """Return the owner's messages among the newest `MAX_MESSAGES` of the displayed branch, newest first."""
    if conversation.leaf_id is None:
        return []
    return _sent_by_owner(conversation, ids_down_to(conversation.leaf_id, 0)[:MAX_MESSAGES])


def _sent_by_owner(conversation: Conversation, ids: Sequence[UUID]) -> list[Message]:
    turns = Turn.objects.filter(user_message=OuterRef("pk"), options={})
    if conversation.imported_from:
        # An import has turns, too, perhaps of another person. A turn of here is live, or has a call in the ledger.
        calls = Exists(ModelCall.objects.filter(turn=OuterRef("pk")))
        turns = turns.filter(calls | Q(status__in=Turn.LIVE))
    of_run = RunStep.objects.filter(turn__user_message=OuterRef("pk"))
    rows = Message.objects.filter(pk__in=ids, role=Message.Role.USER)
    rows = rows.filter(Exists(turns)).exclude(Exists(of_run)).order_by("-depth")
    return [row for row in rows if not (row.continues or row.files_alone)]


def find_source(conversation: Conversation, quote: str, *, among: Sequence[UUID] | None = None) -> Message | None:
    """Return the newest message in which the owner wrote the quoted words; None if there is none.

    `among`: ids of the messages to look at, by default those of the displayed branch.
    """
    words = normalise_text(quote)
    if not words or len(quote) > MAX_QUOTE:
        return None
    rows = owner_messages(conversation) if among is None else _sent_by_owner(conversation, among)
    for row in rows:
        own = normalise_text(remove_quotations(row.text))
        if not _contains_words(own, words) or (
            len(stems(quote)) < MIN_CONTENT_WORDS and own.strip(".! ") != words.strip(".! ")
        ):
            continue
        if len(words.split()) >= MIN_COPIED_WORDS and _is_copied(conversation, row, words):
            continue
        return row
    return None


def _contains_words(text: str, words: str) -> bool:
    """Return whether the text contains the words as whole words."""
    at = text.find(words)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(words) : at + len(words) + 1]
        if not ((before.isalnum() and words[0].isalnum()) or (after.isalnum() and words[-1].isalnum())):
            return True
        at = text.find(words, at + 1)
    return False


def _is_copied(conversation: Conversation, message: Message, words: str) -> bool:
    """Return whether a file of the conversation, or an answer or tool result above the message, has these words."""
    above = ids_down_to(message.pk, 0)[1:MAX_MESSAGES]
    read = 0
    for row in Message.objects.filter(pk__in=above, role=Message.Role.ASSISTANT).order_by("-depth").iterator(50):
        for part in row.parts:
            text = part.get("text", "")[: MAX_COMPARED_CHARACTERS - read]
            read += len(text)
            if words in normalise_text(text):
                return True
        if read >= MAX_COMPARED_CHARACTERS:
            break
    attached = Attachment.objects.filter(message__conversation=conversation).values("file")
    in_project = ProjectFile.objects.filter(project=conversation.project_id).values("file")
    files = FileText.objects.filter(Q(file__in=attached) | Q(file__in=in_project)).order_by("-pk")
    texts = files.values_list(Left("text", MAX_COMPARED_CHARACTERS), flat=True)[:MAX_FILES]
    return any(words in normalise_text(text) for text in texts.iterator(1))
