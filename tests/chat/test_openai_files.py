"""OpenAI's protocol: files in messages, `/v1/files`, and what the product does not offer."""

import base64
import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import openai
import pytest
from django.utils import timezone
from openai import OpenAI

from accounts.services import create_token
from chat.background.tasks import forget_requests
from chat.models import Conversation
from files.models import File
from llm.models import Model
from readers.tests.samples import image
from tests.application import Application
from tests.chat.openai_clients import client_of, posted
from tests.conftest import Person

TABLE = b"town,rain\nConwy,yes\n"


def inline(name: str, content: bytes = TABLE) -> dict[str, Any]:
    data = f"data:text/csv;base64,{base64.b64encode(content).decode()}"
    return {"type": "file", "file": {"filename": name, "file_data": data}}


def question(text: str, *parts: dict[str, Any]) -> list[Any]:
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def test_a_file_in_a_message_is_read_once_however_often_it_is_sent(
    application: Application, person: Person, openai_client: OpenAI
) -> None:
    mark = uuid4().hex
    messages = question(f"Where does it rain? {mark}", inline("rain.csv"))
    for _ in range(2):
        openai_client.chat.completions.create(model="scripted", messages=messages)
    for sent in application.model.finished(mark, 2):
        prompt = json.dumps(sent.body["messages"])
        assert "rain.csv" in prompt and "Conwy" in prompt
    assert [file.name for file in File.objects.owned_by(person.user)] == ["rain.csv"]


def test_an_uploaded_file_is_named_by_its_id_in_each_protocol(
    application: Application, person: Person, openai_client: OpenAI, able: Model
) -> None:
    mark = uuid4().hex
    uploaded = openai_client.files.create(file=("rain.csv", TABLE), purpose="user_data")
    picture = openai_client.files.create(file=("sky.png", image("PNG", 24, 16)), purpose="vision")
    assert (uploaded.object, uploaded.filename, uploaded.bytes) == ("file", "rain.csv", len(TABLE))
    named = {"type": "file", "file": {"file_id": uploaded.id}}
    openai_client.chat.completions.create(model=able.name, messages=question(f"Where? {mark}", named))
    items: list[Any] = [
        {"type": "input_file", "file_id": uploaded.id},
        {"type": "input_image", "file_id": picture.id, "detail": "auto"},
        {"type": "input_text", "text": f"Where? {mark}"},
    ]
    openai_client.responses.create(model=able.name, input=[{"role": "user", "content": items}])
    first, second = application.model.finished(mark, 2)
    assert "Conwy" in json.dumps(first.body["messages"])
    assert "Conwy" in json.dumps(second.body["messages"]) and "image_url" in json.dumps(second.body["messages"])
    assert person.user.files.count() == 2


def test_files_are_listed_read_and_deleted(person: Person, openai_client: OpenAI, stranger: Person) -> None:
    ids = [openai_client.files.create(file=(f"{n}.txt", b"x" * (n + 1)), purpose="user_data").id for n in range(3)]
    assert [file.id for file in openai_client.files.list(limit=2)] == ids[::-1], "page by page"
    assert [file.id for file in openai_client.files.list(order="asc", after=ids[0])] == ids[1:]
    assert openai_client.files.content(ids[1]).read() == b"xx"
    assert openai_client.files.wait_for_processing(ids[1]).status == "processed"
    for forbidden in (client_of(stranger).files.retrieve, client_of(stranger).files.delete):
        with pytest.raises(openai.NotFoundError) as unseen:
            forbidden(ids[0])
        assert unseen.value.code == "file_not_found"
    assert openai_client.files.delete(ids[0]).deleted
    assert {str(file.pk) for file in person.user.files.all()} == {each.removeprefix("file-") for each in ids[1:]}


def test_a_file_of_somebody_else_cannot_be_named(person: Person, openai_client: OpenAI, stranger: Person) -> None:
    theirs = client_of(stranger).files.create(file=("rain.csv", TABLE), purpose="user_data")
    named = {"type": "file", "file": {"file_id": theirs.id}}
    with pytest.raises(openai.NotFoundError) as unseen:
        openai_client.chat.completions.create(model="scripted", messages=question("Where?", named))
    assert (unseen.value.code, unseen.value.param) == ("file_not_found", "messages[0].content[0].file.file_id")


def test_a_token_needs_the_scope_of_files(person: Person) -> None:
    _, token = create_token(user=person.user, name="chat", scopes=["chat"])
    with pytest.raises(openai.PermissionDeniedError):
        client_of(person, api_key=token).files.list()


@pytest.mark.parametrize(
    ("part", "param", "code"),
    [
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            "messages[0].content[0]",
            "unsupported_content",
        ),
        ({"type": "file", "file": {}}, "messages[0].content[0].file.file_data", "invalid_file"),
        ({"type": "file", "file": {"file_data": "!"}}, "messages[0].content[0].file.file_data", "invalid_file"),
        ({"type": "file", "file": "x"}, "messages[0].content[0].file", "invalid_type"),
        (inline("broken.pdf", b"%PDF-1.7 no pdf at all"), "messages[0].content[0].file.file_data", "invalid_file"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(person: Person, part: dict[str, Any], param: str, code: str) -> None:
    body = {"model": "scripted", "messages": question("What is it?", part)}
    response = posted(person, "chat/completions", body)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, code)


@pytest.mark.parametrize("path", ["completions", "moderations"])
def test_endpoints_that_are_not_offered_say_where_to_go(person: Person, path: str) -> None:
    response = posted(person, path, {"model": "scripted", "prompt": "Hi", "input": "Hi"})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (404, "unsupported_endpoint")
    assert "/v1/chat/completions" in error["message"] and response.headers["X-Should-Retry"] == "false"


def test_sent_files_go_with_their_request_and_uploaded_ones_stay(person: Person, openai_client: OpenAI) -> None:
    uploaded = openai_client.files.create(file=("mine.csv", TABLE + b"Bangor,no\n"), purpose="user_data")
    named = {"type": "file", "file": {"file_id": uploaded.id}}
    messages = question("Where?", inline("rain.csv"), named)
    openai_client.chat.completions.create(model="scripted", messages=messages)
    Conversation.objects.filter(owner=person.user).update(updated=timezone.now() - timedelta(days=40))
    forget_requests()
    assert [file.name for file in File.objects.owned_by(person.user)] == ["mine.csv"]


def test_a_file_that_requests_send_under_several_names_goes_with_them(person: Person, openai_client: OpenAI) -> None:
    content = f"town,rain\n{uuid4().hex},yes\n".encode()
    for name in ("rain.csv", "rain-2.csv"):
        openai_client.chat.completions.create(model="scripted", messages=question("Where?", inline(name, content)))
    assert [file.name for file in File.objects.owned_by(person.user)] == ["rain.csv"]
    old = timezone.now() - timedelta(days=40)
    Conversation.objects.filter(owner=person.user).update(updated=old)
    forget_requests()
    assert not File.objects.owned_by(person.user).exists()


@pytest.mark.parametrize("own_first", [True, False])
def test_a_file_that_was_also_uploaded_for_itself_stays(person: Person, openai_client: OpenAI, own_first: bool) -> None:
    content = f"town,rain\n{uuid4().hex},yes\n".encode()
    if own_first:
        openai_client.files.create(file=("rain.csv", content), purpose="user_data")
    for name in ("rain.csv", "rain-2.csv"):
        openai_client.chat.completions.create(model="scripted", messages=question("Where?", inline(name, content)))
    if not own_first:
        openai_client.files.create(file=("rain.csv", content), purpose="user_data")
    old = timezone.now() - timedelta(days=40)
    Conversation.objects.filter(owner=person.user).update(updated=old)
    forget_requests()
    assert [file.name for file in File.objects.owned_by(person.user)] == ["rain.csv"]


def test_a_part_of_the_form_that_nothing_honours_is_refused(person: Person, openai_client: OpenAI) -> None:
    """Otherwise a program would rely on the file's deletion after an hour."""
    with pytest.raises(openai.BadRequestError, match="Its parts are: file, purpose") as refused:
        openai_client.files.create(
            file=("brief.csv", TABLE), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3_600}
        )
    assert refused.value.param == "expires_after[anchor]"
    assert not File.objects.owned_by(person.user).exists()


@pytest.mark.product
def test_a_file_may_be_larger_than_other_requests(openai_client: OpenAI) -> None:
    size = 9_000_000
    assert openai_client.files.create(file=("zeros.bin", bytes(size)), purpose="user_data").bytes == size
