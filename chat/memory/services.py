"""Change what is remembered about a person: their profile, and facts from the proposal to the forgetting.

1. A model proposes a fact and quotes the words that support it (`propose`). `chat.memory.sources` looks for the words
   in the person's messages, and `chat.memory.terms` compares them with the fact. A fact without support is dropped.
2. The person keeps, changes or declines it (`keep_fact`, `forget_fact`). A person may let facts be kept without asking.
3. A kept fact outdates older facts that it contradicts. Both stay visible, and `restore_fact` keeps the older one
   again.
4. `forget_fact` deletes the text, the search terms and the sources. The row keeps its id and its times.
"""

import json
from dataclasses import dataclass
from typing import TypedDict
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from accounts.access.holds import require_free, require_rewritable
from accounts.models import User
from chat.memory.models import ConversationFact, Fact, FactSource, Profile
from chat.memory.sources import find_source
from chat.memory.terms import contradicts, is_supported_by, search_keys, stems
from chat.models import Conversation, Message
from chat.models.conversation_state import require_owner
from chat.realtime.event_stream import notify_marks
from core.audit.services import record
from core.errors import ProductError
from core.requests import get_or_404
from core.sentences import Sentence
from core.text import unix_lines, without_margins
from personas.models import Persona
from projects.models import Project
from workspace.models import Workspace
from workspace.models.settings import workspace_at

MAX_COMPARED = 30  # older facts with words of a new one that are compared with it
MAX_SOURCES = 20  # sources of one fact
REMEMBER_TOOL = "remember"  # the name of the tool; its calls hold texts of facts


class ProfileFields(TypedDict, total=False):
    """Fields of a profile."""

    about: str
    answering: str
    in_prompts: bool
    proposals: str
    search_conversations: bool


@dataclass(frozen=True, slots=True)
class FactScope:
    """Scope of a fact: one project, one persona, or everything if both are None."""

    project: Project | None = None
    persona: Persona | None = None

    @property
    def kind(self) -> Fact.Scope:
        if self.project is not None:
            return Fact.Scope.PROJECT
        return Fact.Scope.PERSONA if self.persona is not None else Fact.Scope.PERSON


EVERYWHERE = FactScope()


class ProposalRefused(ProductError):
    """Raised for a proposal that is refused. `code` is `not_their_words`, `not_said` or `memory_off`."""


def profile_for(user: User) -> Profile:
    """Return the person's profile; a new one, not stored, if there is none."""
    return Profile.objects.filter(person=user).first() or Profile(person=user)


@transaction.atomic
def save_profile(*, user: User, fields: ProfileFields) -> Profile:
    """Store the fields of the person's profile. Raises `profile_too_long`, `bad_choice` and `legal_hold` (409)."""
    profile, _ = Profile.objects.select_for_update().get_or_create(person=user)
    for name in ("about", "answering"):
        if name not in fields:
            continue
        text = without_margins(unix_lines(str(fields[name])))
        if len(text) > Profile.MAX_TEXT:
            sentence = Sentence(
                "Each text of a profile has at most {most} characters. Shorten it.", most=Profile.MAX_TEXT
            )
            raise ProductError("profile_too_long", sentence)
        require_rewritable(profile, getattr(profile, name), text)
        setattr(profile, name, text)
    profile.in_prompts = fields.get("in_prompts", profile.in_prompts)
    profile.search_conversations = fields.get("search_conversations", profile.search_conversations)
    proposals = fields.get("proposals", profile.proposals)
    if proposals not in Profile.Proposals.values:
        raise ProductError("bad_choice", "“proposals” is “off”, “ask” or “keep”.")
    if proposals == Profile.Proposals.KEEP and not workspace_at().memory_unasked:
        raise ProductError(
            "not_allowed", "An administrator has not allowed facts to be kept without asking.", status=403
        )
    profile.proposals = proposals
    profile.save()
    record(user=user, action="memory.changed", row=profile)
    return profile


def allowed_proposals(profile: Profile, workspace: Workspace) -> Profile.Proposals:
    """Return whether models may propose facts now: the person's choice, as far as the workspace allows it."""
    choice = Profile.Proposals(profile.proposals)
    if not workspace.memory:
        return Profile.Proposals.OFF
    return Profile.Proposals.ASK if choice == Profile.Proposals.KEEP and not workspace.memory_unasked else choice


def may_remember(conversation: Conversation) -> bool:
    """Return whether facts may come from the conversation. Temporary ones and requests of programs give none."""
    return conversation.origin == Conversation.Origin.WORKSPACE and conversation.memory_in_prompts


def propose(
    *,
    conversation: Conversation,
    text: str,
    quote: str,
    proposed_by: Fact.ProposedBy,
    answer: Message | None = None,
    among: list[UUID] | None = None,
    scope: FactScope = EVERYWHERE,
) -> Fact:
    """Store a fact that a model proposes about the conversation's owner, and return it.

    If the fact exists already, it gets the new source. `among` as in `chat.memory.sources.find_source`. Raises
    `ProposalRefused`, `bad_fact` and `too_many_facts`.
    """
    user = conversation.owner
    text = _normalise_text(text)
    if not may_remember(conversation):
        raise ProposalRefused("memory_off", "Nothing is remembered from this conversation.")
    source = find_source(conversation, quote, among=among)
    if source is None:
        raise ProposalRefused("not_their_words", "The quote is not in a message that the person has written.")
    if not is_supported_by(text, quote):
        raise ProposalRefused("not_said", "The fact says more than the quoted words, or something different.")
    with transaction.atomic():
        profile = _lock_profile(user)
        allowed = allowed_proposals(profile, workspace_at())
        if allowed == Profile.Proposals.OFF:
            raise ProposalRefused("memory_off", "The person does not want facts to be remembered.")
        fact = _find_same_fact(user, text, scope)
        if fact is None:
            unasked = allowed == Profile.Proposals.KEEP
            fact = _create_fact(user, text, proposed_by, scope, answer=answer, remembered=unasked, confirmed_by=None)
            if unasked:
                _outdate_contradicted(fact)
        if answer is not None and not conversation.proposes:
            Conversation.objects.filter(pk=conversation.pk).update(proposes=True)
        if fact.sources.count() < MAX_SOURCES:
            FactSource.objects.get_or_create(fact=fact, message=source, defaults={"quote": quote.strip()})
        if proposed_by == Fact.ProposedBy.PASS:
            _notify_pages(fact)  # proposals of a tool are shown at the end of the answer
    return fact


@transaction.atomic
def add_fact(*, user: User, text: str, scope: FactScope = EVERYWHERE, pinned: bool = False) -> Fact:
    """Store a fact that the person writes by hand. Raises `bad_fact`, `too_many_facts` and `too_many_pinned`."""
    _require_memory()
    _lock_profile(user)
    text = _normalise_text(text)
    fact = _find_same_fact(user, text, scope)
    if fact is None:
        fact = _create_fact(user, text, Fact.ProposedBy.PERSON, scope, remembered=True, confirmed_by=user)
    elif fact.status == Fact.Status.PROPOSED:
        fact = keep_fact(user=user, fact=fact)
    _outdate_contradicted(fact)
    if pinned and not fact.pinned:
        fact = pin_fact(user=user, fact=fact, pinned=True)
    record(user=user, action="fact.kept", row=fact)
    return fact


@transaction.atomic
def keep_fact(*, user: User, fact: Fact, text: str | None = None, keep_older: bool = False) -> Fact:
    """Keep a proposed fact, with another `text` if the person has changed it, and return it.

    It outdates kept facts that it contradicts, unless `keep_older`. Raises `not_proposed` (409), `bad_fact`
    and `legal_hold` (409).
    """
    fact = _lock_fact(user, fact)
    if fact.status != Fact.Status.PROPOSED:
        raise ProductError("not_proposed", "This fact is no longer waiting for your decision.", status=409)
    if text is not None:
        text = _normalise_text(text)
        require_rewritable(fact, fact.text, text)
        _set_text(fact, text)
    fact.status = Fact.Status.KEPT
    fact.confirmed_by = user
    fact.confirmed = timezone.now()
    fact.save()
    if not keep_older:
        _outdate_contradicted(fact)
    record(user=user, action="fact.kept", row=fact)
    _notify_pages(fact)
    return fact


@transaction.atomic
def correct_fact(*, user: User, fact: Fact, text: str) -> Fact:
    """Store the corrected text as a new fact that outdates this one, and return the new one.

    The new fact takes the old one's place in conversations, its pin and its sources. Raises `not_kept` (409) and
    `bad_fact`.
    """
    older = _lock_fact(user, fact)
    text = _normalise_text(text)
    if older.status == Fact.Status.PROPOSED:
        return keep_fact(user=user, fact=older, text=text)
    if older.status != Fact.Status.KEPT:
        raise ProductError("not_kept", "Only a fact that is remembered can be corrected.", status=409)
    if text == older.text:
        return older
    scope = FactScope(older.project, older.persona)
    newer = _create_fact(
        user, text, Fact.ProposedBy.PERSON, scope, answer=older.answer, remembered=True, confirmed_by=user
    )
    newer.pinned, older.pinned = older.pinned, False
    newer.save(update_fields=["pinned"])
    older.status = Fact.Status.OUTDATED
    older.outdated_by = newer
    older.save(update_fields=["pinned", "status", "outdated_by"])
    for source in older.sources.all():
        FactSource.objects.create(fact=newer, message=source.message, quote=source.quote)
    ConversationFact.objects.filter(fact=older).update(fact=newer)
    record(user=user, action="fact.corrected", row=newer)
    return newer


@transaction.atomic
def restore_fact(*, user: User, fact: Fact) -> Fact:
    """Keep an outdated fact again. The newer one stays. Raises `not_outdated` (409)."""
    fact = _lock_fact(user, fact)
    if fact.status != Fact.Status.OUTDATED:
        raise ProductError("not_outdated", "This fact is not outdated.", status=409)
    fact.status = Fact.Status.KEPT
    fact.outdated_by = None
    fact.save(update_fields=["status", "outdated_by"])
    record(user=user, action="fact.kept", row=fact)
    return fact


@transaction.atomic
def pin_fact(*, user: User, fact: Fact, pinned: bool) -> Fact:
    """Send a fact with each prompt in its scope, or only if it matches the message.

    Raises `not_kept` (409) and `too_many_pinned`.
    """
    fact = _lock_fact(user, fact)
    if fact.status != Fact.Status.KEPT:
        raise ProductError("not_kept", "Only a fact that is remembered can be pinned.", status=409)
    if pinned and Fact.objects.visible_to(user).filter(pinned=True).exclude(pk=fact.pk).count() >= Fact.MAX_PINNED:
        sentence = Sentence("At most {most} facts can be pinned. Unpin another one first.", most=Fact.MAX_PINNED)
        raise ProductError("too_many_pinned", sentence)
    fact.pinned = pinned
    fact.save(update_fields=["pinned"])
    return fact


@transaction.atomic
def forget_fact(*, user: User, fact: Fact) -> Fact:
    """Delete the text, the search terms and the sources of a fact. A proposal is declined in the same way.

    The calls of the tool that proposed it lose the text, too. Raises `legal_hold` (409).
    """
    fact = _lock_fact(user, fact)
    if fact.status != Fact.Status.FORGOTTEN:
        require_free(fact)
        _forget(fact)
        record(user=user, action="fact.forgotten", row=fact)
        _notify_pages(fact)
    return fact


@transaction.atomic
def forget_all(*, user: User) -> int:
    """Forget all facts of the person, and return their number. The profile stays. Raises `legal_hold` (409)."""
    rows = list(Fact.objects.visible_to(user).exclude(status=Fact.Status.FORGOTTEN).select_for_update())
    if rows:
        require_free(*rows)
        for fact in rows:
            _forget(fact)
        record(user=user, action="memory.emptied", row=_lock_profile(user), changes={"facts": len(rows)})
    return len(rows)


def forget_unused(rows: QuerySet[Fact]) -> int:
    """Forget facts whose retention period has ended. Returns their number. The rows are free of legal holds."""
    number = 0
    for fact in rows.select_related("owner"):
        with transaction.atomic():
            _forget(fact)
            record(user=None, action="fact.forgotten", row=fact)
        number += 1
    return number


@transaction.atomic
def leave_out(*, user: User, conversation: Conversation, fact: Fact, left_out: bool) -> None:
    """Leave a fact out of the conversation's prompts, or send it there again when it matches."""
    fact = _lock_fact(user, fact)
    rows = ConversationFact.objects.filter(conversation=conversation, fact=fact)
    if left_out:
        ConversationFact.objects.update_or_create(conversation=conversation, fact=fact, defaults={"left_out": True})
    else:
        rows.delete()


@transaction.atomic
def switch_memory(*, user: User, conversation: Conversation, on: bool) -> None:
    """Switch the memory of a conversation on or off: whether its prompts have facts, and whether it may give facts.

    Raises `NotFound` if the user does not own the conversation.
    """
    require_owner(user, conversation)
    Conversation.objects.filter(pk=conversation.pk).update(memory_in_prompts=on)


def visible_fact(user: User, pk: object) -> Fact:
    """Return a fact of the user. Raises `NotFound`."""
    return get_or_404(Fact.objects.visible_to(user).select_related("project", "persona", "outdated_by"), pk, "fact")


def _require_memory() -> None:
    if not workspace_at().memory:
        raise ProductError("memory_off", "Memory is switched off in this workspace.", status=403)


def _lock_profile(user: User) -> Profile:
    """Return the person's profile, locked until the transaction ends. The lock serialises changes of their facts."""
    profile, _ = Profile.objects.select_for_update().get_or_create(person=user)
    return profile


def _lock_fact(user: User, fact: Fact) -> Fact:
    _lock_profile(user)
    return visible_fact(user, fact.pk)


def _normalise_text(text: str) -> str:
    """Return the text of a fact in one line. Raises `bad_fact`."""
    line = " ".join(text.split()).replace("\0", "")
    if not line or len(line) > Fact.MAX_TEXT:
        raise ProductError("bad_fact", Sentence("A fact has 1 to {most} characters.", most=Fact.MAX_TEXT))
    return line


def _set_text(fact: Fact, text: str) -> None:
    fact.text = text
    fact.terms = search_keys(fact.owner_id, stems(text))


def _create_fact(
    user: User,
    text: str,
    proposed_by: Fact.ProposedBy,
    scope: FactScope,
    *,
    remembered: bool,
    confirmed_by: User | None,
    answer: Message | None = None,
) -> Fact:
    rows = Fact.objects.visible_to(user).exclude(status=Fact.Status.FORGOTTEN)
    waiting = rows.filter(status=Fact.Status.PROPOSED)
    if rows.count() >= Fact.MAX_COUNT or (not remembered and waiting.count() >= Fact.MAX_PROPOSED):
        raise ProductError("too_many_facts", "There are too many facts. Forget some on the page “Memory” first.")
    fact = Fact(
        owner=user,
        scope=scope.kind,
        project=scope.project,
        persona=scope.persona,
        status=Fact.Status.KEPT if remembered else Fact.Status.PROPOSED,
        proposed_by=proposed_by,
        answer=answer,
        confirmed_by=confirmed_by,
        confirmed=timezone.now() if remembered else None,
    )
    _set_text(fact, text)
    fact.save(force_insert=True)
    return fact


def _facts_in_scope(user: User, scope: FactScope) -> QuerySet[Fact]:
    rows = Fact.objects.visible_to(user).filter(scope=scope.kind)
    return rows.filter(project=scope.project, persona=scope.persona)


def _find_same_fact(user: User, text: str, scope: FactScope) -> Fact | None:
    """Return a proposed or kept fact with the same words, in any order and form; None if there is none."""
    keys = search_keys(user.pk, stems(text))
    rows = _facts_in_scope(user, scope).filter(status__in=(Fact.Status.KEPT, Fact.Status.PROPOSED))
    if keys:
        rows = rows.filter(terms__contains=keys, terms__contained_by=keys)
        return next((row for row in rows[:MAX_COMPARED] if not contradicts(text, row.text)), None)
    return rows.filter(text__iexact=text).first()


def _outdate_contradicted(fact: Fact) -> None:
    """Outdate kept facts of the same scope that the fact contradicts."""
    for older in contradicted_facts(fact):
        older.status = Fact.Status.OUTDATED
        older.outdated_by = fact
        older.pinned = False
        older.save(update_fields=["status", "outdated_by", "pinned"])


def contradicted_facts(fact: Fact) -> list[Fact]:
    """Return the kept facts of the same scope that the fact would outdate."""
    rows = _facts_in_scope(fact.owner, FactScope(fact.project, fact.persona)).filter(status=Fact.Status.KEPT)
    rows = rows.filter(terms__overlap=fact.terms).exclude(pk=fact.pk).order_by("-id")
    return [older for older in rows[:MAX_COMPARED] if contradicts(fact.text, older.text)]


def _forget(fact: Fact) -> None:
    _redact_call(fact)
    fact.sources.all().delete()
    fact.uses.all().delete()
    fact.text = ""
    fact.terms = []
    fact.pinned = False
    fact.status = Fact.Status.FORGOTTEN
    fact.forgotten = timezone.now()
    fact.save()


def _redact_call(fact: Fact) -> None:
    """Remove the text from the tool call that proposed the fact, since later prompts have the call."""
    answer = Message.with_deleted.select_for_update().filter(pk=fact.answer_id).first() if fact.answer_id else None
    if answer is None:
        return
    quotes = {source.quote for source in fact.sources.all()}
    changed = False
    for part in answer.parts:
        if part.get("name") == REMEMBER_TOOL and part["type"] == "tool_call":
            arguments = _parse_arguments(part["arguments"])
            if arguments.get("fact") == fact.text or arguments.get("quote", "").strip() in quotes:
                part["arguments"] = json.dumps({"fact": "[forgotten]", "quote": "[forgotten]"})
                changed = True
    if changed:
        answer.tokens = {}
        answer.save(update_fields=["parts", "tokens"])


def _parse_arguments(text: str) -> dict[str, str]:
    try:
        arguments = json.loads(text)
    except ValueError:
        return {}
    return {name: str(value) for name, value in arguments.items()} if isinstance(arguments, dict) else {}


def _notify_pages(fact: Fact) -> None:
    """Notify open pages of the conversation, which show the change below the answer."""
    answer = Message.objects.filter(pk=fact.answer_id).first() if fact.answer_id else None
    if answer is not None:
        notify_marks(answer.conversation_id)
