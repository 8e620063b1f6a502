"""Read what is remembered for one prompt, and choose the facts of its memory section.

1. `read_memory` reads the profile, the pinned facts, the facts of the conversation and those that match the question,
   once per turn. It makes four queries, however many facts there are.
2. `choose_section` decides with `chat.context.memory`, for each model call of the turn.
3. `store_use` stores the facts that a message added, so that they stay for the next messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import transaction
from django.db.models import BigIntegerField, F, Func, IntegerField, QuerySet, Value
from django.utils import timezone

from accounts.models import User
from chat.context.memory import ChosenMemory, choose_memory, memory_budget
from chat.context.types import Memory, MemoryFact, Reason
from chat.memory.models import ConversationFact, Fact, Profile
from chat.memory.services import allowed_proposals
from chat.memory.terms import search_keys, stems
from chat.models import Conversation
from chat.models.conversation_state import ChatScope
from llm.tokens import NamedTokenizer
from personas.models import BudgetProfile
from personas.texts import Texts
from workspace.models import Workspace

MAX_MATCHES = 40  # best matches of a question that are ranked
MAX_NAMED_WITHOUT_ROOM = 10  # facts without room in a report


@dataclass(frozen=True, slots=True)
class ConversationUse:
    """A fact of the conversation: chosen while it had the summary `summary`, or left out by its person."""

    fact: Fact
    summary: str
    left_out: bool


@dataclass(frozen=True, slots=True)
class PersonMemory:
    """Profile and facts of a person, that a prompt may need.

    `off`: the reason why none are sent. `proposals`: whether models may propose facts. `searches`: whether models may
    search the person's other conversations.
    """

    about: str = ""
    answering: str = ""
    pinned: Sequence[Fact] = ()
    uses: Sequence[ConversationUse] = ()
    matches: Sequence[Fact] = ()
    off: Reason | None = None
    proposals: Profile.Proposals = Profile.Proposals.OFF
    searches: bool = False

    @property
    def empty(self) -> bool:
        return not (self.about or self.answering or self.pinned or self.uses or self.matches)


NO_MEMORY = PersonMemory()


def read_memory(
    user: User, scope: ChatScope, question: str, workspace: Workspace, *, stored: bool = True
) -> PersonMemory:
    """Return what is remembered for the next prompt of the conversation.

    `stored`: whether the person may have a stored profile; if False, no query is made. Temporary conversations and
    requests of programs have no memory at all.
    """
    conversation = scope.conversation
    origin = conversation.origin if conversation is not None else Conversation.Origin.WORKSPACE
    if origin != Conversation.Origin.WORKSPACE:
        return NO_MEMORY
    row = Profile.objects.filter(person=user).first() if stored else None
    stored = row is not None  # a person with facts has a profile, even if nothing is written there
    profile = row or Profile(person=user)
    off = _reason_off(profile, scope, workspace)
    proposals = Profile.Proposals.OFF if off else allowed_proposals(profile, workspace)
    # `Profile.in_prompts` is about what is remembered alone.
    searches = profile.search_conversations and workspace.memory and _reason_off_here(scope) is None
    if off:
        return PersonMemory(off=off if stored or workspace.memory_answering else None, searches=searches)
    answering = profile.answering or workspace.memory_answering
    if not stored:
        return PersonMemory(answering=answering, proposals=proposals)
    project = scope.project.pk if scope.project is not None else None
    persona = scope.persona.pk if scope.persona is not None else None
    facts = Fact.objects.visible_to(user).applying(project=project, persona=persona)
    title = conversation.title if conversation is not None else ""
    return PersonMemory(
        about=profile.about,
        answering=answering,
        pinned=list(facts.filter(pinned=True).order_by("id")),
        uses=_read_uses(conversation, facts) if conversation is not None and not conversation._state.adding else (),
        matches=find_matches(user, facts, f"{question}\n{title}"),
        proposals=proposals,
        searches=searches,
    )


def _reason_off(profile: Profile, scope: ChatScope, workspace: Workspace) -> Reason | None:
    if not workspace.memory:
        return "memory_off_workspace"
    if not profile.in_prompts:
        return "memory_off"
    return _reason_off_here(scope)


def _reason_off_here(scope: ChatScope) -> Reason | None:
    """Return why the persona or the conversation has no memory; None if it may have one."""
    if scope.persona is not None and not scope.persona.memory:
        return "memory_off_persona"
    return None if scope.conversation is None or scope.conversation.memory_in_prompts else "memory_off_here"


def _read_uses(conversation: Conversation, facts: QuerySet[Fact]) -> list[ConversationUse]:
    rows = ConversationFact.objects.filter(conversation=conversation, fact__in=facts).select_related("fact")
    return [ConversationUse(row.fact, str(row.summary or ""), row.left_out) for row in rows.order_by("id")]


def find_matches(user: User, facts: QuerySet[Fact], text: str, limit: int = MAX_MATCHES) -> list[Fact]:
    """Return the facts that share words with the text, best first. The index of terms selects the candidates.

    A word counts more if fewer of the candidates have it. Among equals, newer facts come first.
    """
    keys = search_keys(user.pk, stems(text))
    if not keys:
        return []
    shared = Func(
        F("terms"),
        Value(keys, ArrayField(BigIntegerField())),
        template="cardinality(ARRAY(SELECT unnest(%(expressions)s)))",
        arg_joiner=") INTERSECT SELECT unnest(",
        output_field=IntegerField(),
    )
    rows = list(facts.filter(terms__overlap=keys).alias(shared=shared).order_by("-shared", "-id")[:limit])
    present = [{*row.terms} & {*keys} for row in rows]
    counts: dict[int, int] = {}
    for terms in present:
        for term in terms:
            counts[term] = counts.get(term, 0) + 1
    scores = [sum(log(1 + len(rows) / counts[term]) for term in terms) for terms in present]
    ranked = sorted(zip(scores, rows, strict=True), key=lambda each: -each[0])  # stable: newest first among equals
    return [row for _, row in ranked]


def choose_section(
    memory: PersonMemory,
    *,
    summary: str,
    profile: BudgetProfile,
    input_limit: int,
    tokenizer: NamedTokenizer,
    texts: Texts,
    wrap: str,
) -> ChosenMemory | None:
    """Return the memory section of a prompt; None if there is nothing to send.

    `summary`: the id of the summary in force, empty without one. `wrap`: see `chat.context.types.Memory`.
    """
    if memory.off or memory.empty:
        return None
    left_out = {use.fact.pk for use in memory.uses if use.left_out}
    pinned = [
        _memory_fact(row, "pinned_fact", tokenizer, required=True) for row in memory.pinned if row.pk not in left_out
    ]
    about = "\n".join(
        texts.fill(name, text=text)
        for name, text in (("memory_about", memory.about), ("memory_answering", memory.answering))
        if text
    )
    section = Memory(texts["memory"], about, tuple(pinned), wrap, tokenizer.count(about) if about else None)
    chosen = [
        _memory_fact(use.fact, "matched_before", tokenizer)
        for use in memory.uses
        if not use.left_out and use.summary == summary
    ]
    matches = [_memory_fact(row, "matches", tokenizer) for row in memory.matches if row.pk not in left_out]
    choice = choose_memory(
        section,
        chosen=chosen,
        matches=matches,
        budget=memory_budget(input_limit, profile.memory_share, profile.memory_most),
        tokenizer=tokenizer,
        overhead=profile.message_overhead,
    )
    return choice._replace(without_room=choice.without_room[:MAX_NAMED_WITHOUT_ROOM])


def _memory_fact(row: Fact, reason: Reason, tokenizer: NamedTokenizer, *, required: bool = False) -> MemoryFact:
    return MemoryFact(str(row.pk), row.text, reason, tokenizer.count(row.text), required=required)


@transaction.atomic
def store_use(conversation: Conversation, choice: ChosenMemory, summary: str) -> None:
    """Store the facts that were added to the conversation, in their order, and the time of use of all facts."""
    if choice.added:
        ids = [UUID(fact.id) for fact in choice.added]
        rows = ConversationFact.objects.filter(conversation=conversation, fact__in=ids)
        rows.filter(left_out=False).delete()  # chosen under an earlier summary
        existing = Fact.objects.filter(pk__in=ids, status=Fact.Status.KEPT).values_list("pk", flat=True)
        present = {*existing}
        ConversationFact.objects.bulk_create(
            [
                ConversationFact(conversation=conversation, fact_id=pk, summary=summary or None)
                for pk in ids
                if pk in present
            ],
            ignore_conflicts=True,
        )
    sent = [fact.id for fact in choice.memory.facts]
    if sent:
        Fact.objects.filter(pk__in=sent).exclude(status=Fact.Status.FORGOTTEN).update(last_used=timezone.now())
