"""Two hundred messages at once against one limit: what begins is counted once, whoever comes at the same time."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import close_old_connections, connections

from accounts.models import Limit, User
from chat.conversations.services import create_conversation
from chat.models import Conversation, Turn
from chat.sending.services import send
from chat.turns.submit import Ask
from core.errors import ProductError
from llm.models import Model, Provider

AT_ONCE, WORKERS = 200, 16


@pytest.fixture
def user(committed: None) -> Iterator[User]:
    person = User.objects.create_user(uuid4().hex)
    yield person
    Conversation.objects.filter(owner=person).delete()
    person.delete()


@pytest.fixture
def model(committed: None) -> Iterator[Model]:
    """Nobody is asked: no worker of this process takes turns."""
    provider = Provider.objects.create(name=uuid4().hex, base_url="http://127.0.0.1:9/v1")
    prices = {"input_price": Decimal(1), "output_price": Decimal(1)}
    yield Model.objects.create(provider=provider, name="silent", context_window=8_000, **prices)
    provider.delete()


@pytest.mark.parametrize(("unit", "amount"), [("turns", 20), ("tokens", 30_000), ("money", "0.03")])
def test_no_more_begin_than_the_limit_has_room_for(user: User, model: Model, unit: str, amount: object) -> None:
    most = Decimal(str(amount))
    Limit.objects.create(user=user, unit=unit, per="month", amount=most)
    places = [create_conversation(user=user) for _ in range(AT_ONCE)]

    def sent(place: Conversation) -> str:
        close_old_connections()
        try:
            send(user=user, conversation=place, ask=Ask("Hello", models=[model.pk]))
        except ProductError as error:
            return error.code
        finally:
            connections.close_all()
        return "sent"

    with ThreadPoolExecutor(WORKERS) as pool:
        said = Counter(pool.map(sent, places))
    turns = list(Turn.objects.filter(conversation__owner=user))
    of_each = {"turns": Decimal(1), "tokens": turns[0].reserved_tokens, "money": turns[0].reserved_cost}[unit]
    assert said.keys() == {"sent", "limit_reached"} and said.total() == AT_ONCE
    assert said["sent"] == len(turns)
    taken = Decimal(of_each or 0) * len(turns)
    assert most <= taken < most + Decimal(of_each or 0)  # the last that begins may go over it
