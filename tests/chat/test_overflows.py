"""A conversation goes on after any refusal of a prompt that is too long or has too many images."""

from io import BytesIO
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from PIL import Image

from chat.models import Conversation, LastPrompt, Message, Turn
from files.models import File
from llm.learning import forget_learnt, window_source
from llm.models import Model
from tests.application import Application
from tests.chat.conversations import past
from tests.chat.documents import upload
from tests.conftest import Person

LIMIT = 3_000


def refusing(application: Application, row: Model, style: str, limit: int = LIMIT, **fields: Any) -> Model:
    """Return a model with a window of 32,768 tokens whose server refuses prompts over `limit` tokens."""
    script = {"text": "It fits now.", "context_limit": limit, "limit_style": style}
    name = application.model.set_script(f"{style}-{uuid4().hex[:6]}", script)
    return Model.objects.create(provider=row.provider, name=name, context_window=32_768, **fields)


def long(person: Person) -> str:
    """Return a conversation of some 18,000 tokens without a summary."""
    conversation = past(person.user, 30, words=100)
    Conversation.objects.filter(pk=conversation.pk).update(automatic_summaries=False)
    return str(conversation.pk)


def ask_and_wait(person: Person, model: Model, place: str, text: str = "And now?") -> dict[str, Any]:
    turn = person.caller.ask(text, None, place, models=[str(model.pk)])
    ended: dict[str, Any] = person.caller.ended(turn["id"])
    return ended


@pytest.mark.parametrize(
    ("style", "learnt"),
    [
        ("lmstudio", False),
        ("lmstudio_json", True),
        ("xai", True),
        ("glm", False),
        ("groq", False),
        ("dashscope", True),
        ("bedrock", False),
        ("unheard_of", True),
        ("openai", True),
        ("llamacpp", True),
    ],
)
def test_every_overflow_is_answered_with_less_and_the_next_message_too(
    application: Application, person: Person, scripted_model_row: Model, style: str, learnt: bool
) -> None:
    model = refusing(application, scripted_model_row, style)
    place = long(person)
    first = ask_and_wait(person, model, place)
    assert (first["status"], first["text"]) == ("done", "It fits now.")
    report = person.caller.get(f"turns/{first['id']}/report/")
    assert "refused" in report["calls"][-1]["refused"] or "account allows" in report["calls"][-1]["refused"]
    model.refresh_from_db()
    assert (model.learnt_window == LIMIT) is learnt and (model.learnt_window is None) is not learnt
    assert window_source(model) == ("refused" if learnt else "known")
    second = ask_and_wait(person, model, place, "And then?")
    assert (second["status"], second["text"]) == ("done", "It fits now.")


def test_a_refusal_without_a_limit_holds_for_its_conversation_and_is_tried_again(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = refusing(application, scripted_model_row, "bedrock")
    place, other = (long(person), long(person))
    first = ask_and_wait(person, model, place)
    cap = LastPrompt.objects.get(conversation_id=place, model=model).window_cap
    assert cap is not None and cap < 32_768
    report = person.caller.get(f"turns/{first['id']}/report/")
    assert (report["window"], report["window_source"]) == (cap, "conversation")
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": "x", "model": str(model.pk)}, expect=200)
    assert plan["window"] == int(cap * 1.25)
    plan = person.caller.post(f"conversations/{other}/plan/", {"text": "x", "model": str(model.pk)}, expect=200)
    assert plan["window"] == 32_768
    model.refresh_from_db()
    assert model.learnt_window is None


def test_a_limit_of_tokens_a_minute_is_none_of_the_model(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = refusing(application, scripted_model_row, "groq")
    place = long(person)
    first = ask_and_wait(person, model, place)
    report = person.caller.get(f"turns/{first['id']}/report/")
    assert "3,000 tokens a minute" in report["calls"][-1]["refused"]
    assert LastPrompt.objects.get(conversation_id=place, model=model).window_cap is None


def test_after_a_second_refusal_that_nobody_understands_less_can_be_sent(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = refusing(application, scripted_model_row, "mute")
    place = long(person)
    first = ask_and_wait(person, model, place)
    assert (first["error"]["code"], first["send_less"]) == ("bad_model_request", False)
    second = ask_and_wait(person, model, place, "Again?")
    assert (second["error"]["code"], second["send_less"]) == ("bad_model_request", True)
    browser = Client()
    browser.force_login(person.user)
    page = browser.get(f"/c/{place}/").content.decode()
    assert page.count("Send less") == 1
    for _ in range(4):
        path = f"messages/{second['message']}/regenerate/"
        turn = person.caller.post(path, {"send_less": True, "models": [str(model.pk)]})["turns"][0]
        second = person.caller.ended(turn["id"])
        if second["status"] == "done":
            break
    assert second["text"] == "It fits now."
    assert Turn.objects.get(pk=second["id"]).prompt_cap


def test_the_button_sends_less(application: Application, person: Person, scripted_model_row: Model) -> None:
    model = refusing(application, scripted_model_row, "mute", limit=12_000)
    place = long(person)
    failed = [ask_and_wait(person, model, place, text) for text in ("One?", "Two?")][-1]
    browser = Client()
    browser.force_login(person.user)
    answer = browser.post(f"/messages/{failed['message']}/regenerate/", {"send_less": "on", "model": str(model.pk)})
    assert answer.status_code < 400
    turn = Turn.objects.filter(conversation_id=place).order_by("-id").first()
    assert turn is not None and turn.prompt_cap == (Turn.objects.get(pk=failed["id"]).context_used or 0) // 2
    assert person.caller.ended(str(turn.pk))["status"] == "done"


def test_less_of_nothing_cannot_be_sent(person: Person) -> None:
    place = past(person.user, 1)
    pk = Message.objects.filter(conversation=place, role="assistant").values_list("pk", flat=True)[0]
    refused = person.caller.post(f"messages/{pk}/regenerate/", {"send_less": True}, expect=400)
    assert refused["code"] == "nothing_to_shorten"


def picture(person: Person, number: int) -> str:
    shown = BytesIO()
    Image.new("RGB", (32, 32), (number * 30 % 255, number * 7 % 255, 90)).save(shown, "PNG")
    return str(upload(person, f"{number}.png", shown.getvalue())["id"])


def with_pictures(person: Person, model: Model, place: str, count: int, first: int) -> dict[str, Any]:
    files = [picture(person, first + number) for number in range(count)]
    turn = person.caller.ask("Look.", None, place, models=[str(model.pk)], files=files)
    ended: dict[str, Any] = person.caller.ended(turn["id"])
    return ended


def test_older_images_are_only_named_where_the_model_takes_fewer(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    name = application.model.set_script(f"seeing-{uuid4().hex[:6]}", {"text": "I see.", "image_limit": 5})
    model = Model.objects.create(
        provider=scripted_model_row.provider, name=name, context_window=32_768, vision=True, tools=True
    )
    place = person.caller.conversation()
    assert with_pictures(person, model, place, 3, 0)["status"] == "done"
    ended = with_pictures(person, model, place, 4, 3)
    assert (ended["status"], ended["text"]) == ("done", "I see.")
    model.refresh_from_db()
    assert (model.image_limit, model.images_evidence["limit"], model.images_evidence["sent"]) == (5, 5, [7])
    report = person.caller.get(f"turns/{ended['id']}/report/")
    images = [source for source in report["sources"] if source["kind"] == "image"]
    assert [each["state"] for each in images] == ["full"] + ["left_out"] * 2 + ["full"] * 4
    assert {each["reason"] for each in images if each["state"] == "left_out"} == {"too_many_images"}
    assert "It named its limit: from now on 5." in report["calls"][-1]["refused"]
    assert any("at most 5 images" in note for note in report["notes"])
    [line] = [message for message in report["messages"] if message["state"] == "stubbed"]
    assert line["text"] == "These images are not shown here, as one prompt has at most 5: 1.png, 2.png."
    third = person.caller.ask("And without any?", None, place, models=[str(model.pk)])
    assert person.caller.ended(third["id"])["status"] == "done"
    assert len(person.caller.get(f"turns/{third['id']}/report/")["calls"]) == 1
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": "x", "model": str(model.pk)}, expect=200)
    assert sum(source.get("reason") == "too_many_images" for source in plan["sources"]) == 2
    browser = Client()
    browser.force_login(person.user)
    panel = browser.get(f"/turns/{third['id']}/report/", HTTP_HX_REQUEST="true").content.decode()
    assert "the model takes fewer images in one prompt" in panel
    forget_learnt(user=None, model=model)
    model.refresh_from_db()
    assert model.image_limit is None and File.objects.filter(owner=person.user).count() == 7
