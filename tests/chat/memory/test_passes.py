"""The pass over finished conversations: what it reads, what it proposes, what it costs."""

import json
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from chat.ledger.models import ModelCall
from chat.memory import passes
from chat.memory.models import Fact, MemoryPass, Profile
from chat.memory.retention import forget_old_facts
from chat.models import Conversation
from tests.chat.memory.remembering import Rememberer
from tests.product import until
from workspace.models import Workspace

pytestmark = pytest.mark.django_db


def finish(place: str) -> None:
    """Let the last message of the conversation be an hour old."""
    Conversation.objects.filter(pk=place).update(updated=timezone.now() - timedelta(hours=1))


def run_pass(rememberer: Rememberer, place: str) -> list[str]:
    """Run the pass of the conversation. Return the texts of the facts that wait."""
    assert passes.begin_due() == 1
    until(lambda: MemoryPass.objects.filter(conversation=place, status="done").exists(), "the pass is done")
    return rememberer.facts(status="proposed")


def says(question: str, *entries: tuple[str, str]) -> str:
    """Return the question with what the scripted model answers when a pass reads it."""
    listed = json.dumps([{"fact": fact, "quote": quote} for fact, quote in entries])
    return f"{question} {json.dumps({'text': listed, 'note': uuid4().hex})}"


def test_it_proposes_facts_from_the_persons_own_messages(rememberer: Rememberer) -> None:
    place = rememberer.place()
    question = says("I live in Hue and I work as a nurse.", ("Lives in Hue", "I live in Hue"), ("Banks at evil", "x"))
    rememberer.ask(place, question)
    finish(place)
    assert run_pass(rememberer, place) == ["Lives in Hue"]
    fact = Fact.objects.get(owner=rememberer.person.user)
    assert fact.proposed_by == "pass" and fact.answer is not None and fact.sources.count() == 1
    [call] = ModelCall.objects.filter(person=rememberer.person.user, purpose="memory")
    assert call.conversation_id == UUID(place)


def test_it_reads_no_answers_and_nothing_twice(rememberer: Rememberer) -> None:
    place = rememberer.place()
    turn = rememberer.person.caller.ask(
        "Tell me something about the old town.",
        {"text": "An answer with zebras."},
        place,
        models=[str(rememberer.model.pk)],
    )
    rememberer.person.caller.ended(turn["id"])
    finish(place)
    run_pass(rememberer, place)
    bodies = [json.dumps(request.body) for request in rememberer.application.model.requests("old town")]
    assert any("lasting facts" in body for body in bodies)
    assert not any(
        "lasting facts" in body and "zebras" in body.split("lasting facts")[1] and '"assistant"' in body
        for body in bodies
    )
    finish(place)
    assert passes.begin_due() == 0


@pytest.mark.parametrize("off", ["profile", "conversation", "temporary", "young", "workspace"])
def test_it_does_not_begin_where_it_may_not(rememberer: Rememberer, off: str) -> None:
    place = rememberer.place(temporary=off == "temporary")
    rememberer.ask(place, "I live in Hue and I work as a nurse.")
    if off != "young":
        finish(place)
    if off == "profile":
        Profile.objects.filter(person=rememberer.person.user).update(proposals="off")
    elif off == "conversation":
        Conversation.objects.filter(pk=place).update(memory_in_prompts=False)
    elif off == "workspace":
        Workspace.objects.update_or_create(pk=Workspace.ONLY, defaults={"memory": False})
    passes.begin_due()
    calls = ModelCall.objects.filter(person=rememberer.person.user, purpose="memory")
    until(lambda: not MemoryPass.objects.filter(conversation=place).exclude(status="done").exists(), "no pass is left")
    assert not calls.exists() and rememberer.facts() == []


def test_old_facts_are_forgotten_unless_a_hold_prevents_it(rememberer: Rememberer) -> None:
    old, used = rememberer.fact("Likes tomatoes"), rememberer.fact("Likes roses")
    ago = timezone.now() - timedelta(days=40)
    Fact.objects.filter(pk=old.pk).update(created=ago, confirmed=ago)
    assert forget_old_facts() == 0  # for ever by default
    Workspace.objects.update_or_create(pk=Workspace.ONLY, defaults={"memory_days": 30})
    user = rememberer.person.user
    user.legal_hold = True
    user.save()
    assert forget_old_facts() == 0
    user.legal_hold = False
    user.save()
    assert forget_old_facts() == 1
    assert rememberer.facts(status="kept") == [used.text]
