import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest
from openai import OpenAI

from llm.models import Model, WebSearch
from tests.chat.citing import CLAUSE
from tests.chat.documents import upload
from tests.chat.openai_clients import client_of
from tests.chat.tool_servers import Diary, diary
from tests.chat.web_search import SearXNG
from tests.conftest import Person
from tests.product import WAIT, until


@pytest.fixture
def openai_client(person: Person) -> OpenAI:
    return client_of(person, timeout=WAIT)


@pytest.fixture
def able(scripted_model_row: Model) -> Iterator[Model]:
    """A model that can call tools and see images."""
    row = Model.objects.create(
        provider=scripted_model_row.provider,
        name=f"scripted-{uuid4().hex[:8]}",
        context_window=64_000,
        tools=True,
        vision=True,
    )
    yield row
    row.delete()


@pytest.fixture
def caller_of_tools(scripted_model_row: Model) -> Model:
    return Model.objects.create(
        provider=scripted_model_row.provider, name=f"scripted-{uuid4().hex[:8]}", context_window=64_000, tools=True
    )


@pytest.fixture
def place(person: Person) -> str:
    """A conversation in a project whose file can be searched."""
    file = upload(person, "contract.txt", CLAUSE.encode())
    until(lambda: person.caller.get(f"files/{file['id']}/")["searchable"], "the file can be searched")
    project = person.caller.post("projects/", {"name": "Contracts"}, expect=201)
    person.caller.post(f"projects/{project['id']}/files/", {"file": file["id"]}, expect=201)
    return str(person.caller.post("conversations/", {"project": project["id"]}, expect=201)["id"])


@pytest.fixture
def search(committed: None) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), SearXNG)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    row = WebSearch.objects.create(name=f"test-{uuid4().hex[:8]}", kind="searxng", base_url=url, active=True)
    yield
    row.delete()
    server.shutdown()


@pytest.fixture
def guarded(person: Person, scripted_model_row: Model, tmp_path: Path) -> Iterator[Diary]:
    tools = diary(person, scripted_model_row, tmp_path, approval_required=True)
    yield tools
    tools.row.delete()
