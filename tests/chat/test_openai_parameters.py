"""The parameters of OpenAI's protocol that steer an answer and give it a form: sent on, or refused by their names."""

import json
from collections.abc import Iterator
from typing import Any, cast
from uuid import uuid4

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from chat.models import Conversation
from chat.prompts.turn_context import ProgramOptions, StoredOptions, parse_options
from llm.models import Model, Provider
from llm.services import upsert_provider
from llm.types.model_call import Sampling
from tests.application import Application
from tests.chat.openai_clients import WEATHER, user_messages
from tests.conftest import Person


class Town(BaseModel):
    """The answer that a program asks for."""

    name: str
    people: int


SCHEMA: Any = {
    "type": "json_schema",
    "json_schema": {
        "name": "town",
        "schema": {"type": "object", "properties": {"people": {"type": "integer"}, "name": {"type": "string"}}},
    },
}
NEUTRAL: dict[str, Any] = {
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0.0,
    "seed": None,
    "response_format": {"type": "text"},
    "logprobs": False,
    "logit_bias": {},
    "n": 1,
    "store": False,
    "parallel_tool_calls": True,
    "service_tier": "auto",
    "verbosity": "medium",
    "reasoning_effort": None,
}
HARMLESS: dict[str, Any] = {
    "metadata": {"run": "7"},
    "user": "somebody",
    "prompt_cache_key": "k",
    "stream_options": None,
}


@pytest.fixture
def foreign(application: Application, committed: None) -> Iterator[str]:
    """The name of a model behind Anthropic's protocol."""
    name = f"foreign-{uuid4().hex[:8]}"
    upsert_provider(
        name=name,
        kind=Provider.Kind.ANTHROPIC,
        base_url=application.model.url,
        api_key="key",
        models=[(name, 64_000)],
        default=False,
    )
    yield name
    Provider.objects.get(name=name).delete()


def sent(application: Application, mark: str) -> dict[str, Any]:
    [record] = application.model.finished(mark)
    body: dict[str, Any] = record.body
    return body


def test_what_steers_the_answer_reaches_the_model(application: Application, openai_client: OpenAI) -> None:
    mark = uuid4().hex
    steering: dict[str, Any] = {
        "top_p": 0.25,
        "presence_penalty": 1.5,
        "frequency_penalty": -2,
        "seed": 0,
        "reasoning_effort": "high",
        "verbosity": "low",
    }
    openai_client.chat.completions.create(model="scripted", messages=user_messages(f"Hi {mark}"), **steering)
    assert steering.items() <= sent(application, mark).items()


def test_what_says_nothing_new_is_accepted_everywhere_and_not_sent(
    application: Application, openai_client: OpenAI, foreign: str
) -> None:
    for model in ("scripted", foreign):
        mark = uuid4().hex
        answer = openai_client.chat.completions.create(
            model=model, messages=user_messages(f"Hi {mark}"), extra_body=NEUTRAL | HARMLESS
        )
        assert answer.choices[0].message.content
        assert not (NEUTRAL | HARMLESS).keys() - {"stream_options"} & sent(application, mark).keys()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"top_p": 0.5}, "top_p"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"frequency_penalty": 1}, "frequency_penalty"),
        ({"seed": 7}, "seed"),
        ({"reasoning_effort": "none"}, "reasoning_effort"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_what_another_protocol_has_no_word_for_is_refused_by_name(
    person: Person, openai_client: OpenAI, foreign: str, body: dict[str, Any], param: str
) -> None:
    with pytest.raises(
        openai.BadRequestError, match=f"The provider of {foreign} does not support “{param}”"
    ) as refused:
        openai_client.chat.completions.create(model=foreign, messages=user_messages("Hi"), extra_body=body)
    assert (refused.value.param, refused.value.code) == (param, "unsupported_parameter")
    assert not Conversation.objects.filter(owner=person.user).exists()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": "0.5"}, "top_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": True}, "frequency_penalty"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"reasoning_effort": "utmost"}, "reasoning_effort"),
        ({"verbosity": []}, "verbosity"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": []}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": 1}}},
            "response_format.json_schema.strict",
        ),
    ],
)
def test_a_value_that_is_none_is_refused_by_name(openai_client: OpenAI, body: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(model="scripted", messages=user_messages("Hi"), extra_body=body)
    assert refused.value.param == param


def test_structured_output_is_parsed_by_the_clients_own_helper(
    application: Application, openai_client: OpenAI, foreign: str
) -> None:
    for model in ("scripted", foreign):
        mark, script = uuid4().hex, {"text": '{"name": "Conwy", "people": 14723}'}
        answer = openai_client.chat.completions.parse(
            model=model, messages=user_messages(f"Which town? {mark}", script), response_format=Town
        )
        assert answer.choices[0].message.parsed == Town(name="Conwy", people=14723)
        body = sent(application, mark)
        if model == "scripted":
            format_ = body["response_format"]
            assert (format_["type"], format_["json_schema"]["name"]) == ("json_schema", "Town")
            assert format_["json_schema"]["strict"] is True
            schema = format_["json_schema"]["schema"]
        else:
            schema = body["output_config"]["format"]["schema"]
        assert list(schema["properties"]) == ["name", "people"]


def test_structured_output_is_streamed(openai_client: OpenAI) -> None:
    step = {"text": '{"name": "Conwy", "people": 14723}', "interval": 0.01}
    with openai_client.chat.completions.stream(
        model="scripted", messages=user_messages("Which town?", step), response_format=Town
    ) as stream:
        parsed = stream.get_final_completion().choices[0].message.parsed
    assert parsed == Town(name="Conwy", people=14723)


def test_the_schema_takes_room_in_the_report_and_keeps_its_order(
    application: Application, person: Person, openai_client: OpenAI
) -> None:
    mark = uuid4().hex
    create = openai_client.chat.completions.with_raw_response.create
    plain = create(model="scripted", messages=user_messages("Hi"))
    shaped = create(model="scripted", messages=user_messages(f"Hi {mark}"), response_format=SCHEMA)
    without, with_ = (person.caller.http.get(raw.headers["X-Glasshouse-Report"]).json() for raw in (plain, shaped))
    more = with_["tools_tokens"] - without["tools_tokens"]
    assert 20 < more < 80
    assert with_["limit"] == without["limit"] - more
    properties = sent(application, mark)["response_format"]["json_schema"]["schema"]["properties"]
    assert list(properties) == ["people", "name"]


def test_a_schema_that_leaves_no_room_is_refused_like_a_prompt_that_is_too_long(
    openai_client: OpenAI, scripted_model_row: Model
) -> None:
    small = Model.objects.create(
        provider=scripted_model_row.provider, name=f"small-{uuid4().hex}", context_window=4_000
    )
    described: Any = {"type": "object", "description": " word" * 4_000}
    format_: Any = {"type": "json_schema", "json_schema": {"name": "long", "schema": described}}
    with pytest.raises(openai.BadRequestError) as long:
        openai_client.chat.completions.create(model=small.name, messages=user_messages("Hi"), response_format=format_)
    assert long.value.code == "context_length_exceeded"
    small.delete()


def test_calls_one_at_a_time_are_asked_for_where_there_are_tools(
    application: Application, openai_client: OpenAI, able: Model
) -> None:
    mark = uuid4().hex
    openai_client.chat.completions.create(
        model=able.name, messages=user_messages(f"Hi {mark}"), tools=[WEATHER], parallel_tool_calls=False
    )
    assert sent(application, mark)["parallel_tool_calls"] is False


def test_options_are_read_as_they_were_kept_and_those_of_earlier_versions_too() -> None:
    options = ProgramOptions(sampling=Sampling(top_p=0.5, seed=3), response_format=SCHEMA, parallel_tool_calls=False)
    assert parse_options(json.loads(json.dumps(options.as_json()))) == options
    earlier = {
        name: value
        for name, value in ProgramOptions(temperature=0.5).as_json().items()
        if name not in ("sampling", "response_format", "parallel_tool_calls")
    }
    assert parse_options(cast("StoredOptions", earlier)) == ProgramOptions(temperature=0.5)
