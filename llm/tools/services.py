"""Change the services that tools use, and create tools from them."""

import asyncio
from collections.abc import Mapping

from django.contrib.auth.models import AbstractUser
from django.db import transaction

from core.audit.services import record, record_saved, stored
from core.crypto import is_lost
from core.errors import ProductError
from core.locks import lock
from core.net.addresses import HostLists
from core.net.url_safety import FetchRefused
from core.outside import wait_outside
from core.permissions import require_right, require_store
from llm.models import ToolServer, WebAccess, WebSearch
from llm.tools.mcp import Listing, problems_as_stored, stored_problems, stored_tools, tools_as_stored, tools_of
from llm.tools.servers import ServerFailed, ToolServerConfig
from llm.tools.web_search import SearchService, ServiceKind, WebSearchTool

ACTIVE_LOCK = "active web search"  # two administrators choose a service one after the other
TRIAL_QUERY = "weather"  # every index has results for it
KINDS: Mapping[WebSearch.Kind, ServiceKind] = {
    WebSearch.Kind.SEARXNG: "searxng",
    WebSearch.Kind.BRAVE: "brave",
    WebSearch.Kind.DUCKDUCKGO: "duckduckgo",
}


def web_search_tool() -> WebSearchTool | None:
    """Return the tool for the active service, without hosts that the workspace denies, or None."""
    row = WebSearch.objects.filter(active=True).first()
    return None if row is None else WebSearchTool(_service(row), hosts=host_lists())


@transaction.atomic
def store_web_search(*, user: AbstractUser, web_search: WebSearch, api_key: str | None) -> None:
    """Store the row of an administrator's form. The very first row becomes the active one.

    `api_key`: None keeps the stored key, an empty text removes it.
    """
    require_store(user, web_search)
    if api_key is not None:
        web_search.api_key = api_key
    lock(ACTIVE_LOCK)
    if not WebSearch.objects.exists():
        web_search.active = True
    before = stored(web_search)
    web_search.save()
    record_saved(user=user, kind="web_search", row=web_search, before=before, name=web_search.name)


@transaction.atomic
def use_web_search(*, user: AbstractUser, web_search: WebSearch, active: bool) -> None:
    """Make this service the active one, or stop using it."""
    require_right(user, "change", web_search)
    lock(ACTIVE_LOCK)
    if active:
        WebSearch.objects.filter(active=True).exclude(pk=web_search.pk).update(active=False)
    WebSearch.objects.filter(pk=web_search.pk).update(active=active)
    web_search.active = active
    action = "web_search.switched_on" if active else "web_search.switched_off"
    record(user=user, action=action, row=web_search, name=web_search.name)


def try_web_search(*, web_search: WebSearch) -> int:
    """Return the number of results of a trial search. Raises `ProductError` with advice for an administrator."""
    try:
        service = _service(web_search)
        with wait_outside():
            return len(asyncio.run(service.search(TRIAL_QUERY)))
    except FetchRefused as refusal:
        raise ProductError("web_search_failed", str(refusal), status=502) from refusal


def host_lists() -> HostLists:
    """Return the hosts that tools may reach without approval, and the hosts that they may never reach."""
    row = WebAccess.objects.first()
    return HostLists() if row is None else row.lists


@transaction.atomic
def store_web_access(*, user: AbstractUser, web_access: WebAccess) -> None:
    """Store the one row of an administrator's form."""
    require_store(user, web_access)
    before = stored(web_access)
    web_access.save()
    record_saved(user=user, kind="web_access", row=web_access, before=before)


def tool_servers() -> list[ToolServerConfig]:
    """Return the enabled servers, by name. `llm.tools.mcp.tools_of` asks a server for its tools."""
    return [_server(row) for row in ToolServer.objects.filter(enabled=True)]


def known_tools() -> list[tuple[ToolServerConfig, Listing | None]]:
    """Return the enabled servers, by name, with their last listings. A server that was never asked has None."""
    return [(_server(row), last_listing(row)) for row in ToolServer.objects.filter(enabled=True)]


def last_listing(row: ToolServer) -> Listing | None:
    """Return the last listing of a server, or None if it was never asked."""
    if row.tools is None:
        return None
    return Listing(stored_tools(_server(row), row.tools), stored_problems(row.problems))


def remember_listing(server: ToolServerConfig, listing: Listing) -> None:
    """Store the listing of a server, so that a plan can count its tools without asking."""
    tools = tools_as_stored(listing.tools)
    problems = problems_as_stored(listing.problems)
    changed = ToolServer.objects.filter(name=server.name).exclude(tools=tools, problems=problems)
    changed.update(tools=tools, problems=problems)


@transaction.atomic
def store_tool_server(*, user: AbstractUser, tool_server: ToolServer, api_key: str | None) -> None:
    """Store the row of a superuser's form.

    Only superusers may, since a process runs any command with the worker's rights. `api_key`:
    None keeps the stored key, an empty text removes it.
    """
    if not (user.is_active and user.is_superuser):
        raise ProductError("superuser_only", "Only a superuser can change tool servers. Ask one to do it.", status=403)
    if api_key is not None:
        tool_server.api_key = api_key
    # The last listing may come from another server.
    tool_server.tools = None
    tool_server.problems = []
    before = stored(tool_server)
    tool_server.save()
    record_saved(user=user, kind="tool_server", row=tool_server, before=before, name=tool_server.name)


def try_tool_server(*, tool_server: ToolServer) -> Listing:
    """Ask a server for its tools, and store them.

    Raises `ProductError` with the cause and advice for an administrator.
    """
    server = _server(tool_server)
    try:
        with wait_outside():
            listing = asyncio.run(tools_of(server))
    except ServerFailed as failure:
        raise ProductError(failure.code, failure.advice, status=502) from failure
    remember_listing(server, listing)
    return listing


def _server(row: ToolServer) -> ToolServerConfig:
    over_http = row.kind != ToolServer.Kind.STDIO
    return ToolServerConfig(
        row.name,
        url=row.base_url if over_http else "",
        command="" if over_http else row.command,
        sse=row.kind == ToolServer.Kind.SSE,
        secrets={row.secret_name: row.api_key} if row.api_key or is_lost(row.api_key) else {},
        approval_required=row.approval_required,
        reaches_out=row.reaches_out,
    )


def _service(row: WebSearch) -> SearchService:
    return SearchService(KINDS[WebSearch.Kind(row.kind)], row.base_url, row.api_key)
