"""Look for facts in conversations that are finished, with a model, as jobs.

1. `begin_due` stores a job for each conversation whose owner allows proposals, if it has unread messages and nothing
   was written in it for `FINISHED_AFTER`.
2. `run` claims the job and reads the person's messages since the last pass, up to `MAX_READ_CHARACTERS` characters. The
   model gets only these messages, without answers, files or tool results.
3. Each entry of the model's list goes through `chat.memory.services.propose`, which checks the quoted words.

A pass makes one call of the model that writes summaries, else of the conversation's own model. The call is in the
ledger and counts to the person's limits. A person gets at most `MAX_PASSES_PER_DAY` passes a day.
"""

import asyncio
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

from django.db.models import F, Q
from django.utils import timezone

from accounts.access.rights import rights_of
from chat.ledger.asking import Billing, OwnAnswer, ask
from chat.ledger.limits import require_not_used_up
from chat.ledger.models import ModelCall
from chat.memory.models import Fact, MemoryPass, Profile
from chat.memory.services import allowed_proposals, may_remember, propose
from chat.memory.sources import owner_messages, remove_quotations
from chat.models import Conversation, Message, Turn
from chat.models.conversation_state import scope_of
from core.background import on_database
from core.errors import ProductError
from core.jobs import JobKind
from llm.models import Model
from llm.services import with_fallbacks
from llm.types.model_call import ModelMessage, ModelRequest
from personas.services import rules_at
from personas.texts import Texts
from workspace.models.settings import workspace_at

FINISHED_AFTER = timedelta(minutes=30)
MAX_CONVERSATION_AGE = timedelta(
    days=7
)  # older conversations are not read, for example after a person has allowed proposals
MAX_AT_ONCE = 50  # jobs that one sweep begins
MAX_PASSES_PER_DAY = 40  # passes of one person
MAX_TRIES = 3
MAX_READ_CHARACTERS = 12_000  # characters of messages in one call
MAX_FACTS = 5  # proposals of one pass
MIN_MESSAGE_LENGTH = 20  # characters; shorter messages hold no facts worth a call
MAX_REPLY_LENGTH = 6_000  # characters
TIMEOUT = 120.0  # seconds

PASSES = JobKind(
    model=MemoryPass,
    task="chat.tasks.propose_facts",
    waiting=Q(status=MemoryPass.Status.QUEUED),
    running=Q(status=MemoryPass.Status.RUNNING),
    resumable=Q(status=MemoryPass.Status.RUNNING),
    on_claim={"status": MemoryPass.Status.RUNNING},
    tries_column="tries",
    max_tries=MAX_TRIES,
    swept=Q(status__in=(MemoryPass.Status.QUEUED, MemoryPass.Status.RUNNING)),
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PassWork:
    """A claimed pass with its messages, oldest first, and the model that reads them.

    `allowed`: the fallback models that may read them; None for all, if the workspace's model for summaries reads them.
    """

    row: MemoryPass
    model: Model
    messages: Sequence[Message]
    texts: Texts
    allowed: Collection[UUID] | None


def begin_due() -> int:
    """Store and hand over the passes that are due. Returns their number."""
    now = timezone.now()
    allowing = Profile.objects.exclude(proposals=Profile.Proposals.OFF).filter(person__is_active=True)
    finished = Conversation.objects.filter(
        owner__in=allowing.values("person"),
        origin=Conversation.Origin.WORKSPACE,
        state=Conversation.State.IDLE,
        deleted=None,
        memory_in_prompts=True,
        leaf__isnull=False,
        updated__range=(now - MAX_CONVERSATION_AGE, now - FINISHED_AFTER),
    )
    unread = Q(memory_pass=None) | Q(memory_pass__status=MemoryPass.Status.DONE) & (
        Q(memory_pass__read_to=None) | ~Q(memory_pass__read_to=F("leaf"))
    )
    rows = finished.filter(unread).order_by("updated")[:MAX_AT_ONCE]
    number = 0
    for conversation in rows.select_related("owner"):
        if _count_recent_passes(conversation.owner_id) >= MAX_PASSES_PER_DAY:
            continue
        job, _ = MemoryPass.objects.update_or_create(
            conversation=conversation, defaults={"status": MemoryPass.Status.QUEUED, "tries": 0, "heartbeat": now}
        )
        PASSES.hand_over(job.pk)
        number += 1
    return number


def _count_recent_passes(person: UUID) -> int:
    since = timezone.now() - timedelta(days=1)
    return ModelCall.objects.filter(person=person, purpose=ModelCall.Purpose.MEMORY, created__gte=since).count()


async def run(job_id: UUID) -> None:
    """Claim a pass and carry it out. If the model fails, the pass ends without facts."""
    work = await on_database(_claim, job_id)
    if work is None:
        return
    with PASSES.alive(work.row):
        entries: list[Mapping[str, str]] = []
        try:
            async with asyncio.timeout(TIMEOUT):
                reply = await with_fallbacks(work.model, partial(_ask, work), work.allowed)
            entries = parse_reply(reply)
        except (ProductError, TimeoutError) as error:
            code = getattr(error, "code", "it took too long")
            logger.info("no facts from conversation %s: %s", work.row.conversation_id, code)
        await on_database(_store, work, entries)


def give_up(row: MemoryPass) -> None:
    """End a pass that keeps losing its worker."""
    _end(row)


def _end(row: MemoryPass) -> None:
    leaf = Conversation.objects.filter(pk=row.conversation_id).values_list("leaf", flat=True).first()
    MemoryPass.objects.filter(pk=row.pk).update(status=MemoryPass.Status.DONE, read_to=leaf)


def _claim(job_id: UUID) -> PassWork | None:
    """Return the claimed pass, or None if there is nothing to read or no model may read it."""
    row = PASSES.claim(job_id, "conversation__owner", "conversation__persona__budget_profile", "conversation__project")
    if row is None:
        return None
    work = _load_work(row)
    if work is None:
        _end(row)
    return work


def _load_work(row: MemoryPass) -> PassWork | None:
    conversation = row.conversation
    person = conversation.owner
    profile = Profile.objects.filter(person=person).first()
    if (
        profile is None
        or allowed_proposals(profile, workspace_at()) == Profile.Proposals.OFF
        or not may_remember(conversation)
    ):
        return None
    scope = scope_of(conversation)
    if scope.persona is not None and not scope.persona.memory:
        return None
    messages = _read_new_messages(row)
    rights = rights_of(person)
    rules = rules_at()
    turns = Turn.objects.filter(conversation=conversation, model__isnull=False).order_by("-id")
    writer_id = rules.profile_for(scope.persona).summary_model_id
    writer = Model.objects.usable().filter(pk=writer_id).first() if writer_id else None
    own = Model.objects.usable().filter(pk__in=turns.values("model")[:1]).first()
    model = writer or (own if own is not None and rights.uses_model(own.pk) else None)
    if not messages or model is None:
        return None
    try:
        require_not_used_up(person.pk, None)
    except ProductError:
        return None
    return PassWork(row, model, messages, rules.texts, rights.models if writer is None else None)


def _read_new_messages(row: MemoryPass) -> list[Message]:
    """Return the person's newest messages since the last pass that one call may read, oldest first."""
    last = Message.objects.filter(pk=row.read_to, conversation=row.conversation).first() if row.read_to else None
    messages: list[Message] = []
    left = MAX_READ_CHARACTERS
    for message in owner_messages(row.conversation):
        words = remove_quotations(message.text).strip()
        if last is not None and message.depth <= last.depth:
            break
        if len(words) < MIN_MESSAGE_LENGTH:
            continue
        if len(words) > left:
            break
        messages.append(message)
        left -= len(words)
    return messages[::-1]


def pass_prompt(messages: Sequence[str], texts: Texts) -> tuple[ModelMessage, ModelMessage]:
    """Return the messages that ask a model for facts in the texts that a person has written."""
    written = json.dumps(
        [{"message": number, "text": text} for number, text in enumerate(messages, 1)], ensure_ascii=False
    )
    return ModelMessage("system", texts.fill("memory_pass", most=MAX_FACTS)), ModelMessage("user", written)


async def _ask(work: PassWork, model: Model, patience: float | None) -> str:
    request = ModelRequest(
        model=model.name,
        messages=pass_prompt([remove_quotations(message.text).strip() for message in work.messages], work.texts),
        max_output=min(2_048, model.context_window // 4),  # room for a model that reasons first
        window=model.window,
    )
    conversation = work.row.conversation
    billing = Billing(conversation, ModelCall.Purpose.MEMORY, conversation.owner_id)
    reply: OwnAnswer = await ask(model, request, billing, longest=MAX_REPLY_LENGTH, patience=patience)
    return reply.text if reply.ended and not reply.unread else ""


def parse_reply(reply: str) -> list[Mapping[str, str]]:
    """Return the entries of the model's list that have a fact and a quote; none for a reply that is no list."""
    start, end = reply.find("["), reply.rfind("]")
    try:
        entries = json.loads(reply[start : end + 1]) if 0 <= start < end else []
    except (ValueError, RecursionError):
        return []
    if not isinstance(entries, list):
        return []
    pairs: list[Mapping[str, str]] = [
        {"fact": entry["fact"], "quote": entry["quote"]}
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("fact"), str) and isinstance(entry.get("quote"), str)
    ]
    return [pair for pair in pairs if len(pair["fact"]) <= Fact.MAX_TEXT][:MAX_FACTS]


def _store(work: PassWork, entries: Sequence[Mapping[str, str]]) -> None:
    """Propose the facts below the newest answer, and end the pass."""
    conversation = work.row.conversation
    leaf = conversation.leaf
    answer = leaf if leaf is not None and leaf.role == Message.Role.ASSISTANT else None
    for entry in entries:
        try:
            propose(
                conversation=conversation,
                text=entry["fact"],
                quote=entry["quote"],
                proposed_by=Fact.ProposedBy.PASS,
                answer=answer,
                among=[message.pk for message in work.messages],
            )
        except ProductError as error:
            logger.info("a fact from conversation %s was dropped: %s", conversation.pk, error.code)
    read_to = conversation.leaf_id or work.messages[-1].pk
    PASSES.claimed(work.row).update(status=MemoryPass.Status.DONE, read_to=read_to, tries=0)
