"""The product as an MCP server: the protocol's own client, and what each tool gives to whom."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from django.conf import LazySettings
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from accounts.services import create_token
from chat.models import Conversation
from personas.models import Persona
from tests.conftest import Person
from tests.projects.uploads import searchable

SCOPES = ("chat", "files", "projects")
NAMES = [
    *("list_projects", "search_projects", "read_passage", "list_personas"),
    *("ask_persona", "read_answer", "read_report"),
]
ACCEPT = {"Accept": "application/json, text/event-stream"}


def with_script(text: str, answer: str) -> str:
    return f"{text}\nscript: {json.dumps({'steps': [{'text': answer}]})}"


def project_with_file(person: Person, name: str = "Harbour") -> tuple[str, str]:
    project = person.caller.post("projects/", {"name": name}, expect=201)["id"]
    file = searchable(person.caller, f"{name}.txt", f"The harbour of {name} opens at dawn. " * 3)["id"]
    person.caller.post(f"projects/{project}/files/", {"file": file}, expect=201)
    return str(project), str(file)


def text_of(result: CallToolResult) -> str:
    """Return the text of a result with one part."""
    [part] = result.content
    assert isinstance(part, TextContent)
    return part.text


async def with_client(person: Person, use: Callable[[Client], Awaitable[Any]], token: str = "") -> Any:
    headers = {"Authorization": f"Bearer {token or person.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{person.caller.url}/mcp/", http_client=http)
        async with Client(transport) as client:
            return await use(client)


@pytest.mark.product
async def test_the_protocols_own_client_searches_reads_asks_and_reads_the_report(person: Person) -> None:
    project, file = await asyncio.to_thread(project_with_file, person)

    async def use(client: Client) -> None:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == NAMES
        hits = await client.call_tool("search_projects", {"query": "When does the harbour open?"})
        assert hits.structured_content is not None and not hits.is_error
        assert hits.structured_content["passages"][0]["file"] == file
        passage = await client.call_tool("read_passage", {"file": file, "start": 4})
        assert "harbour of Harbour opens at dawn" in text_of(passage)
        question = {"question": with_script("Hello?", "At dawn."), "project": project}
        answer = await client.call_tool("ask_persona", question)
        data = answer.structured_content
        assert data is not None and (data["status"], data["answer"]) == ("done", "At dawn."), answer
        assert text_of(answer).startswith("At dawn.\n")
        report = await client.call_tool("read_report", {"turn": data["turn"]})
        assert report.structured_content is not None and "messages" not in report.structured_content
        assert "tokens used" in text_of(report)
        assert data["report"].endswith(f"/api/v1/turns/{data['turn']}/report/")
        again = await client.call_tool("ask_persona", {"question": "And?", "conversation": data["conversation"]})
        assert again.structured_content is not None
        assert again.structured_content["conversation"] == data["conversation"]

    await with_client(person, use)


class Calls:
    """Calls of tools by plain requests, without the protocol's package."""

    def __init__(self, person: Person, token: str | None = None) -> None:
        self.person, self.token = person, person.token if token is None else token

    def send(self, body: Any, method: str = "POST", **headers: str) -> Any:
        token = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with self.person.caller.server.http("/", headers={**ACCEPT, **token, **headers}) as http:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return http.request(method, "/mcp/", content=content, headers={"Content-Type": "application/json"})

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        response = self.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        assert response.status_code == 200, response.text
        if response.headers["content-type"].startswith("application/json"):
            whole = response.json()
        else:
            whole = json.loads(next(line for line in response.text.splitlines() if line.startswith("data: {"))[6:])
        return dict(whole.get("result", whole))

    def call(self, name: str, **arguments: Any) -> tuple[str, Any, bool]:
        result = self.request("tools/call", name=name, arguments=arguments)
        text = result["content"][0]["text"]
        return text, result.get("structuredContent"), result.get("isError", False)


def test_a_token_offers_the_tools_of_its_scopes(person: Person) -> None:
    assert [tool["name"] for tool in Calls(person).request("tools/list")["tools"]] == NAMES
    _row, token = create_token(user=person.user, name="reader", scopes=["files"])
    reader = Calls(person, token)
    assert [tool["name"] for tool in reader.request("tools/list")["tools"]] == ["read_passage"]
    text, _data, error = reader.call("ask_persona", question="Hello?")
    assert error and "lacks the scope “chat”" in text
    assert not Conversation.objects.filter(owner=person.user).exists()


def test_requests_without_a_usable_token_are_refused(person: Person) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    missing = Calls(person, "").send(listing)
    assert missing.status_code == 401 and missing.json()["code"] == "not_authenticated"
    assert missing.headers["WWW-Authenticate"] == "Bearer"
    assert Calls(person, "wrong").send(listing).json()["code"] == "bad_token"
    _row, token = create_token(user=person.user, name="tasks", scopes=["tasks"])
    assert Calls(person, token).send(listing).json()["code"] == "missing_scope"
    for method in ("GET", "DELETE", "PUT"):
        assert Calls(person).send(b"", method).status_code == 405


def test_bodies_are_bounded_and_what_is_no_request_is_refused(person: Person) -> None:
    large = Calls(person).send({"jsonrpc": "2.0", "id": 1, "method": "x" * 1_000_001})
    assert large.status_code == 413 and large.json()["code"] == "request_too_large"
    for bad in (b"", b"[", b"[1]", b'"x"', b'{"jsonrpc": "2.0", "id": 1, "method": 5}', b"[" * 100_000):
        assert Calls(person).send(bad).status_code == 400
    unknown = Calls(person).request("no/such/method")
    assert unknown["error"]["code"] == -32601


def test_calls_count_against_the_limit_of_their_kind(person: Person, settings: LazySettings) -> None:
    settings.API_RATES = {"projects": 2, "chat": 0}
    calls = Calls(person)
    first = calls.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_projects"}})
    assert first.status_code == 200 and first.headers["RateLimit-Remaining"] == "1"
    calls.call("list_projects")
    third = calls.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search_projects"}})
    assert third.status_code == 429 and third.json()["code"] == "throttled"
    assert calls.request("tools/list")["tools"]


def test_nobody_reaches_the_rows_of_others(person: Person, stranger: Person) -> None:
    project, file = project_with_file(person, "Secret")
    _text, answer, _error = Calls(person).call("ask_persona", question=with_script("Hello?", "Hi."))
    persona = Persona.objects.create(owner=person.user, name="Mine", instructions="Help.")
    others = Calls(stranger)
    text, data, _error = others.call("search_projects", query="Secret harbour")
    assert data["passages"] == [] and "Secret" not in text
    assert others.call("list_projects")[1] == {"projects": []}
    assert str(persona.pk) not in others.call("list_personas")[0]
    refused = [
        others.call("search_projects", query="harbour", project=project),
        others.call("read_passage", file=file),
        others.call("read_report", turn=answer["turn"]),
        others.call("read_answer", turn=answer["turn"]),
        others.call("ask_persona", question="Hello?", persona=str(persona.pk)),
        others.call("ask_persona", question="Hello?", project=project),
        others.call("ask_persona", question="Hello?", conversation=answer["conversation"]),
    ]
    assert all(error and "dawn" not in text for text, _data, error in refused)
    assert not Conversation.objects.filter(owner=stranger.user).exists()


def test_wrong_arguments_are_named(person: Person) -> None:
    calls = Calls(person)
    assert "“query” is not right: Field required." in calls.call("search_projects")[0]
    assert "“file” is not right" in calls.call("read_passage", file="x")[0]
    assert "“other” is not right" in calls.call("list_projects", other=1)[0]
    assert "“question” is not right" in calls.call("ask_persona", question="x" * 100_001)[0]
    text, _data, error = calls.call("no_such_tool")
    assert error and "There is no tool of this name" in text


def test_a_question_that_is_refused_says_why(person: Person) -> None:
    conversation = person.caller.post("conversations/", {}, expect=201)["id"]
    calls = Calls(person)
    text, _data, error = calls.call("ask_persona", question="x", conversation=conversation, project=conversation)
    assert error and "Leave both out" in text
    text, _data, error = calls.call("ask_persona", question="   ")
    assert error and text
    assert not Conversation.objects.filter(owner=person.user).exclude(pk=conversation).exists()
