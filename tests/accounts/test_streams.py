"""Connections end with the session or token that opened them, however that has ended (docs/decisions/0016)."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db.models import QuerySet
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings
from websockets.exceptions import ConnectionClosed

from accounts import realtime
from accounts.models import ApiToken, OpenIDIdentity, Session, User
from accounts.services import revoke_tokens
from chat.models import Turn
from chat.turns.services import stop_turn
from tests.accounts.openid_browser import row_of, sign_in
from tests.accounts.openid_provider import providing
from tests.application import Application
from tests.conftest import Person
from tests.contrib.ag_ui.client import run_input
from tests.product import until
from tests.sockets import Socket, open_socket

LONG = {"tokens": 5_000, "interval": 0.02}
SAID = f"Long.\nscript: {json.dumps(LONG)}"
ENDS = ("RUN_FINISHED", "RUN_STOPPED", "RUN_ERROR", "[DONE]", 'data: {"error"')
CSRF = "a" * 32


class Opened:
    """One open connection of each kind of a person, by a session or by a token; each has received part of an answer."""

    def __init__(self, application: Application, person: Person, headers: dict[str, str], stack: ExitStack) -> None:
        self._http = application.http(headers=headers)
        self.place = person.caller.conversation()
        turn = person.caller.ask("Long.", LONG, self.place)["id"]
        self.socket: Socket = stack.enter_context(open_socket(application, {**headers, "Origin": application.url}))
        self.socket.send("subscribe", turn=turn)
        self.socket.until("TEXT_MESSAGE_CONTENT")
        other, body = person.caller.conversation(), run_input({"id": "1", "role": "user", "content": SAID})
        self.streams = {
            "events": stack.enter_context(self._lines("GET", f"/api/v1/turns/{turn}/events/")),
            "begun": stack.enter_context(self._lines("POST", f"/api/v1/conversations/{other}/turns/", {"text": SAID})),
            "ag-ui": stack.enter_context(self._lines("POST", "/api/v1/ag-ui/", body)),
        }
        if "Authorization" in headers:  # of the OpenAI protocol a session is no sign-in
            request = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": SAID}]}
            self.streams["openai"] = stack.enter_context(self._lines("POST", "/v1/chat/completions", request))

    @contextmanager
    def _lines(self, method: str, path: str, body: Any = None) -> Iterator[Iterator[str]]:
        with self._http.stream(method, path, json=body, headers={"Accept": "text/event-stream"}) as response:
            assert response.status_code == 200, response.read()
            lines = response.iter_lines()
            assert any(line.startswith("data: ") for line in lines)
            yield lines

    def cut_off(self) -> None:
        """Each is, before its answer is complete, and the socket takes nothing any more."""
        with suppress(ConnectionClosed):  # it may be closed already
            self.socket.send("send", conversation=self.place, text="Nobody may say this any more.")
        assert self.socket.close_code() == 4401
        for kind, lines in self.streams.items():
            assert not any(end in line for line in lines for end in ENDS), kind


def by_session(person: Person, client: Client | None = None) -> tuple[Client, dict[str, str]]:
    """Return a client, the given or a new one, and the headers of its session."""
    if client is None:
        client = Client()
        client.force_login(person.user)
    session = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    return client, {"Cookie": f"{session}; {settings.CSRF_COOKIE_NAME}={CSRF}", "X-CSRFToken": CSRF}


def with_another_password(person: Person, browser: Client) -> None:
    """On the person's page."""
    new = "an even longer staple"
    form = {"old_password": person.password, "new_password1": new, "new_password2": new}
    assert browser.post("/settings/password/", form).status_code == 302


def changepassword(person: Person, browser: Client) -> None:
    """Change the password as `manage.py changepassword` does, without news to other processes."""
    person.user.set_password("an even longer staple")
    person.user.save()


OF_SESSIONS: dict[str, Callable[[Person, Client], object]] = {
    "sign-out": lambda person, browser: browser.post("/logout/"),
    "sign-out elsewhere": lambda person, browser: Session.objects.filter(user=person.user).delete(),
    "password": with_another_password,
    "password by command": changepassword,
    "deactivation": lambda person, browser: User.objects.filter(pk=person.user.pk).update(is_active=False),
    "deletion": lambda person, browser: User.objects.filter(pk=person.user.pk).delete(),
}
OF_TOKENS: dict[str, Callable[[QuerySet[ApiToken], Person], object]] = {
    "end": lambda tokens, person: tokens.update(expires=timezone.now()),
    "revocation": lambda tokens, person: revoke_tokens(user=person.user),
    "a scope that is taken": lambda tokens, person: tokens.update(scopes=["files"]),
    "deactivation": lambda tokens, person: User.objects.filter(pk=person.user.pk).update(is_active=False),
    "deletion": lambda tokens, person: User.objects.filter(pk=person.user.pk).delete(),
}


@pytest.fixture(autouse=True)
def _checked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realtime, "CHECK_INTERVAL", 0.1)


@pytest.mark.parametrize("end", OF_SESSIONS.values(), ids=OF_SESSIONS)
def test_everything_open_ends_with_the_session(
    application: Application, person: Person, end: Callable[[Person, Client], object]
) -> None:
    browser, headers = by_session(person)
    with ExitStack() as stack:
        opened = Opened(application, person, headers, stack)
        end(person, browser)
        opened.cut_off()
    assert Turn.objects.filter(conversation_id=opened.place).count() < 2


def test_everything_open_ends_when_the_provider_signs_out(application: Application, person: Person) -> None:
    with providing() as provider, ExitStack() as stack:
        row = row_of(provider)
        OpenIDIdentity.objects.create(user=person.user, issuer=row.issuer, subject=provider.person["sub"])
        provider.person["sid"] = "one"
        browser, headers = by_session(person, sign_in(provider, row)[0])
        opened = Opened(application, person, headers, stack)
        token = {"logout_token": provider.logout_token(sub=provider.person["sub"], sid="one")}
        assert Client().post(reverse("openid-sign-out", args=[row.pk]), token).status_code == 200
        opened.cut_off()
        row.delete()
    assert browser.get("/settings/").status_code == 302


@pytest.mark.parametrize("end", OF_TOKENS.values(), ids=OF_TOKENS)
def test_everything_open_ends_with_the_token(
    application: Application, person: Person, end: Callable[[QuerySet[ApiToken], Person], object]
) -> None:
    with ExitStack() as stack:
        opened = Opened(application, person, {"Authorization": f"Bearer {person.token}"}, stack)
        end(ApiToken.objects.filter(user=person.user), person)
        opened.cut_off()
    assert Turn.objects.filter(conversation_id=opened.place).count() < 2


def test_what_a_token_has_open_outlives_the_password(application: Application, person: Person) -> None:
    browser, headers = by_session(person)
    with ExitStack() as stack:
        page = stack.enter_context(open_socket(application, {**headers, "Origin": application.url}))
        opened = Opened(application, person, {"Authorization": f"Bearer {person.token}"}, stack)
        with_another_password(person, browser)
        assert page.close_code() == 4401
        for turn in Turn.objects.live().filter(conversation__owner=person.user):
            stop_turn(user=person.user, turn=turn)
        opened.socket.until("RUN_STOPPED")
        for kind, lines in opened.streams.items():
            assert any(end in line for line in lines for end in ENDS), kind


def test_a_socket_hears_no_more_than_its_token_may_hear_now(application: Application, person: Person) -> None:
    """The socket ends with the loss of any scope, since its events were chosen when it was opened."""
    with open_socket(application, {"Authorization": f"Bearer {person.token}"}) as socket:
        socket.send("ping", id=1)
        socket.until("ACK")
        ApiToken.objects.filter(user=person.user).update(scopes=["chat"])
        assert socket.close_code() == 4401


def test_a_socket_whose_events_break_off_is_closed_so_that_it_is_opened_again(
    application: Application, person: Person, caplog: pytest.LogCaptureFixture
) -> None:
    turns = [person.caller.ask("Long.", LONG)["id"] for _ in range(2)]
    with open_socket(application, {"Authorization": f"Bearer {person.token}"}) as socket:
        for turn in turns:
            socket.send("subscribe", turn=turn)
            socket.until("TEXT_MESSAGE_CONTENT")
        with redis.Redis.from_url(settings.STREAMS_URL) as connection:
            connection.xadd(f"turn:{turns[0]}:wire", {"nonsense": ""}, id="999999-0")
        assert socket.close_code() == 1011
    records = [record for record in caplog.records if record.name == "chat.sockets"]
    assert len(records) == 1 and "could not go on" in records[0].getMessage()


def revoke(person: Person) -> None:
    ApiToken.objects.filter(user=person.user).update(expires=timezone.now())


def deactivate(person: Person) -> None:
    User.objects.filter(pk=person.user.pk).update(is_active=False)


@pytest.mark.parametrize("ended_by", [revoke, deactivate])
def test_a_call_of_the_openai_protocol_that_waits_for_the_whole_answer_ends_with_its_token(
    application: Application, person: Person, ended_by: Callable[[Person], None]
) -> None:
    question = {"role": "user", "content": f"script: {json.dumps(LONG)}"}
    http = application.http("/v1/", headers={"Authorization": f"Bearer {person.token}"})
    turns = Turn.objects.filter(conversation__owner=person.user)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(http.post, "chat/completions", json={"model": "scripted", "messages": [question]})
        until(lambda: turns.filter(status="running").exists(), "it is being answered")
        ended_by(person)
        response = waiting.result()
    assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
    until(lambda: turns.get().status == "stopped", "the turn is stopped")


def test_a_person_has_only_so_many_streams_open(application: Application, person: Person, settings: Settings) -> None:
    settings.CONNECTIONS_AT_ONCE = 2
    turn = person.caller.ask("Long.", LONG, person.caller.conversation())
    url, http = f"turns/{turn['id']}/events/", person.caller.http
    with ExitStack() as stack:
        for _ in range(2):
            opened = stack.enter_context(http.stream("GET", url))
            assert next(opened.iter_lines())
        refused = http.get(url)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
        assert refused.json()["code"] == "too_many_connections"
    stop_turn(user=person.user, turn=Turn.objects.get(pk=turn["id"]))
    until(lambda: http.get(url).status_code == 200, "the others have been closed")
