"""Facts for pages and programs: lists, their sources, and the proposals below answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, QuerySet

from accounts.models import User
from chat.memory.models import Fact, FactSource
from chat.memory.services import contradicted_facts
from chat.models import Conversation

PAGE_SIZE = 50  # facts on one page
MAX_SEARCH_LENGTH = 100  # characters
MAX_SHOWN_SOURCES = 5  # sources of one fact in a list


@dataclass(frozen=True, slots=True)
class ShownSource:
    """The words on which a fact rests. `message` and `conversation` are None once the message is deleted."""

    quote: str
    message: UUID | None
    conversation: UUID | None


@dataclass(frozen=True, slots=True)
class ShownFact:
    """A fact with its sources. `outdates`: the kept facts that it would outdate, for a proposal."""

    row: Fact
    sources: Sequence[ShownSource]
    outdates: Sequence[Fact] = ()


def list_facts(user: User, *, status: str = "", query: str = "") -> QuerySet[Fact]:
    """Return the person's facts, newest first, without forgotten ones unless `status` names them."""
    rows = Fact.objects.visible_to(user).select_related("project", "persona", "confirmed_by", "outdated_by")
    rows = rows.filter(status=status) if status else rows.exclude(status=Fact.Status.FORGOTTEN)
    for word in query[:MAX_SEARCH_LENGTH].replace("\0", " ").split():
        rows = rows.filter(text__icontains=word)
    return rows.order_by("-id")


def count_facts(user: User) -> dict[str, int]:
    """Return the number of the person's facts by status."""
    rows = Fact.objects.visible_to(user).order_by().values_list("status").annotate(number=Count("pk"))
    return dict(rows)


def with_sources(rows: Sequence[Fact], *, proposed: bool = False) -> list[ShownFact]:
    """Return the facts with their newest sources, in one query. `proposed`: also the facts that each would outdate."""
    by_fact: dict[UUID, list[ShownSource]] = {row.pk: [] for row in rows}
    sources = FactSource.objects.filter(fact__in=by_fact).select_related("message__conversation").order_by("-id")
    for source in sources:
        if len(by_fact[source.fact_id]) < MAX_SHOWN_SOURCES:
            by_fact[source.fact_id].append(_shown_source(source))
    return [ShownFact(row, by_fact[row.pk], contradicted_facts(row) if proposed else ()) for row in rows]


def _shown_source(source: FactSource) -> ShownSource:
    message = source.message
    if message is None or message.deleted is not None or message.conversation.deleted is not None:
        return ShownSource(source.quote, None, None)
    return ShownSource(source.quote, message.pk, message.conversation_id)


def proposals_below(conversation: Conversation, answers: Sequence[UUID]) -> dict[UUID, list[ShownFact]]:
    """Return the waiting proposals by answer. Makes no query if the conversation never had a proposal."""
    if not conversation.proposes or not answers:
        return {}
    rows = Fact.objects.filter(owner=conversation.owner_id, answer__in=answers, status=Fact.Status.PROPOSED)
    below: dict[UUID, list[ShownFact]] = {}
    for shown in with_sources(list(rows.select_related("owner", "project", "persona").order_by("id")), proposed=True):
        if shown.row.answer_id is not None:
            below.setdefault(shown.row.answer_id, []).append(shown)
    return below
