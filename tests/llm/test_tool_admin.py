import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse

from accounts.models import User
from core.crypto import decrypt
from core.errors import ProductError
from llm.models import ToolServer, WebAccess, WebSearch
from llm.tools.servers import ToolServerConfig
from llm.tools.services import set_web_search_active, store_tool_server, store_web_search, tool_servers, web_search_tool
from llm.types.tools import run_tool
from tests.llm.misbehaving_server import Misbehaving, tool
from tests.llm.oauth_server import serving
from tests.llm.raw_server import RawServer, always, answer

pytestmark = pytest.mark.django_db
KEY = "key-never-to-be-seen-1234567890"
ADDRESS = "http://127.0.0.2:9"


def change_url(row: WebSearch | ToolServer) -> str:
    return reverse(f"admin:llm_{row._meta.model_name}_change", args=[row.pk])


def dialog_url(row: WebSearch | ToolServer, action: str) -> str:
    return reverse(f"admin:llm_{row._meta.model_name}_{action}", args=[row.pk])


def form_of(row: WebSearch, **changes: Any) -> dict[str, Any]:
    return {"name": row.name, "kind": row.kind, "base_url": row.base_url, "new_api_key": ""} | changes


def press(client: Client, row: WebSearch | ToolServer, action: str) -> str:
    """Confirm a button's dialog, and return the messages of the next page."""
    client.post(dialog_url(row, action), {"_form_submitted": "on"})
    row.refresh_from_db()
    return " ".join(str(message) for message in client.get(change_url(row)).context["messages"])


@pytest.fixture
def web_search() -> WebSearch:
    return WebSearch.objects.create(name="Ours", base_url=ADDRESS, api_key=KEY)


def test_a_stored_key_is_on_no_page_and_in_no_log(
    admin_client: Client, web_search: WebSearch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = change_url(web_search)
    with RawServer(always(answer("", status="401 Unauthorized"))) as server:
        WebSearch.objects.filter(pk=web_search.pk).update(base_url=f"http://127.0.0.2:{server.port}")
        web_search.refresh_from_db()
        messages = press(admin_client, web_search, "try_it")
    responses = [
        admin_client.get(reverse("admin:llm_websearch_changelist")),
        admin_client.get(url),
        admin_client.post(url, form_of(web_search, name="", new_api_key=KEY + "x")),
        admin_client.post(url, form_of(web_search, new_api_key=KEY + "y"), follow=True),
        admin_client.get(reverse("admin:llm_websearch_history", args=[web_search.pk])),
    ]
    assert KEY.lower() in server.heads[0].lower()
    assert "check the key" in messages
    for response in responses:
        assert response.status_code == 200
        assert KEY not in response.content.decode()
    assert KEY not in caplog.text + messages
    web_search.refresh_from_db()
    assert web_search.api_key == KEY + "y"


def test_the_first_service_is_active_and_its_key_encrypted(admin_client: Client) -> None:
    new = WebSearch(name="New", kind="brave")
    admin_client.post(reverse("admin:llm_websearch_add"), form_of(new, new_api_key=KEY))
    stored = WebSearch.objects.get(name="New")
    assert stored.active and stored.api_key == KEY
    with connection.cursor() as cursor:
        cursor.execute("SELECT api_key FROM llm_websearch")
        [raw] = cursor.fetchone()
    assert KEY not in raw and decrypt(raw) == KEY
    admin_client.post(reverse("admin:llm_websearch_add"), form_of(WebSearch(name="Second", base_url=ADDRESS)))
    assert not WebSearch.objects.get(name="Second").active


def test_an_empty_field_keeps_the_key_and_a_switch_removes_it(admin_client: Client, web_search: WebSearch) -> None:
    admin_client.post(change_url(web_search), form_of(web_search, name="Renamed"))
    web_search.refresh_from_db()
    assert (web_search.name, web_search.api_key) == ("Renamed", KEY)
    admin_client.post(change_url(web_search), form_of(web_search, clear_api_key="on"))
    web_search.refresh_from_db()
    assert web_search.api_key == ""


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"base_url": "http://evil.example"}, "key belongs to the previous address"),
        ({"kind": "brave", "base_url": ""}, "key belongs to the previous address"),
        ({"kind": "brave", "clear_api_key": "on"}, "Brave requires a key"),
        ({"base_url": "", "new_api_key": "x"}, "SearXNG has no address of its own"),
        ({"base_url": "searxng:8080"}, "Begin with http://"),
        ({"new_api_key": "ключ"}, "Paste it again"),
    ],
)
def test_what_no_service_can_have_is_refused(
    admin_client: Client, web_search: WebSearch, changes: dict[str, str], sentence: str
) -> None:
    response = admin_client.post(change_url(web_search), form_of(web_search, **changes))
    assert sentence in response.content.decode()
    web_search.refresh_from_db()
    assert (web_search.kind, web_search.base_url, web_search.api_key) == ("searxng", ADDRESS, KEY)


def test_one_service_at_most_is_used(admin_client: Client, web_search: WebSearch) -> None:
    other = WebSearch.objects.create(name="Other", base_url=ADDRESS, active=True)
    assert "now search the web with Ours" in press(admin_client, web_search, "use")
    other.refresh_from_db()
    assert (web_search.active, other.active) == (True, False)
    with pytest.raises(IntegrityError), transaction.atomic():
        WebSearch.objects.filter(pk=other.pk).update(active=True)
    assert "no longer search the web with Ours" in press(admin_client, web_search, "stop_using")
    assert not WebSearch.objects.filter(active=True).exists()
    assert web_search_tool() is None


def test_the_active_service_is_what_answers_search_with(admin_client: Client, web_search: WebSearch) -> None:
    results = {"results": [{"url": "https://a.example/", "title": "A", "content": "B"}]}
    with RawServer(always(answer(json.dumps(results)))) as server:
        url = f"http://127.0.0.2:{server.port}"
        admin_client.post(change_url(web_search), form_of(web_search, base_url=url, new_api_key=KEY))
        web_search.refresh_from_db()
        assert "Ours answers: 1 results." in press(admin_client, web_search, "try_it")
        press(admin_client, web_search, "use")
        tool = web_search_tool()
        assert tool is not None
        output = asyncio.run(run_tool(tool, {"queries": ["x"]}))
    assert output.data is not None
    assert [document["id"] for document in output.data["documents"]] == ["https://a.example/"]


def test_only_staff_change_what_is_searched_with(client: Client, web_search: WebSearch) -> None:
    person = User.objects.create_user("person", password="correct horse battery")
    with pytest.raises(ProductError, match="staff_only"):
        store_web_search(user=person, web_search=web_search, api_key="x")
    with pytest.raises(ProductError, match="staff_only"):
        set_web_search_active(user=person, web_search=web_search, active=True)
    client.force_login(person)
    assert client.get(change_url(web_search)).status_code == 302
    assert client.post(dialog_url(web_search, "use"), {"_form_submitted": "on"}).status_code == 302
    web_search.refresh_from_db()
    assert not web_search.active


def test_a_button_only_acts_when_it_is_posted(admin_client: Client, web_search: WebSearch) -> None:
    assert admin_client.get(dialog_url(web_search, "use")).status_code == 200
    web_search.refresh_from_db()
    assert not web_search.active


@pytest.fixture
def tool_server() -> ToolServer:
    return ToolServer.objects.create(name="ours", base_url=f"{ADDRESS}/mcp", secret_name="X-Token", api_key=KEY)


def server_form(row: ToolServer, **changes: Any) -> dict[str, Any]:
    names = ("name", "kind", "base_url", "command", "access", "secret_name", "client_id", "issuer", "scope")
    return (
        {name: getattr(row, name) for name in names}
        | {"enabled": "on", "reaches_out": "on", "new_api_key": ""}
        | changes
    )


def test_a_tool_server_is_set_up_and_its_secret_is_on_no_page(
    admin_client: Client, tool_server: ToolServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = change_url(tool_server)
    messages = press(admin_client, tool_server, "list_tools")
    assert "ours: Nothing accepts connections at 127.0.0.2:9. Start the server there" in messages
    responses = [
        admin_client.get(reverse("admin:llm_toolserver_changelist")),
        admin_client.get(url),
        admin_client.post(url, server_form(tool_server, name="", new_api_key=KEY + "x")),
        admin_client.post(url, server_form(tool_server, name="renamed"), follow=True),
    ]
    assert all(response.status_code == 200 and KEY not in response.content.decode() for response in responses)
    assert KEY not in caplog.text + messages
    [server] = tool_servers()
    assert server == ToolServerConfig("renamed", f"{ADDRESS}/mcp", secrets={"X-Token": KEY})
    admin_client.post(url, server_form(tool_server, approval_required="on"))
    assert [each.approval_required for each in tool_servers()] == [True]
    assert KEY not in repr(server)
    ToolServer.objects.update(enabled=False)
    assert tool_servers() == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"base_url": "https://evil.example/mcp"}, "key belongs to the previous address"),
        ({"base_url": "", "new_api_key": "x"}, "Enter the URL of a server, or the command"),
        ({"kind": "stdio", "new_api_key": "x"}, "Enter the URL of a server, or the command"),
        ({"kind": "stdio", "command": "run 'it"}, "A quotation mark is not closed"),
        ({"name": "two words"}, "Use only letters without accents"),
        ({"secret_name": "X-Token:"}, "Use only letters, digits"),
    ],
)
def test_what_no_tool_server_can_have_is_refused(
    admin_client: Client, tool_server: ToolServer, changes: dict[str, str], sentence: str
) -> None:
    response = admin_client.post(change_url(tool_server), server_form(tool_server, **changes))
    assert sentence in response.content.decode()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"access": "person"}, "a secret belongs to a client ID"),
        ({"access": "person", "client_id": "here"}, "Enter the issuer to which the client ID belongs"),
        ({"access": "person", "client_id": "here", "issuer": "https://as.example"}, "belongs to the previous sign-in"),
        (
            {"access": "person", "clear_api_key": "on", "kind": "stdio", "command": "run"},
            "People can sign in to servers",
        ),
    ],
)
def test_a_secret_is_sent_to_nobody_that_it_was_not_entered_for(
    admin_client: Client, tool_server: ToolServer, changes: dict[str, str], sentence: str
) -> None:
    response = admin_client.post(change_url(tool_server), server_form(tool_server, **changes))
    assert sentence in response.content.decode()
    tool_server.refresh_from_db()
    assert (tool_server.access, tool_server.api_key) == ("header", KEY)


def test_the_administrator_chooses_who_signs_in(admin_client: Client, tool_server: ToolServer) -> None:
    url = change_url(tool_server)
    admin_client.post(url, server_form(tool_server, access="none", clear_api_key="on"))
    assert [(server.secrets, server.bearer) for server in tool_servers()] == [({}, None)]
    with serving() as oauth:
        base = {"base_url": oauth.url, "access": "person"}
        admin_client.post(url, server_form(tool_server, **base))
        [server] = tool_servers()
        assert server.secrets == {} and server.bearer is not None
        assert "Not searched yet" in admin_client.get(url).content.decode()
        messages = press(admin_client, tool_server, "find_sign_in")
        origin = oauth.url.removesuffix("/mcp")
        assert f"People sign in to ours at {origin}" in messages and "/settings/tools/return/" in messages
        page = admin_client.get(url).content.decode()
        assert f"{origin}/.well-known/oauth-protected-resource/mcp" in page and f"{origin}/register" in page
        assert "0 people are signed in." in page
        assert "Each person must sign in to" in press(admin_client, tool_server, "list_tools")
        oauth.changes["issuer"] = "https://evil.example"
        assert "calls itself “https://evil.example" in press(admin_client, tool_server, "find_sign_in")
        admin_client.post(url, server_form(tool_server, base_url=oauth.url, access="none"))
        assert "it requires a sign-in. If it supports OAuth, let each" in press(admin_client, tool_server, "list_tools")


def test_only_superusers_change_tool_servers(client: Client, tool_server: ToolServer) -> None:
    staff = User.objects.create_user("staff", password="correct horse battery", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(content_type__model="toolserver"))
    client.force_login(staff)
    page = client.get(change_url(tool_server)).content.decode()
    assert "stored" in page and "new_api_key" not in page
    assert client.post(change_url(tool_server), server_form(tool_server, name="mine")).status_code == 403
    assert client.get(reverse("admin:llm_toolserver_add")).status_code == 403
    assert client.post(dialog_url(tool_server, "list_tools"), {"_form_submitted": "on"}).status_code == 403
    with pytest.raises(ProductError, match="superuser_only"):
        store_tool_server(user=staff, tool_server=tool_server, api_key=None)


def test_the_lists_of_hosts_are_checked_and_there_is_one_row(admin_client: Client) -> None:
    add = reverse("admin:llm_webaccess_add")
    refused = admin_client.post(add, {"allowed_hosts": "example.org\nhttps://example.org/a", "denied_hosts": ""})
    assert "“https://example.org/a” is not a host." in refused.content.decode()
    admin_client.post(add, {"allowed_hosts": "Example.org\n*.example.org", "denied_hosts": "bad.example.org"})
    lists = WebAccess.objects.get().lists
    assert sorted(lists.allowed) == ["*.example.org", "example.org"] and sorted(lists.denied) == ["bad.example.org"]
    assert admin_client.get(add).status_code == 403
    with pytest.raises(IntegrityError), transaction.atomic():
        WebAccess.objects.create(pk=2)


def test_the_admin_lists_the_tools_of_a_server_and_names_the_broken_one(admin_client: Client, tmp_path: Path) -> None:
    behaviour = Misbehaving(
        [*(tool(f"tool{number}", description="Counts.") for number in range(81)), tool("broken", [1])]
    )
    row = ToolServer.objects.create(name="big", kind="stdio", command=behaviour.as_process(tmp_path))
    assert "Not requested yet" in admin_client.get(change_url(row)).content.decode()
    messages = press(admin_client, row, "list_tools")
    assert "big__tool80" in messages and "big__broken" not in messages
    page = " ".join(admin_client.get(change_url(row)).content.decode().split())
    assert "Tools that are changed or left out" in page and "Its input schema is not a JSON object." in page
    assert page.count("Counts.") == 81
    row.refresh_from_db()
    assert len(row.tools or ()) == 81 and row.problems[0]["name"] == "big__broken"
    admin_client.post(change_url(row), server_form(row, command="true"))
    row.refresh_from_db()
    assert row.tools is None and row.problems == []
    assert "The process ended with code 0 before it answered" in press(admin_client, row, "list_tools")


def test_the_message_of_a_long_list_names_the_first_and_counts_all(admin_client: Client, tmp_path: Path) -> None:
    behaviour = Misbehaving([tool(f"tool{number}") for number in range(130)])
    row = ToolServer.objects.create(name="big", kind="stdio", command=behaviour.as_process(tmp_path))
    messages = press(admin_client, row, "list_tools")
    assert "big__tool99, … (130)" in messages and "big__tool100" not in messages
