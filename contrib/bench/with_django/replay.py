"""Measure how long `manage.py replay` takes to plan stored turns again, unchanged and under another profile.

Prints rows as JSON.
"""

import json
import time
from uuid import uuid4

import django

django.setup()

from django.utils import timezone

from accounts.models import User
from chat.context import cache
from chat.lab.past import NO_VARIATION, Variation
from chat.lab.services import choose_turns, plan_turns
from chat.models import Message, Turn
from chat.prompts import builder, report
from chat.prompts.turn_context import context_of_past_turn
from llm.models import Model, Provider
from llm.services import cache_rule
from personas.models import BudgetProfile
from tests.chat.conversations import past

CONVERSATIONS, TURNS = 20, 50  # conversations, and turns in each of them
LIMIT = 60.0  # seconds for all turns


def main() -> None:
    user = User.objects.create_user(f"bench-{uuid4().hex[:8]}")
    provider = Provider.objects.create(name=f"bench-{uuid4().hex[:8]}")
    model = Model.objects.create(provider=provider, name="bench", context_window=8_192)
    for _ in range(CONVERSATIONS):
        answer(user, model)
    narrow = Variation(profile=BudgetProfile.objects.create(name=f"bench-{uuid4().hex[:8]}", window=4_096))
    turns = choose_turns(most=CONVERSATIONS * TURNS, owner=user)
    rows = []
    for name, variation in (("as they were", NO_VARIATION), ("and under another profile", narrow)):
        began = time.perf_counter()
        compared = sum(result.planned is not None for result in plan_turns(turns, variation))
        seconds = time.perf_counter() - began
        rows.append(
            {"name": f"{compared:,} stored turns planned again {name}", "value": round(seconds, 1), "unit": "s",
             "limit": LIMIT, "ratio": round(seconds / LIMIT, 2)}
        )  # fmt: skip
    print(json.dumps(rows))


def answer(user: User, model: Model) -> None:
    """Store a conversation with turns. Each turn has the report that it would have stored itself."""
    conversation = past(user, TURNS, words=40, model=model)
    messages = list(Message.objects.filter(conversation=conversation).select_related("parent").order_by("depth"))
    for question, reply in zip(messages[::2], messages[1::2], strict=True):
        now = timezone.now()
        turn = Turn.objects.create(
            conversation=conversation, user_message=question, answer=reply, model=model, status="done",
            started=now, finished=now,
        )  # fmt: skip
        context = context_of_past_turn(turn, model)
        plan = builder.plan(context, question)
        fingerprint = builder.fingerprint(context, plan.prompt)
        entry = cache.forecast(fingerprint, None, cache_rule(model))
        call = report.stored(context, plan, cycle=1, refused=None, cache=entry)
        Turn.objects.filter(pk=turn.pk).update(report={"calls": [call]})


if __name__ == "__main__":
    main()
