"""Servers that do not read all that they are sent are named under the answer; how others count is no false alarm."""

from uuid import uuid4

import pytest

from chat.models import Turn
from llm.models import Model, Provider
from llm.services import unread
from tests.application import Application
from tests.conftest import Person
from tests.product import until


@pytest.fixture
def model(application: Application) -> Model:
    provider = Provider.objects.create(name=uuid4().hex, kind="openai", base_url=application.model.openai_url)
    return Model.objects.create(provider=provider, name="llama3.2:3b", context_window=32_000)


def test_a_server_that_read_less_is_named_under_its_first_answer_and_its_window_is_learnt(
    person: Person, model: Model
) -> None:
    script = {"text": "I know nothing of it.", "usage": {"input": 3_024, "output": 5}}
    question = "word " * 9_000
    asked = person.caller.ask(question, script, models=[str(model.pk)])
    assert person.caller.ended(asked["id"])["status"] == "done"
    turn = Turn.objects.get(pk=asked["id"])
    [call] = turn.report["calls"]
    assert 5_900 < turn.context_unread == call["unread"] < 6_100
    assert call["notes"][-1].startswith(f"The server read 3,024 of {3_024 + turn.context_unread:,} tokens")

    def learnt() -> bool:
        model.refresh_from_db()
        return model.learnt_window == 4_096

    until(learnt, "the window is learnt")
    assert model.ratio_samples == 0


def test_a_server_that_read_all_is_not_suspected(person: Person, model: Model) -> None:
    asked = person.caller.ask("word " * 9_000, {"text": "Yes."}, models=[str(model.pk)])
    person.caller.ended(asked["id"])
    turn = Turn.objects.get(pk=asked["id"])
    assert (turn.context_unread, turn.report["calls"][0]["notes"]) == (0, [])


@pytest.mark.parametrize(
    ("tokenizer", "samples", "ratio", "texts", "read", "expected"),
    [
        ("", 0, 1.0, 9_138, 4_096, 5_042),
        ("", 0, 1.0, 9_138, 6_000, 0),  # the tokenizer is not known
        ("o200k_base", 0, 1.0, 9_138, 6_000, 3_138),
        ("o200k_base", 0, 1.0, 9_138, 8_000, 0),
        ("", 9, 1.4, 9_138, 8_000, 4_793),
        ("", 9, 0.7, 9_138, 6_000, 0),  # it always counts less than we do
        ("o200k_base", 0, 1.0, 350, 60, 0),  # too little to say anything
        ("o200k_base", 0, 1.0, 9_138, 0, 0),  # it does not say
        ("o200k_base", 0, 1.0, 9_138, 1, 0),  # nonsense
        ("o200k_base", 0, 1.0, 9_138, 12_000, 0),  # with images and tools
    ],
)
def test_what_counting_can_explain_is_no_alarm(
    tokenizer: str, samples: int, ratio: float, texts: int, read: int, expected: int
) -> None:
    model = Model(tokenizer=tokenizer, ratio_samples=samples, token_ratio=ratio)
    assert unread(model=model, texts=texts, read=read) == expected
