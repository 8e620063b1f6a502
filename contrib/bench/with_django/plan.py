"""Measure the time from the database to the prompt. It must not depend on the conversation's length. Prints JSON."""

import json
import statistics
import time
from uuid import uuid4

import django

django.setup()

from accounts.models import User
from chat.models import Message
from chat.models.conversation_state import ChatScope
from chat.prompts import builder
from chat.prompts.turn_context import base_context
from llm.models import Model, Provider
from tests.chat.conversations import past

LIMIT = 1.3
RUNS = 40


def main() -> None:
    user = User.objects.create_user(f"bench-{uuid4().hex[:8]}")
    provider = Provider.objects.create(name=f"bench-{uuid4().hex[:8]}")
    model = Model.objects.create(provider=provider, name="bench", context_window=8_192)
    setting = base_context(user=user, model=model, scope=ChatScope())
    leaves = {size: past(user, size // 2, words=40).leaf for size in (200, 10_000)}
    times: dict[int, list[float]] = {size: [] for size in leaves}
    for run in range(RUNS + 2):
        for size, leaf in leaves.items():
            leaf_row = Message.objects.get(pk=leaf.pk) if leaf else None
            began = time.perf_counter()
            builder.plan(setting, leaf_row, [builder.draft_message("And now?")])
            if run > 1:  # the first run stores token counts that later runs read
                times[size].append(time.perf_counter() - began)
    short, long = (statistics.median(times[size]) * 1000 for size in (200, 10_000))
    rows = [
        {"name": "database to prompt, 200 messages", "value": round(short, 2), "unit": "ms"},
        {"name": "database to prompt, 10,000 messages", "value": round(long, 2), "unit": "ms",
         "limit": round(short * LIMIT, 2), "ratio": round(long / (short * LIMIT), 2)},
    ]  # fmt: skip
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
