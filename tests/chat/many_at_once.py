"""The program of one of several processes that send messages of one person at once, each to its own conversation."""

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

from django.db import close_old_connections, connections

from chat.models import Conversation
from chat.sending.services import send
from chat.turns.submit import Ask
from core.errors import ProductError

THREADS = 8


def main() -> None:
    """Again and again: reads the ids of a model and of conversations, says that it is ready, begins at the next line.

    Then it says how often something was `sent` or refused with which code, as a JSON object.
    """
    for line in sys.stdin:
        model, places = json.loads(line)
        rows = list(Conversation.objects.select_related("owner").filter(pk__in=places))
        print("ready", flush=True)  # noqa: T201 - to the test
        sys.stdin.readline()
        with ThreadPoolExecutor(THREADS) as pool:
            outcomes = Counter(pool.map(partial(_sent, UUID(model)), rows))
        print(json.dumps(outcomes), flush=True)  # noqa: T201 - to the test


def _sent(model: UUID, place: Conversation) -> str:
    close_old_connections()
    try:
        send(user=place.owner, conversation=place, ask=Ask("Hello", models=[model]))
    except ProductError as error:
        return error.code
    finally:
        connections.close_all()
    return "sent"
