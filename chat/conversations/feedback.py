"""Store feedback on answers, and describe judged answers for administrators.

Administrators never read messages in the admin. They read the reasons and the comment of the feedback, which are meant
for them, and numbers and states of the prompt, without titles and texts.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from django.db import transaction
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import User
from chat.models import Message, Turn
from chat.models.conversation_state import require_owner
from chat.prompts import report as reports
from chat.prompts.cards import totals
from chat.prompts.wording import GROUPS, KINDS, SECTIONS, state_of
from core.errors import ProductError
from core.i18n import grouped, percent
from core.sentences import Sentence
from core.text import unix_lines

MAX_COMMENT = 1_000  # characters
# To add a reason: 1. Add it here. 2. Add its label to `REASON_LABELS`.
REASONS_BY_FEEDBACK: dict[str, tuple[str, ...]] = {
    Message.Feedback.GOOD: ("correct", "complete", "clear", "well_sourced"),
    Message.Feedback.BAD: ("incorrect", "incomplete", "off_task", "badly_sourced", "unseen", "too_long", "refused"),
}
REASON_LABELS: dict[str, Promise] = {
    "correct": gettext_lazy("It is correct"),
    "complete": gettext_lazy("It is complete"),
    "clear": gettext_lazy("It is clear"),
    "well_sourced": gettext_lazy("Its sources support it"),
    "incorrect": gettext_lazy("It is not correct"),
    "incomplete": gettext_lazy("Something is missing"),
    "off_task": gettext_lazy("It does not do what I asked"),
    "badly_sourced": gettext_lazy("Its sources are missing or wrong"),
    "unseen": gettext_lazy("It did not see what I gave it"),
    "too_long": gettext_lazy("It is too long"),
    "refused": gettext_lazy("It should not have refused"),
}


@transaction.atomic
def give_feedback(
    *, user: User, message: Message, feedback: str, reasons: Sequence[str] | None = None, comment: str | None = None
) -> Message:
    """Store the feedback on an answer; an empty text removes it with its reasons and its comment.

    Without `reasons` or `comment` (None), those of the same feedback stay. Raises `not_an_answer`, `edited_answer`,
    `bad_feedback`, `bad_reason` and `comment_too_long`.
    """
    require_owner(user, message.conversation)
    if message.role != Message.Role.ASSISTANT:
        raise ProductError("not_an_answer", "Only answers can be judged.")
    if message.edited:
        raise ProductError("edited_answer", "You have edited this answer. Judge the version that the model wrote.")
    if feedback not in Message.Feedback.values:
        raise ProductError("bad_feedback", "Feedback is “good”, “bad”, or empty to remove it.")
    if feedback != message.feedback:
        message.feedback_reasons, message.feedback_comment = [], ""
    if reasons is not None:
        message.feedback_reasons = _check_reasons(feedback, reasons)
    if comment is not None:
        message.feedback_comment = _check_comment(feedback, comment)
    message.feedback = feedback
    message.feedback_at = timezone.now() if feedback else None
    message.save(update_fields=["feedback", "feedback_reasons", "feedback_comment", "feedback_at"])
    return message


def _check_reasons(feedback: str, reasons: Sequence[str]) -> list[str]:
    """Return the reasons once each, in the order of the form."""
    possible = REASONS_BY_FEEDBACK.get(feedback, ())
    unknown = next((reason for reason in reasons if reason not in possible), None)
    if unknown is not None:
        sentence = Sentence(
            "“{reason}” is not a reason for this feedback. The reasons are: {possible}.",
            reason=unknown[:50],
            possible=", ".join(possible) or "–",
        )
        raise ProductError("bad_reason", sentence)
    return [reason for reason in possible if reason in reasons]


def _check_comment(feedback: str, comment: str) -> str:
    comment = unix_lines(comment).strip() if feedback else ""
    if len(comment) > MAX_COMMENT:
        sentence = Sentence("Shorten the comment to {most} characters.", most=MAX_COMMENT)
        raise ProductError("comment_too_long", sentence)
    return comment


class ReasonChoice(NamedTuple):
    """A reason in the form."""

    value: str
    words: str
    chosen: bool


def reason_choices(message: Message) -> list[ReasonChoice]:
    """Return the reasons for the feedback that the message has."""
    chosen = message.feedback_reasons
    return [
        ReasonChoice(each, str(REASON_LABELS[each]), each in chosen)
        for each in REASONS_BY_FEEDBACK.get(message.feedback, ())
    ]


def describe_reasons(message: Message) -> str:
    """Return the reasons of a judged answer, in words. A reason of an earlier version is shown as it is stored."""
    return ", ".join(str(REASON_LABELS.get(each, each)) for each in message.feedback_reasons)


class SeenPart(NamedTuple):
    """A part of a prompt in words: its name, its size, and its share of the room."""

    name: str
    tokens: str
    share: str


class SeenReport(NamedTuple):
    """The prompt of a judged answer in numbers and states, without titles and texts.

    `parts` are the groups of the prompt. `states` are sentences such as “3 × File: by search”.
    """

    model: str
    used: str
    parts: list[SeenPart]
    states: list[str]
    notes: list[str]


def describe_seen_prompt(turn: Turn) -> SeenReport | None:
    """Return the report of the turn's last model call for administrators; None if it has made none."""
    report = reports.of_turn(turn)
    if report is None:
        return None
    states = Counter(
        f"{KINDS.get(each['kind']) or SECTIONS.get(each['kind'], each['kind'])}: {state_of(each)}"
        for each in report["sources"]
        if each["kind"] in KINDS
    )
    parts = [
        SeenPart(str(GROUPS[group]), grouped(tokens), percent(tokens, report["limit"]))
        for group, tokens in totals(report).items()
    ]
    missing = [_("%(count)s older messages were not loaded") % {"count": grouped(report["unloaded"])}]
    return SeenReport(
        model=report["model"],
        used=_("%(used)s of %(limit)s tokens, %(percent)s")
        % {
            "used": grouped(report["used"]),
            "limit": grouped(report["limit"]),
            "percent": percent(report["used"], report["limit"]),
        },
        parts=parts,
        states=[*(f"{count} × {words}" for words, count in states.items()), *(missing if report["unloaded"] else ())],
        notes=[str(Sentence.load(report["refused"]))] if report["refused"] else [],
    )
