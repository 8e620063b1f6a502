"""Take the greatest number of what a person may choose at once, and refuse one more."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from accounts.models import User
from chat.conversations.services import MAX_CHOSEN, chosen_conversations
from chat.lab.models import Replay
from chat.lab.services import check_replay
from chat.models import Conversation
from chat.turns.submit import MAX_MODELS, choose_models
from core.errors import ProductError

pytestmark = pytest.mark.django_db


@pytest.fixture
def olga() -> User:
    return User.objects.create_superuser("olga")


def code(act: Callable[[], object]) -> str:
    try:
        act()
    except ProductError as error:
        return error.code
    return ""


def test_conversations_that_are_changed_at_once(olga: User) -> None:
    rows = Conversation.objects.bulk_create(Conversation(owner=olga) for _ in range(MAX_CHOSEN))
    ids = [row.pk for row in rows]
    assert len(chosen_conversations(olga, ids)) == MAX_CHOSEN
    assert code(lambda: chosen_conversations(olga, [*ids, uuid4()])) == "too_many_chosen"


def test_models_that_answer_side_by_side(olga: User) -> None:
    place = Conversation.objects.create(owner=olga)
    models = [uuid4() for _ in range(MAX_MODELS + 1)]
    assert code(lambda: choose_models(place, models)) == "too_many_models"
    assert code(lambda: choose_models(place, models[1:])) == "not_found"


@pytest.mark.parametrize(
    ("asks", "most", "refused"),
    [(True, Replay.MAX_ASKED, "too_many_to_ask"), (False, Replay.MAX_COUNT, "bad_number_of_turns")],
)
def test_turns_of_a_replay(olga: User, asks: bool, most: int, refused: str) -> None:
    assert code(lambda: check_replay(user=olga, job=Replay(asks=asks, most=most + 1))) == refused
    assert code(lambda: check_replay(user=olga, job=Replay(asks=asks, most=most))) != refused
