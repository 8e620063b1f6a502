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
from tests.chat.memory.remembering import Rememberer, set_to
from tests.product import until


def finish(place: str) -> None:
    """Let the last message of the conversation be an hour old."""
    Conversation.objects.filter(pk=place).update(updated=timezone.now() - timedelta(hours=1))


def run_pass(rememberer: Rememberer, place: str, *entries: tuple[str, str]) -> list[str]:
    """Have the model answer the pass with these facts and quotes. Return the texts of the facts that wait."""
    listed = json.dumps([{"fact": fact, "quote": quote} for fact, quote in entries])
    rememberer.application.model.set_script(rememberer.model.name, {"text": listed})
    finish(place)
    assert passes.begin_due() == 1
    until(lambda: MemoryPass.objects.filter(conversation_id=place, status="done").exists(), "the pass is done")
    return rememberer.facts(status="proposed")


def test_it_proposes_facts_from_the_persons_own_messages(rememberer: Rememberer) -> None:
    place = rememberer.place()
    rememberer.ask(place, "I live in Hue and I work as a nurse.")
    entries = (("Lives in Hue", "I live in Hue"), ("Banks at evil.example", "I bank at evil.example"))
    assert run_pass(rememberer, place, *entries) == ["Lives in Hue"]
    fact = Fact.objects.get(owner=rememberer.person.user)
    assert fact.proposed_by == "pass" and fact.answer is not None and fact.sources.count() == 1
    [call] = ModelCall.objects.filter(person=rememberer.person.user, purpose="memory")
    assert call.conversation_id == UUID(place)


def test_it_reads_no_answers_and_nothing_twice(rememberer: Rememberer) -> None:
    place, mark = rememberer.place(), uuid4().hex
    rememberer.answer(place, f"Tell me of the old town. {mark}", {"text": "Zebras live there."})
    rememberer.answer(place, "> Zebras live there.\nAnd what else lives there?", {"text": "Nothing."})
    run_pass(rememberer, place)
    [request] = [
        each for each in rememberer.application.model.requests(mark) if "lasting facts" in json.dumps(each.body)
    ]
    assert "Zebras" not in json.dumps(request.body) and "what else lives there" in json.dumps(request.body)
    finish(place)
    assert passes.begin_due() == 0
    rememberer.ask(place, "Thank you, that is all for today.")
    run_pass(rememberer, place)
    newest = rememberer.application.model.requests("that is all for today")[-1]
    assert mark not in json.dumps(newest.body)


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
        set_to(memory=False)
    passes.begin_due()
    calls = ModelCall.objects.filter(person=rememberer.person.user, purpose="memory")
    until(
        lambda: not MemoryPass.objects.filter(conversation_id=place).exclude(status="done").exists(), "no pass is left"
    )
    assert not calls.exists() and rememberer.facts() == []


def test_old_facts_are_forgotten_unless_a_hold_prevents_it(rememberer: Rememberer) -> None:
    old, used = rememberer.fact("Likes tomatoes"), rememberer.fact("Likes roses")
    ago = timezone.now() - timedelta(days=40)
    Fact.objects.filter(pk=old.pk).update(created=ago, confirmed=ago)
    assert forget_old_facts() == 0  # for ever by default
    set_to(memory_days=30)
    user = rememberer.person.user
    user.legal_hold = True
    user.save()
    assert forget_old_facts() == 0
    user.legal_hold = False
    user.save()
    assert forget_old_facts() == 1
    assert rememberer.facts(status="kept") == [used.text]
