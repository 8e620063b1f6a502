"""Sign-ins of people at tool servers, against the server of the protocol's package."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from accounts.models import User
from core.errors import ProductError
from llm.models import ToolClient, ToolGrant, ToolServer, ToolSignIn
from llm.oauth.grants import AuthorizationAnswer, disconnect, discover
from llm.tools import mcp_sessions
from llm.tools.mcp import close_sessions, list_tools
from llm.tools.servers import ServerFailed, SessionScope, ToolServerConfig
from llm.tools.services import known_tools, tool_servers, try_tool_server
from llm.types.tools import ToolOutput
from tests.llm.oauth_server import OAuthServer, serving
from tests.llm.sign_ins import REDIRECT, answer_of, begun, completed, signed_in

pytestmark = pytest.mark.usefixtures("committed")


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with serving() as server:
        yield server


@pytest.fixture
def row(committed: None, oauth: OAuthServer) -> Iterator[ToolServer]:
    stored = ToolServer.objects.create(name=f"o{uuid4().hex[:8]}", base_url=oauth.url, access="person")
    yield stored
    stored.delete()


@pytest.fixture
def make_person(committed: None) -> Iterator[Callable[[], User]]:
    people: list[User] = []

    def make() -> User:
        people.append(User.objects.create_user(f"oauth-{uuid4().hex}"))
        return people[-1]

    yield make
    for person in people:
        person.delete()


@pytest.fixture
def alice(make_person: Callable[[], User]) -> User:
    return make_person()


@pytest.fixture
def bob(make_person: Callable[[], User]) -> User:
    return make_person()


def server_of(person: User, row: ToolServer) -> ToolServerConfig:
    return next(server for server in tool_servers(person.pk) if server.name == row.name)


def place_of(person: User) -> SessionScope:
    return SessionScope(person.pk, uuid4())


def run(*calls: Callable[[], Any]) -> list[ToolOutput]:
    """Run the calls one after the other in one event loop, and close its sessions."""

    async def work() -> list[ToolOutput]:
        try:
            return [await call() for call in calls]
        finally:
            await close_sessions()

    return asyncio.run(work())


def whoami(server: ToolServerConfig, place: SessionScope) -> Callable[[], Any]:
    return lambda: mcp_sessions.call_tool(server, "whoami", {}, place)


def refused(code: str, work: Callable[[], Any], words: str = "") -> None:
    with pytest.raises(ProductError) as error:
        work()
    assert error.value.code == code, error.value.detail
    assert words in error.value.detail


# Signing in


def test_a_person_signs_in_and_calls_tools_as_themselves(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    grant = signed_in(alice, row, oauth, "alice")
    [parameters] = oauth.accounts.asked_for
    assert (parameters.resource, parameters.scopes, str(parameters.redirect_uri)) == (oauth.url, ["notes"], REDIRECT)
    assert (grant.scope, grant.resource, grant.address) == ("notes", oauth.url, oauth.url)
    [output] = run(whoami(server_of(alice, row), place_of(alice)))
    assert output.text == "alice" and not output.error
    grant.refresh_from_db()
    assert grant.last_used is not None
    row.refresh_from_db()
    assert row.sign_in["sources"][0].endswith("/.well-known/oauth-protected-resource/mcp")


def test_two_people_call_a_hundred_times_in_turn_and_never_with_the_others_token(
    alice: User, bob: User, row: ToolServer, oauth: OAuthServer
) -> None:
    for person, account in ((alice, "alice"), (bob, "bob")):
        signed_in(person, row, oauth, account)
    assert len(oauth.accounts.clients) == 1, "the workspace registers once, not each person"
    places = {person.pk: place_of(person) for person in (alice, bob)}
    people = [alice, bob] * 50
    outputs = run(*(whoami(server_of(person, row), places[person.pk]) for person in people))
    assert [output.text for output in outputs] == ["alice", "bob"] * 50
    tokens = {
        account: {token for name, token in oauth.accounts.calls if name == account} for account in ("alice", "bob")
    }
    assert all(token.startswith(f"access-{account}-") for account, used in tokens.items() for token in used)
    assert len(oauth.accounts.calls) == 100


def test_people_who_call_at_the_same_time_do_not_mix(
    alice: User, bob: User, row: ToolServer, oauth: OAuthServer
) -> None:
    for person, account in ((alice, "alice"), (bob, "bob")):
        signed_in(person, row, oauth, account)
    calls = [whoami(server_of(person, row), place_of(person)) for person in [alice, bob] * 8]

    async def together() -> list[ToolOutput]:
        return list(await asyncio.gather(*(call() for call in calls)))

    [outputs] = run(together)
    assert [output.text for output in outputs] == ["alice", "bob"] * 8  # type: ignore[attr-defined]


def test_who_has_not_signed_in_gets_no_tools_and_the_server_no_request(
    alice: User, bob: User, row: ToolServer, oauth: OAuthServer
) -> None:
    signed_in(alice, row, oauth, "alice")
    for person in (bob.pk, None):
        server = next(each for each in tool_servers(person) if each.name == row.name)
        with pytest.raises(ServerFailed) as failure:
            asyncio.run(list_tools(server))
        assert failure.value.code == "tool_server_sign_in_required"
        assert "Sign in under “Connected tools”" in failure.value.sentence.english
    assert oauth.accounts.calls == []


def test_a_listing_is_that_of_its_person(alice: User, bob: User, row: ToolServer, oauth: OAuthServer) -> None:
    signed_in(alice, row, oauth, "alice")
    listing = try_tool_server(user=alice, tool_server=row)
    assert [tool.definition.name for tool in listing.tools] == [f"{row.name}__whoami"]
    listed = {
        person.pk: next(listing for server, listing in known_tools(person.pk) if server.name == row.name)
        for person in (alice, bob)
    }
    assert listed[alice.pk] is not None and listed[bob.pk] is None
    row.refresh_from_db()
    assert row.tools is None


def test_secrets_are_encrypted(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    begun(alice, row)
    grant = signed_in(alice, row, oauth, "alice")
    client = ToolClient.objects.get(tool_server=row)
    pending = ToolSignIn.objects.get(user=alice)
    with connection.cursor() as cursor:
        stored = ""
        for query in (
            "SELECT llm_toolgrant::text FROM llm_toolgrant",
            "SELECT llm_toolclient::text FROM llm_toolclient",
            "SELECT llm_toolsignin::text FROM llm_toolsignin",
        ):
            cursor.execute(query)
            stored += str(cursor.fetchall())
    secrets = (grant.access_token, grant.refresh_token, client.client_secret, pending.verifier)
    assert all(secret and secret not in stored for secret in secrets)


# What may not complete


def test_a_state_works_once(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    answer = answer_of(oauth, begun(alice, row), "alice")
    completed(alice, answer)
    refused("tool_sign_in_state", lambda: completed(alice, answer), "was completed already")
    assert ToolGrant.objects.filter(user=alice).count() == 1


def test_a_state_belongs_to_its_person_its_browser_and_ten_minutes(
    alice: User, bob: User, row: ToolServer, oauth: OAuthServer
) -> None:
    refused("tool_sign_in_state", lambda: completed(alice, AuthorizationAnswer(state="invented", code="x")))
    answer = answer_of(oauth, begun(alice, row), "alice")
    refused("tool_sign_in_state", lambda: completed(bob, answer))
    refused("tool_sign_in_state", lambda: completed(alice, answer))  # a state that was tried elsewhere is used up
    answer = answer_of(oauth, begun(alice, row), "alice")
    refused("tool_sign_in_state", lambda: completed(alice, answer, session="another browser"))
    answer = answer_of(oauth, begun(alice, row), "alice")
    ToolSignIn.objects.filter(user=alice).update(created=timezone.now() - timedelta(minutes=11))
    refused("tool_sign_in_state", lambda: completed(alice, answer))
    assert not ToolGrant.objects.filter(user__in=(alice, bob)).exists()
    begun_by_a_program = answer_of(oauth, begun(alice, row, session=""), "alice")
    assert completed(alice, begun_by_a_program, session="any browser").grant.user_id == alice.pk


def test_at_most_five_sign_ins_wait(alice: User, row: ToolServer) -> None:
    for _ in range(7):
        begun(alice, row)
    assert ToolSignIn.objects.filter(user=alice).count() == 5


def test_an_answer_of_another_issuer_is_refused(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    answer = answer_of(oauth, begun(alice, row), "alice")
    other = replace(answer, iss="https://evil.example")
    refused("tool_sign_in_issuer", lambda: completed(alice, other), "does not come from")
    oauth.changes["authorization_response_iss_parameter_supported"] = True
    answer = answer_of(oauth, begun(alice, row), "alice")
    refused("tool_sign_in_issuer", lambda: completed(alice, answer))
    oauth.accounts.names_issuer = True
    assert completed(alice, answer_of(oauth, begun(alice, row), "alice")).grant.issuer == oauth.accounts.issuer


def test_what_the_server_says_of_a_refusal_is_told(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    oauth.accounts.denies = True
    answer = answer_of(oauth, begun(alice, row), "alice")
    refused("tool_sign_in_refused", lambda: completed(alice, answer), "refused the sign-in: You said no. Start again.")
    oauth.accounts.denies = False
    answer = answer_of(oauth, begun(alice, row), "alice")
    oauth.accounts.codes.clear()
    refused("tool_sign_in_refused", lambda: completed(alice, answer), "authorization code does not exist")


def test_a_client_that_the_server_has_forgotten_is_registered_again(
    alice: User, row: ToolServer, oauth: OAuthServer
) -> None:
    answer = answer_of(oauth, begun(alice, row), "alice")
    oauth.accounts.clients.clear()
    refused("tool_sign_in_refused", lambda: completed(alice, answer))
    assert not ToolClient.objects.filter(tool_server=row).exists()
    assert signed_in(alice, row, oauth, "alice").usable


# What may not begin


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"issuer": "https://evil.example"}, "tool_sign_in_issuer", "calls itself “https://evil.example"),
        ({"code_challenge_methods_supported": None}, "tool_sign_in_failed", "PKCE with S256"),
        ({"code_challenge_methods_supported": ["plain"]}, "tool_sign_in_failed", "PKCE with S256"),
        ({"registration_endpoint": None}, "tool_sign_in_registration", f"with the redirect address {REDIRECT}"),
        ({"token_endpoint_auth_methods_supported": ["private_key_jwt"]}, "tool_sign_in_failed", "private_key_jwt"),
        ({"token_endpoint": "no address"}, "tool_sign_in_failed", "does not name its sign-in server"),
        ({"authorization_endpoint": "http://evil.example/"}, "tool_sign_in_failed", "must begin with https://"),
        ({"registration_endpoint": "http://localhost:1/"}, "tool_sign_in_unreachable", "must begin with https://"),
        (
            {"registration_endpoint": "https://localhost:8443/"},
            "tool_sign_in_unreachable",
            "not on the public internet",
        ),
        ({"scopes_supported": ["x" * 3_000], "issuer": None}, "tool_sign_in_failed", "does not name its sign-in"),
    ],
)
def test_a_server_that_is_not_safe_to_sign_in_to_is_refused(
    alice: User, row: ToolServer, oauth: OAuthServer, changes: dict[str, Any], code: str, words: str
) -> None:
    oauth.changes.update(changes)
    refused(code, lambda: begun(alice, row), words)
    assert not ToolSignIn.objects.filter(user=alice).exists()


def test_tokens_are_asked_for_at_named_or_public_hosts_only(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    oauth.changes["token_endpoint"] = "https://localhost:8443/token"
    answer = answer_of(oauth, begun(alice, row), "alice")
    refused("tool_sign_in_unreachable", lambda: completed(alice, answer), "not on the public internet")


def test_a_refused_registration_says_why_and_a_document_takes_its_place(
    alice: User, row: ToolServer, oauth: OAuthServer
) -> None:
    oauth.accounts.registers = False
    refused("tool_sign_in_registration", lambda: begun(alice, row), "as a client: Only partners may register.")
    document = "https://here.example/oauth/client.json"
    refused("tool_sign_in_registration", lambda: begun(alice, row, document=document))
    oauth.changes["client_id_metadata_document_supported"] = True
    assert "client_id=https%3A%2F%2Fhere.example%2Foauth%2Fclient.json" in begun(alice, row, document=document)


def test_a_client_that_the_administrator_made_is_used(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    begun(alice, row)
    [client] = oauth.accounts.clients.values()
    ToolClient.objects.filter(tool_server=row).delete()
    ToolServer.objects.filter(pk=row.pk).update(
        client_id=client.client_id, issuer=oauth.accounts.issuer, scope="notes more"
    )
    row.refresh_from_db()
    row.api_key = client.client_secret or ""
    row.save()
    oauth.accounts.registers = False
    client.scope = "notes more"
    oauth.changes["code_challenge_methods_supported"] = None  # the administrator vouches for it
    assert signed_in(alice, row, oauth, "alice").scope == "notes more"


@pytest.mark.parametrize("slash", ["/", ""])
def test_an_issuer_with_another_slash_at_its_end_is_the_same(
    alice: User, row: ToolServer, oauth: OAuthServer, slash: str
) -> None:
    oauth.changes["issuer"] = oauth.accounts.issuer.rstrip("/") + slash
    assert signed_in(alice, row, oauth, "alice").issuer == oauth.changes["issuer"]


def test_a_server_without_a_sign_in_says_so(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    ToolServer.objects.filter(pk=row.pk).update(base_url="http://127.0.0.1:9/mcp")
    row.refresh_from_db()
    refused("tool_sign_in_unreachable", lambda: discover(tool_server=row), "127.0.0.1 cannot be reached")
    ToolServer.objects.filter(pk=row.pk).update(access="header")
    row.refresh_from_db()
    refused("no_tool_sign_in", lambda: begun(alice, row))


def test_a_server_that_is_for_another_address_is_refused(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    oauth.changes["resource"] = "https://other.example/mcp"
    refused("tool_sign_in_failed", lambda: begun(alice, row), "is for another address, https://other.example/mcp")


# Tokens that end


def test_an_expired_token_is_renewed_once_by_many_callers(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    grant = signed_in(alice, row, oauth, "alice")
    first = (grant.access_token, grant.refresh_token)
    ToolGrant.objects.filter(pk=grant.pk).update(expires=timezone.now())
    server = server_of(alice, row)

    async def together() -> list[ToolOutput]:
        return list(await asyncio.gather(*(whoami(server, place_of(alice))() for _ in range(6))))

    [outputs] = run(together)
    assert [output.text for output in outputs] == ["alice"] * 6  # type: ignore[attr-defined]
    grant.refresh_from_db()
    assert oauth.accounts.refreshes == 1 and grant.version == 1 and grant.refreshing is None
    assert grant.access_token != first[0] and grant.refresh_token != first[1] and grant.usable


def test_a_server_that_answers_401_in_the_middle_gets_a_new_token_in_the_same_session(
    alice: User, row: ToolServer, oauth: OAuthServer
) -> None:
    signed_in(alice, row, oauth, "alice")
    server, place = server_of(alice, row), place_of(alice)
    sessions: list[Any] = []

    async def end_access() -> ToolOutput:
        sessions.append(mcp_sessions._pool().open_session(server, place))
        oauth.accounts.end_access("alice")
        return ToolOutput("")

    async def look() -> ToolOutput:
        sessions.append(mcp_sessions._pool().open_session(server, place))
        return ToolOutput("")

    outputs = run(whoami(server, place), end_access, whoami(server, place), look)
    assert (outputs[0].text, outputs[2].text) == ("alice", "alice")
    assert sessions[0] is sessions[1] and sessions[0] is not None
    assert oauth.accounts.refreshes == 1


def test_a_grant_that_the_server_has_ended_is_told_and_not_tried_again(
    alice: User, row: ToolServer, oauth: OAuthServer
) -> None:
    grant = signed_in(alice, row, oauth, "alice")
    server, place = server_of(alice, row), place_of(alice)

    async def end() -> ToolOutput:
        oauth.accounts.end("alice")
        return ToolOutput("")

    outputs = run(whoami(server, place), end, whoami(server, place), whoami(server, place))
    assert outputs[0].text == "alice"
    for output in outputs[2:]:
        assert output.error and output.text.startswith(f"The sign-in to {row.name} has ended. Sign in again")
    grant.refresh_from_db()
    assert grant.ended == "revoked" and not grant.usable
    assert len(oauth.accounts.calls) == 1
    again = signed_in(alice, row, oauth, "alice")
    assert again.pk != grant.pk and run(whoami(server_of(alice, row), place))[0].text == "alice"


def test_a_token_without_a_refresh_token_ends_when_it_expires(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    grant = signed_in(alice, row, oauth, "alice")
    ToolGrant.objects.filter(pk=grant.pk).update(expires=timezone.now(), refresh_token="")
    [output] = run(whoami(server_of(alice, row), place_of(alice)))
    assert "has ended" in output.text
    grant.refresh_from_db()
    assert grant.ended == "expired"


def test_a_sign_in_server_that_is_away_ends_no_grant(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    grant = signed_in(alice, row, oauth, "alice")
    ToolGrant.objects.filter(pk=grant.pk).update(expires=timezone.now(), token_endpoint="http://127.0.0.1:9/token")
    [output] = run(whoami(server_of(alice, row), place_of(alice)))
    assert output.error and "cannot be renewed at the moment. 127.0.0.1 cannot be reached" in output.text
    grant.refresh_from_db()
    assert grant.usable and grant.refreshing is None


def test_a_turn_that_is_stopped_during_a_refresh_loses_no_token(
    alice: User, row: ToolServer, oauth: OAuthServer
) -> None:
    grant = signed_in(alice, row, oauth, "alice")
    ToolGrant.objects.filter(pk=grant.pk).update(expires=timezone.now())
    bearer = server_of(alice, row).bearer
    assert bearer is not None

    async def stop() -> ToolOutput:
        task = asyncio.create_task(bearer.token())
        await asyncio.to_thread(oauth.accounts.refreshed.wait, 10)
        task.cancel()
        return ToolOutput(await bearer.token())

    [output] = run(stop)
    grant.refresh_from_db()
    assert output.text == grant.access_token and oauth.accounts.refreshes == 1 and grant.usable


def test_a_call_that_wants_a_further_permission_says_so_and_the_next_sign_in_asks_for_it(
    alice: User, row: ToolServer, oauth: OAuthServer
) -> None:
    grant = signed_in(alice, row, oauth, "alice")
    for token in oauth.accounts.access.values():
        token.scopes = ["more"]
    [output] = run(whoami(server_of(alice, row), place_of(alice)))
    assert output.error and "needs another permission for this call" in output.text
    grant.refresh_from_db()
    assert grant.usable
    ToolGrant.objects.filter(pk=grant.pk).update(missing_scope="more")
    again = signed_in(alice, row, oauth, "alice")
    assert oauth.accounts.asked_for[-1].scopes == ["notes", "more"]
    assert (again.scope, again.missing_scope) == ("notes more", "")
    assert len(oauth.accounts.clients) == 2, "it is registered again, for the wider scope"


def test_tokens_of_an_earlier_address_are_not_sent_to_another(alice: User, row: ToolServer, oauth: OAuthServer) -> None:
    signed_in(alice, row, oauth, "alice")
    with serving() as other:
        ToolServer.objects.filter(pk=row.pk).update(base_url=other.url)
        [output] = run(whoami(server_of(alice, row), place_of(alice)))
        assert output.error and "Each person must sign in" in output.text
    ToolServer.objects.filter(pk=row.pk).update(base_url=oauth.url, access="header")
    assert server_of(alice, row).bearer is None


def test_whoever_disconnects_leaves_no_token_behind(
    alice: User, bob: User, row: ToolServer, oauth: OAuthServer
) -> None:
    grant, other = signed_in(alice, row, oauth, "alice"), signed_in(bob, row, oauth, "bob")
    assert disconnect(user=alice, grant=other) is True  # of another person: nothing happens here
    assert ToolGrant.objects.filter(pk=other.pk).exists()
    assert disconnect(user=alice, grant=grant)
    assert oauth.accounts.revocations >= 1
    assert {row.subject for row in oauth.accounts.access.values()} == {"bob"}
    assert not ToolGrant.objects.filter(user=alice).exists()
    assert run(whoami(server_of(bob, row), place_of(bob)))[0].text == "bob"


def test_a_server_that_ends_no_tokens_is_told_from_one_that_does(
    alice: User, row: ToolServer, oauth: OAuthServer
) -> None:
    oauth.changes["revocation_endpoint"] = None
    assert disconnect(user=alice, grant=signed_in(alice, row, oauth, "alice")) is False
    oauth.changes["revocation_endpoint"] = "http://127.0.0.1:9/revoke"
    assert disconnect(user=alice, grant=signed_in(alice, row, oauth, "alice")) is False
    assert not ToolGrant.objects.filter(user=alice).exists()


def test_the_grants_of_a_person_go_with_them(
    make_person: Callable[[], User], row: ToolServer, oauth: OAuthServer
) -> None:
    person = make_person()
    signed_in(person, row, oauth, "alice")
    begun(person, row)
    pk = person.pk
    User.objects.filter(pk=pk).delete()
    assert not ToolGrant.objects.filter(user=pk).exists() and not ToolSignIn.objects.filter(user=pk).exists()
