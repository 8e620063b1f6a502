"""Learn limits of a model from evidence: its window, its limit on images, and how its server counts.

A limit is learnt only from a proof: a refusal that names the limit, a window that the server reports, or three calls of
growing length with the same count. An admin sees the evidence, and can delete the limits.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypedDict

from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from core.audit.services import record
from core.errors import ModelError
from core.i18n import grouped
from core.permissions import require_right
from llm.models import UNKNOWN_WINDOW, Model
from llm.services import (
    LEARNT_FACTS,
    LEARNT_IMAGES,
    LEARNT_WINDOW,
    clear_learnt_facts,
    clear_learnt_images,
    clear_learnt_window,
    known_values,
    reported_values,
    shared_client,
)
from llm.truncation import (
    MAX_RATIO,
    MIN_SERVER_WINDOW,
    CallReported,
    ReportedCounts,
    SentTokens,
    Truncation,
    TruncationSuspicion,
    detect_truncation,
    is_low,
)
from llm.types.model_call import AllocatedWindow, Usage

MIN_STORED_WINDOW = 256  # tokens; a row accepts no smaller window

EvidenceKind = Literal["refused", "served", "counted"]
WindowSource = Literal["typed", "server", "refused", "served", "counted", "learnt", "known", "default"]


class EvidenceJson(TypedDict, total=False):
    """The stored form of `Evidence`; empty without evidence."""

    kind: EvidenceKind
    limit: int
    sent: list[int]
    on: str
    requested: int | None
    server: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of a learnt limit. Stored as JSON.

    `limit`: the number in the refusal or report. `sent`: our counts of the prompts that led to it, in tokens or for a
    limit on images in images. `requested`: the prompt's tokens by the refusal. `server`: the software that reported the
    limit. `on`: the time in ISO 8601.
    """

    kind: EvidenceKind
    limit: int
    sent: tuple[int, ...]
    on: str
    requested: int | None = None
    server: str = ""

    @classmethod
    def from_json(cls, stored: EvidenceJson) -> "Evidence | None":
        """Read the stored form; None if it is empty."""
        if not stored:
            return None
        return cls(
            kind=stored["kind"],
            limit=stored["limit"],
            sent=tuple(stored["sent"]),
            on=stored["on"],
            requested=stored.get("requested"),
            server=stored.get("server", ""),
        )

    def as_json(self) -> EvidenceJson:
        """Return the stored form."""
        return {
            "kind": self.kind,
            "limit": self.limit,
            "sent": list(self.sent),
            "on": self.on,
            "requested": self.requested,
            "server": self.server,
        }

    @property
    def day(self) -> str:
        return date_format(timezone.localtime(datetime.fromisoformat(self.on)).date())


def _now() -> str:
    return timezone.now().isoformat(timespec="seconds")


def _store_window(model: Model, window: int, evidence: Evidence) -> bool:
    """Store the window in the row and in memory, if it is smaller than the window in force. Return whether it is."""
    window = max(MIN_STORED_WINDOW, window)
    with transaction.atomic():
        row = Model.objects.select_for_update(of=("self",)).filter(pk=model.pk).first()
        if row is None or window >= row.window:
            return False
        row.learnt_window = window
        row.window_evidence = evidence.as_json()
        row.save(update_fields=["learnt_window", "window_evidence"])
    model.learnt_window = row.learnt_window
    model.window_evidence = row.window_evidence
    return True


def names_window(refusal: ModelError, counted: int, answer: int) -> bool:
    """Return whether a refusal names a limit that proves the model's window.

    The limit must be large enough for a window, and not larger than the request. `counted`: tokens of the prompt by our
    count. `answer`: tokens of the longest answer that the request allowed.
    """
    if refusal.limit is None or refusal.limit < MIN_STORED_WINDOW or refusal.is_account_limit or not refusal.proven:
        return False
    max_limit = max(refusal.requested or 0, round(MAX_RATIO * counted), counted + answer)
    return refusal.limit <= max_limit


def learn_refused_window(model: Model, refusal: ModelError, counted: int) -> bool:
    """Learn the window that a refusal names. Return whether it is smaller than the window in force.

    The caller must check `names_window` first.
    """
    limit = refusal.limit
    if limit is None:
        return False
    return _store_window(model, limit, Evidence("refused", limit, (counted,), _now(), requested=refusal.requested))


def learn_served_window(model: Model, allocated_window: AllocatedWindow, counted: int) -> bool:
    """Learn the window that a server has allocated for the model.

    Return whether it is smaller than the one in force.
    """
    if allocated_window.window is None:
        return False
    evidence = Evidence("served", allocated_window.window, (counted,), _now(), server=allocated_window.server)
    return _store_window(model, max(MIN_SERVER_WINDOW, allocated_window.window), evidence)


def learn_image_limit(model: Model, limit: int, sent: int) -> bool:
    """Learn the limit on images from the refusal of a prompt with `sent` images. Return whether it is new or lower."""
    if not 0 < limit < sent:
        return False
    evidence = Evidence("refused", limit, (sent,), _now()).as_json()
    with transaction.atomic():
        row = Model.objects.select_for_update(of=("self",)).filter(pk=model.pk).first()
        if row is None or (row.image_limit is not None and row.image_limit <= limit):
            return False
        row.learnt_max_images = limit
        row.images_evidence = evidence
        row.save(update_fields=["learnt_max_images", "images_evidence"])
    model.learnt_max_images = limit
    model.images_evidence = evidence
    return True


@transaction.atomic
def record_calls(model: Model, calls: list[CallReported]) -> None:
    """Store the provider's counts of these calls, oldest first. Learn the window if the calls prove it.

    The row is locked, so that concurrent answers do not overwrite each other's counts.
    """
    row = Model.objects.select_for_update(of=("self",)).filter(pk=model.pk).first()
    if row is None or not calls:
        return
    counts = ReportedCounts.from_json(row.reported_counts)
    for call in calls:
        counts = counts.with_report(call)
    row.reported_counts = counts.as_json()
    row.save(update_fields=["reported_counts"])
    if (proven := counts.proven_window()) is not None:
        window, proof = proven
        _store_window(model, window, Evidence("counted", window, tuple(counted for counted, _ in proof), _now()))


async def check_truncation(
    model: Model, sent: SentTokens, usage: Usage
) -> tuple[Truncation | TruncationSuspicion | None, AllocatedWindow | None]:
    """Return the truncation that the reported tokens show, and the server's allocated window; each may be None.

    The server is asked only if it reports fewer tokens than were sent.
    """
    counts = ReportedCounts.from_json(model.reported_counts)
    if not is_low(counts, sent, usage):
        return None, None
    allocated_window = await shared_client(model.provider).allocated_window(model.name)
    truncation = detect_truncation(
        counts, sent, usage, tokenizer_known=bool(model.tokenizer), allocated=allocated_window
    )
    return truncation, allocated_window


@transaction.atomic
def forget_learnt(*, user: AbstractUser | None, model: Model) -> None:
    """Delete the learnt limits, counts and deviations of a model. Later answers may teach them again.

    A deviation that an administrator has set stays: `learnt_on` names only the learnt ones.
    """
    require_right(user, "change", model)
    row = Model.objects.select_for_update(of=("self",)).get(pk=model.pk)
    before = {"learnt_window": row.learnt_window, "learnt_max_images": row.learnt_max_images, **row.learnt_on}
    for each in (row, model):
        clear_learnt_window(each)
        clear_learnt_images(each)
        clear_learnt_facts(each)
    row.save(update_fields=[*LEARNT_WINDOW, *LEARNT_IMAGES, *LEARNT_FACTS])
    record(user=user, action="model.learnt_forgotten", row=model, name=str(model), changes=before)


def window_source(model: Model) -> WindowSource:
    """Return the source of the window in force."""
    if model.window < model.context_window:
        evidence = Evidence.from_json(model.window_evidence)
        return evidence.kind if evidence is not None else "learnt"
    if "context_window" in model.set_by_hand:
        return "typed"
    if "context_window" in reported_values(model):
        return "server"
    if model.context_window == UNKNOWN_WINDOW and "context_window" not in known_values(model):
        return "default"
    return "known"


def describe_window_source(model: Model) -> str:
    """Return the source of the window in force as text for people."""
    return describe_source(window_source(model), Evidence.from_json(model.window_evidence))


def describe_source(source: str, evidence: Evidence | None = None) -> str:
    """Return a source of a window as text. `evidence`: the evidence of a learnt window."""
    match source:
        case "":
            return ""  # in reports of an earlier version
        case "profile":
            return _("as the budget profile allows")
        case "conversation":
            return _("for this conversation only, since its provider refused a longer prompt")
        case "typed":
            return _("typed by an admin")
        case "server":
            return _("as its server says")
        case "known":
            return _("known for this model")
        case "default":
            return _("assumed, since nothing is known")
        case _:
            return describe_evidence(evidence)


def describe_evidence(evidence: Evidence | None) -> str:
    """Return the evidence of a learnt limit as a part of a sentence."""
    if evidence is None:
        return _("learnt by an earlier version")
    limit = grouped(evidence.limit)
    match evidence.kind:
        case "refused":
            return _("learnt: a refusal on %(day)s named %(limit)s") % {"day": evidence.day, "limit": limit}
        case "served":
            return _("learnt: on %(day)s its server reported a window of %(limit)s") % {
                "day": evidence.day,
                "limit": limit,
            }
    prompts = ", ".join(map(grouped, evidence.sent))
    return _("learnt: on %(day)s it reported %(limit)s tokens for prompts of %(prompts)s") % {
        "day": evidence.day,
        "limit": limit,
        "prompts": prompts,
    }
