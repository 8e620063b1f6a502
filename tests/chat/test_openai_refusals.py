"""OpenAI's protocol: the list of models, embeddings, refusals, and the rows of its requests."""

import asyncio
import base64
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import openai
import pytest
from django.test import Client
from django.utils import timezone
from openai import OpenAI
from pytest_django.fixtures import Settings

from accounts.models import User
from accounts.services import create_token
from chat.background.tasks import forget_requests
from chat.models import Conversation
from chat.openai_api.embedding import MAX_WAITING, PersonalCalls
from core.errors import ProductError
from files.models import File
from llm.models import Model
from personas.models import Persona
from readers.tests.samples import image
from tests.application import Application
from tests.chat.openai_clients import WEATHER, client_of, posted, user_messages
from tests.conftest import Person


def refusal(person: Person, **body: Any) -> tuple[int, dict[str, Any]]:
    asking = {"model": "scripted", "messages": user_messages("Hi"), **body}
    response = posted(person, "chat/completions", asking)
    assert response.headers["X-Request-Id"]
    return response.status_code, response.json()["error"]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"n": 2}, "n", "unsupported_parameter"),
        ({"logprobs": True}, "logprobs", "unsupported_parameter"),
        ({"logit_bias": {"50256": -100}}, "logit_bias", "unsupported_parameter"),
        ({"store": True}, "store", "unsupported_parameter"),
        ({"service_tier": "priority"}, "service_tier", "unsupported_parameter"),
        ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
        ({"model": None}, "model", "missing_required_parameter"),
        ({"model": 7}, "model", "invalid_type"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "system", "content": "Alone."}]}, "messages", "invalid_value"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [*user_messages("Hi"), {"role": "assistant"}]}, "messages[1].content", "invalid_value"),
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"stop": ["a"] * 5}, "stop", "invalid_value"),
        ({"tools": [WEATHER]}, "tools", "unsupported_parameter"),  # of a model that cannot call tools
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0]", "unsupported_tool"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    person: Person, body: dict[str, Any], param: str, code: str
) -> None:
    status, error = refusal(person, **body)
    assert (status, error["type"], error["param"], error["code"]) == (400, "invalid_request_error", param, code)
    assert error["message"] and not Conversation.objects.filter(owner=person.user).exists()


CALLING = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "done"}


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([*user_messages("Hi"), RESULT], "messages[1].tool_call_id"),
        ([*user_messages("Hi"), CALLING], "messages[1]"),
        ([*user_messages("Hi"), CALLING, *user_messages("Well?")], "messages[2]"),
        ([*user_messages("Hi"), CALLING, RESULT, RESULT], "messages[3].tool_call_id"),
    ],
)
def test_calls_and_results_must_belong_together(person: Person, messages: list[Any], param: str) -> None:
    assert refusal(person, messages=messages)[1]["param"] == param


def has_page_pictures(url: str) -> list[Any]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


def test_images_are_never_fetched_and_never_hidden(person: Person, scripted_model_row: Model) -> None:
    _, error = refusal(person, messages=has_page_pictures("http://127.0.0.1:9/cat.png"))
    assert (error["code"], error["param"]) == ("unsupported_image_url", "messages[0].content[0].image_url")
    real = f"data:image/png;base64,{base64.b64encode(image('PNG')).decode()}"
    assert refusal(person, messages=has_page_pictures(real))[1]["code"] == "unsupported_content"  # it cannot see
    seeing = Model.objects.create(provider=scripted_model_row.provider, name=f"eye-{uuid4().hex}", vision=True)
    broken = f"data:image/png;base64,{base64.b64encode(b'no image at all').decode()}"
    assert refusal(person, model=seeing.name, messages=has_page_pictures(broken))[1]["code"] == "invalid_image"
    seeing.delete()


def test_wrong_tokens_and_scopes_are_told_apart(person: Person) -> None:
    with pytest.raises(openai.AuthenticationError) as wrong:
        client_of(person, api_key="gh_wrong").models.list()
    assert wrong.value.code == "invalid_api_key" and wrong.value.request_id
    _, token = create_token(user=person.user, name="files", scopes=["files"])
    limited = client_of(person, api_key=token)
    with pytest.raises(openai.PermissionDeniedError) as lacking:
        limited.chat.completions.create(model="scripted", messages=user_messages("Hi"))
    assert lacking.value.code == "missing_scope"
    assert limited.embeddings.create(model="bundled", input="Hello").data


def test_an_unknown_model_and_an_unknown_address_are_not_found(application: Application, openai_client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        openai_client.chat.completions.create(model="gpt-0", messages=user_messages("Hi"))
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    assert application.http().get("/v1/nothing").json()["error"]["code"] == "not_found"
    wrong = application.http().get("/v1/chat/completions")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_fails_before_its_first_word_fails_the_request(openai_client: OpenAI, stream: bool) -> None:
    error = {"status": 429, "message": "slow down"}
    with pytest.raises(openai.RateLimitError) as busy:
        openai_client.chat.completions.create(
            model="scripted", messages=user_messages("Hi", {"error": error, "ttft": 0.1}), stream=stream
        )
    assert busy.value.code == "rate_limit_exceeded"
    assert busy.value.response.headers["X-Should-Retry"] == "true"
    assert "X-Glasshouse-Report" in busy.value.response.headers


@pytest.mark.parametrize("stream", [False, True])
def test_a_providers_refusal_to_continue_an_answer_is_the_callers_error(
    application: Application, openai_client: OpenAI, stream: bool
) -> None:
    """As Anthropic's newer models and vLLM with some templates refuse it."""
    error = {"status": 400, "message": "This model does not support assistant message prefill."}
    question = user_messages("Hi", {"error": error})
    with pytest.raises(openai.BadRequestError) as refused:
        prefilled: list[Any] = [*question, {"role": "assistant", "content": "Well,"}]
        openai_client.chat.completions.create(model="scripted", messages=prefilled, stream=stream)
    assert (refused.value.code, refused.value.param) == ("bad_model_request", "messages")
    assert refused.value.response.headers["X-Should-Retry"] == "false"
    with pytest.raises(openai.InternalServerError) as failed:
        openai_client.chat.completions.create(model="scripted", messages=question, stream=stream)
    assert failed.value.status_code == 502
    [broken] = application.model.take_broken_rules()  # a program may send an answer to go on with; the product does not
    assert broken.startswith("the_newest_message_is_to_be_answered")


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_minus_one_is_no_limit_of_the_answer(openai_client: OpenAI, name: str) -> None:
    limit: Any = {name: -1}
    answer = openai_client.chat.completions.create(
        model="scripted", messages=user_messages("Hi", {"text": "Hello."}), **limit
    )
    assert answer.choices[0].message.content == "Hello."


def test_a_model_that_breaks_off_says_so_in_the_stream(openai_client: OpenAI) -> None:
    step = {"text": "One two three four.", "interval": 0.1, "cut_after": 3}
    stream = openai_client.chat.completions.create(model="scripted", messages=user_messages("Hi", step), stream=True)
    assert next(iter(stream)).choices[0].delta.content
    with pytest.raises(openai.APIError, match="broke off") as broken:
        list(stream)
    assert broken.value.code == "stream_cut"


def test_a_prompt_that_does_not_fit_is_refused_before_it_is_sent(
    openai_client: OpenAI, scripted_model_row: Model
) -> None:
    small = Model.objects.create(
        provider=scripted_model_row.provider, name=f"small-{uuid4().hex}", context_window=2_000
    )
    with pytest.raises(openai.BadRequestError) as long:
        # Seven megabytes: more words than PostgreSQL indexes of one text.
        openai_client.chat.completions.create(
            model=small.name, messages=user_messages(" ".join(map(str, range(1_000_000))))
        )
    assert long.value.code == "context_length_exceeded"
    small.delete()


def test_personas_and_models_are_listed_and_the_oldest_has_the_name(
    person: Person, openai_client: OpenAI, stranger: Person, scripted_model_row: Model
) -> None:
    def create(name: str, owner: User) -> str:
        return str(Persona.objects.create(owner=owner, name=name).pk)

    dog, twin, secret = create("Sea Dog", person.user), create("Sea-dog", person.user), create("Hidden", stranger.user)
    disguised, foreign = create("Scripted", person.user), create("船長", person.user)
    listed = {each.id: each for each in openai_client.models.list()}
    assert {"sea-dog", twin, disguised, foreign, "scripted"} <= listed.keys()
    assert not {"hidden", secret, dog} & listed.keys()
    assert listed["sea-dog"].owned_by == "glasshouse"
    assert listed["scripted"].owned_by == scripted_model_row.provider.name
    assert openai_client.models.retrieve(dog).id == "sea-dog"
    assert openai_client.chat.completions.create(model=dog, messages=user_messages("Hi")).model == "sea-dog"


def test_a_model_whose_name_has_slashes_is_found(openai_client: OpenAI, scripted_model_row: Model) -> None:
    row = Model.objects.create(provider=scripted_model_row.provider, name=f"Qwen/{uuid4().hex}:8b")
    assert openai_client.models.retrieve(row.name).id == row.name
    row.delete()


def test_texts_are_embedded_in_every_way_clients_ask(openai_client: OpenAI) -> None:
    texts = ["The hull of a boat", "A keel"]
    as_bytes = openai_client.embeddings.create(model="bundled", input=texts)  # the client asks for base64
    plain = openai_client.embeddings.create(model="bundled", input=texts, encoding_format="float", dimensions=256)
    assert [len(each.embedding) for each in plain.data] == [256, 256]
    assert np.allclose(as_bytes.data[1].embedding, plain.data[1].embedding)
    sent_tokens = openai_client.embeddings.create(model="bundled", input=[791, 41298, 315, 264, 15688])  # of texts[0]
    assert np.allclose(sent_tokens.data[0].embedding, plain.data[0].embedding, atol=1e-6)
    assert plain.usage.prompt_tokens > 5


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "x", "model": "text-embedding-3-small"}, "model"),
        ({"input": "x", "dimensions": 64}, "dimensions"),
        ({"input": "x", "encoding_format": "int8"}, "encoding_format"),
        ({"input": ["x", ""]}, "input[1]"),
        ({"input": []}, "input"),
        ({"input": [10**9]}, "input[0]"),
        ({"input": {"x": 1}}, "input[0]"),
        ({"input": ["x", "a " * 8_192]}, "input[1]"),
    ],
)
def test_what_cannot_be_embedded_is_refused(person: Person, body: dict[str, Any], param: str) -> None:
    response = posted(person, "embeddings", {"model": "bundled", **body})
    assert response.status_code in (400, 404) and response.json()["error"]["param"] == param


def test_too_many_calls_are_told_as_openai_tells_them(committed: None, settings: Settings) -> None:
    settings.API_RATES = {"chat": 3}
    _, token = create_token(user=User.objects.create_user(uuid4().hex), name="program")
    program = Client(headers={"Authorization": f"Bearer {token}"})
    answers = [program.get("/v1/models") for _ in range(7)]  # more than three of them within one minute of the clock
    assert answers[0]["X-RateLimit-Limit-Requests"] == "3"
    assert int(answers[0]["X-RateLimit-Remaining-Requests"]) < 3
    last = next(answer for answer in reversed(answers) if answer.status_code == 429)
    assert last.json()["error"]["code"] == "rate_limit_exceeded" and int(last["Retry-After"]) > 0
    assert last["X-RateLimit-Reset-Requests"].endswith("s")


def test_a_browsers_session_is_no_way_in(db: None) -> None:
    browser = Client()
    browser.force_login(User.objects.create_user(uuid4().hex))
    assert browser.get("/v1/models").json()["error"]["code"] == "invalid_api_key"


def test_old_requests_are_forgotten_with_their_images_and_nothing_else(
    person: Person, openai_client: OpenAI, scripted_model_row: Model
) -> None:
    eye = Model.objects.create(provider=scripted_model_row.provider, name=f"eye-{uuid4().hex}", vision=True)
    picture = f"data:image/png;base64,{base64.b64encode(image('PNG', 9, 9)).decode()}"
    openai_client.chat.completions.create(model=eye.name, messages=has_page_pictures(picture))
    openai_client.chat.completions.create(model="scripted", messages=user_messages("Still new"))
    person.caller.http.post("files/", files={"file": ("mine.png", image("PNG", 8, 8))}).raise_for_status()
    person.caller.ended(person.caller.ask("A conversation")["id"])
    mine = Conversation.objects.filter(owner=person.user)
    mine.exclude(title="Still new").update(updated=timezone.now() - timedelta(days=40))
    forget_requests()
    assert sorted(mine.values_list("title", flat=True)) == ["A conversation", "Still new"]
    assert [file.name for file in File.objects.owned_by(person.user)] == ["mine.png"]
    eye.delete()


async def test_a_person_embeds_one_call_at_a_time_and_few_of_theirs_wait() -> None:
    calls, alice, bob = PersonalCalls(), uuid4(), uuid4()
    order: list[str] = []
    go_on = asyncio.Event()

    async def call(person: UUID, name: str) -> None:
        async with calls.turn(person):
            order.append(name)
            await go_on.wait()
            order.append(f"{name} ended")

    async with asyncio.TaskGroup() as group:
        for number in range(1 + MAX_WAITING):
            group.create_task(call(alice, f"{number}"))
        await asyncio.sleep(0)
        group.create_task(call(bob, "bob"))
        await asyncio.sleep(0)
        assert order == ["0", "bob"]
        with pytest.raises(ProductError) as refused:
            await call(alice, "refused")
        assert (refused.value.code, refused.value.status) == ("too_many_embeddings", 429)
        go_on.set()
    of_alice = [name for name in order if "bob" not in name]
    assert of_alice == [name for number in range(1 + MAX_WAITING) for name in (f"{number}", f"{number} ended")]
