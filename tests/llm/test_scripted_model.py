"""The test double keeps its own promises: the other suites lean on them."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import httpx
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.scripted_model import DEFAULT_TEXT, ScriptedModel, expected_text


def ask(server: ScriptedModel, messages: list[dict[str, Any]], **fields: Any) -> httpx.Response:
    body = {"model": "scripted", "messages": messages} | fields  # fields may name another model
    return httpx.post(f"{server.url}/v1/chat/completions", json=body)


def text_of(response: httpx.Response) -> str:
    return str(response.json()["choices"][0]["message"]["content"])


def user(text: str, script: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"role": "user", "content": text if script is None else f"{text}\nscript: {json.dumps(script)}\nThanks"}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_the_newest_script_is_played_step_by_step_and_the_last_repeats(scripted_model: ScriptedModel) -> None:
    messages = [user("Go", {"text": "old"}), assistant("old")]
    messages.append(user("On", {"steps": [{"text": "one"}, {"text": "two"}]}))
    for expected in ("one", "two", "two"):
        answer = text_of(ask(scripted_model, messages))
        assert answer == expected
        messages.append(assistant(answer))


def test_a_script_by_name_starts_anew_with_every_message_of_a_person(scripted_model: ScriptedModel) -> None:
    name = scripted_model.set_script("pair", {"steps": [{"text": "one"}, {"text": "two"}]})
    messages = [user("a")]
    assert text_of(ask(scripted_model, messages, model=name)) == "one"
    messages.append(assistant("one"))
    assert text_of(ask(scripted_model, messages, model=name)) == "two"
    messages += [assistant("two"), user("b")]
    assert text_of(ask(scripted_model, messages, model=name)) == "one"


def test_scripts_and_requests_are_reached_over_http(scripted_model: ScriptedModel) -> None:
    created = httpx.post(f"{scripted_model.url}/control/scripts/x", json={"tokens": 3}).json()
    assert text_of(ask(scripted_model, [user("Chào bạn")], model=created["model"])) == "t0 t1 t2"
    ask(scripted_model, [user("other")])
    control = f"{scripted_model.url}/control/requests"
    (request,) = httpx.get(control, params={"contains": "Chào", "finished": "1"}).json()["requests"]
    assert (request["ended"], request["status"], request["path"]) == ("complete", 200, "/v1/chat/completions")
    assert request["arrived"] <= request["first_byte"] <= request["ended_at"]
    assert request["body"]["messages"][0]["content"] == "Chào bạn"
    httpx.delete(control)
    assert httpx.get(control).json() == {"requests": []}


@pytest.mark.parametrize("script", [{"txet": "typo"}, {"steps": []}, {"error": {"reason": 1}}, [1]])
def test_a_script_that_cannot_be_played_is_refused(scripted_model: ScriptedModel, script: Any) -> None:
    assert httpx.post(f"{scripted_model.url}/control/scripts/x", json=script).status_code == 400


def test_an_error_may_pass_after_some_requests(scripted_model: ScriptedModel) -> None:
    script = {"error": {"status": 503}, "error_times": 2, "text": "At last"}
    statuses = [ask(scripted_model, [user("Go", script)]).status_code for _ in range(4)]
    assert statuses == [503, 503, 200, 200]
    assert ask(scripted_model, [user("Go", script | {"note": "another"})]).status_code == 503


def test_keys_are_not_kept(scripted_model: ScriptedModel) -> None:
    httpx.get(f"{scripted_model.url}/v1/models", headers={"authorization": "Bearer secret", "x-api-key": "secret"})
    (record,) = scripted_model.finished()
    assert record.headers["authorization"] == record.headers["x-api-key"] == "present"


@pytest.mark.parametrize("text", ["", "word", "Hello,  world\n\n", "x" * 50, "Tiếng Việt không dấu cách 中文也可以"])
def test_an_answer_is_what_a_test_computes(scripted_model: ScriptedModel, text: str) -> None:
    assert text_of(ask(scripted_model, [user("Go", {"text": text})])) == expected_text({"text": text}) == text


def test_the_client_can_leave_while_the_model_is_silent(scripted_model: ScriptedModel) -> None:
    body = {"model": "scripted", "stream": True, "messages": [user("Go", {"tokens": 9, "silent_after": 2})]}
    with httpx.stream("POST", f"{scripted_model.url}/v1/chat/completions", json=body) as response:
        next(response.iter_bytes())
    (record,) = scripted_model.finished()
    assert (record.ended, record.pieces) == ("client_closed", 2)


def test_a_cut_connection_is_recorded_as_cut(scripted_model: ScriptedModel) -> None:
    body = {"model": "scripted", "stream": True, "messages": [user("Go", {"tokens": 9, "cut_after": 3})]}
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(f"{scripted_model.url}/v1/chat/completions", json=body)
    (record,) = scripted_model.finished()
    assert (record.ended, record.pieces) == ("cut", 3)


async def test_the_official_clients_understand_whole_answers(scripted_model: ScriptedModel) -> None:
    script = {"text": "Hi.", "tool_calls": [{"name": "now", "arguments": {"zone": "UTC"}}]}
    openai = AsyncOpenAI(base_url=scripted_model.openai_url, api_key="x")
    anthropic = AsyncAnthropic(base_url=scripted_model.url, api_key="x")
    content = str(user("Go", script)["content"])
    chat = await openai.chat.completions.create(model="scripted", messages=[{"role": "user", "content": content}])
    assert chat.choices[0].message.content == "Hi."
    assert chat.choices[0].finish_reason == "tool_calls"
    message = await anthropic.messages.create(
        model="scripted", max_tokens=9, messages=[{"role": "user", "content": content}]
    )
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert message.stop_reason == "tool_use"
    same, close, far = (
        each.embedding
        for each in (
            await openai.embeddings.create(model="scripted", input=["red cat", "red dog", "nothing shared"])
        ).data
    )
    assert sum(a * b for a, b in zip(same, close, strict=True)) > sum(a * b for a, b in zip(same, far, strict=True))
    await openai.close()
    await anthropic.close()


async def test_the_official_clients_understand_streams(scripted_model: ScriptedModel) -> None:
    openai = AsyncOpenAI(base_url=scripted_model.openai_url, api_key="x")
    anthropic = AsyncAnthropic(base_url=scripted_model.url, api_key="x")
    chat = await openai.chat.completions.create(
        model="scripted", stream=True, messages=[{"role": "user", "content": "Hello"}]
    )
    pieces = [chunk.choices[0].delta.content or "" async for chunk in chat]
    assert "".join(pieces) == DEFAULT_TEXT
    async with anthropic.messages.stream(
        model="scripted", max_tokens=9, messages=[{"role": "user", "content": "Hello"}]
    ) as stream:
        assert await stream.get_final_text() == DEFAULT_TEXT
    await openai.close()
    await anthropic.close()


@pytest.mark.process
async def test_the_command_serves_until_it_is_ended() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.scripted_model", "--port", "0", stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    port = json.loads(await process.stdout.readline())["port"]
    async with httpx.AsyncClient() as client:
        models = (await client.get(f"http://127.0.0.1:{port}/v1/models")).json()
    assert models["data"][0]["id"] == "scripted"
    process.terminate()
    await process.wait()
