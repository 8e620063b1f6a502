"""Change the services that tools use, and create their tools."""

import asyncio
import json
from collections.abc import Mapping
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.db import transaction

from core.audit.services import field_changes, load_stored, record, record_saved
from core.crypto import is_lost
from core.errors import ProductError
from core.locks import lock
from core.net.addresses import HostLists
from core.net.url_safety import FetchRefused
from core.outside import wait_outside
from core.permissions import require_right, require_store
from core.sentences import Sentence
from llm.models import OpenApiDocument, ToolGrant, ToolServer, WebAccess, WebSearch
from llm.oauth.grants import NO_GRANTS, PersonsGrants, load_grants
from llm.tools.mcp import (
    Listing,
    build_operation_tools,
    list_tools,
    problems_from_json,
    problems_to_json,
    tools_from_json,
    tools_to_json,
)
from llm.tools.openapi import MAX_TOOLS_OF_SERVER, ReadDocument, list_operations
from llm.tools.servers import ServerFailed, ToolServerConfig
from llm.tools.web_search import SearchService, ServiceKind, WebSearchTool

ACTIVE_LOCK = "active web search"  # serialises changes of the active service
TRIAL_QUERY = "weather"  # a query with results in every index
SERVICE_KINDS: Mapping[WebSearch.Kind, ServiceKind] = {
    WebSearch.Kind.SEARXNG: "searxng",
    WebSearch.Kind.BRAVE: "brave",
    WebSearch.Kind.DUCKDUCKGO: "duckduckgo",
}


def web_search_tool() -> WebSearchTool | None:
    """Return the tool for the active service, or None. It leaves out results from denied hosts."""
    row = WebSearch.objects.filter(active=True).first()
    return None if row is None else WebSearchTool(_to_service(row), hosts=host_lists())


@transaction.atomic
def store_web_search(*, user: AbstractUser, web_search: WebSearch, api_key: str | None) -> None:
    """Store the row of an administrator's form. The first row becomes the active one.

    `api_key`: None keeps the stored key, an empty text removes it.
    """
    require_store(user, web_search)
    if api_key is not None:
        web_search.api_key = api_key
    lock(ACTIVE_LOCK)
    if not WebSearch.objects.exists():
        web_search.active = True
    before = load_stored(web_search)
    web_search.save()
    record_saved(user=user, kind="web_search", row=web_search, before=before, name=web_search.name)


@transaction.atomic
def set_web_search_active(*, user: AbstractUser, web_search: WebSearch, active: bool) -> None:
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
        service = _to_service(web_search)
        with wait_outside():
            return len(asyncio.run(service.search(TRIAL_QUERY)))
    except FetchRefused as refusal:
        raise ProductError("web_search_failed", str(refusal), status=502) from refusal


def host_lists() -> HostLists:
    """Return the hosts that tools may reach without asking, and the hosts that they may never reach."""
    row = WebAccess.objects.first()
    return HostLists() if row is None else row.lists


@transaction.atomic
def store_web_access(*, user: AbstractUser, web_access: WebAccess) -> None:
    """Store the only row, from an administrator's form."""
    require_store(user, web_access)
    before = load_stored(web_access)
    web_access.save()
    record_saved(user=user, kind="web_access", row=web_access, before=before)


def tool_servers(person: UUID | None = None) -> list[ToolServerConfig]:
    """Return the enabled servers in the order of their names, with the sign-ins of a person.

    `llm.tools.mcp.list_tools` asks a server for its tools.
    """
    grants = load_grants(person)
    return [_to_config(row, grants) for row in ToolServer.objects.filter(enabled=True)]


def known_tools(person: UUID | None = None) -> list[tuple[ToolServerConfig, Listing | None]]:
    """Return the enabled servers in the order of their names, with their last listings for a person.

    The listing is None for a server that was never asked, and for one at which the person is not signed in.
    """
    grants = load_grants(person)
    return [(_to_config(row, grants), last_listing(row, grants)) for row in ToolServer.objects.filter(enabled=True)]


def last_listing(row: ToolServer, grants: PersonsGrants) -> Listing | None:
    """Return the last listing of a server, or None if it was never asked.

    If each person signs in, it is the listing for the person: a server may offer each person other tools.
    """
    holder = grants.usable(row) if row.access == ToolServer.Access.PERSON else row
    if holder is None or holder.tools is None:
        return None
    return Listing(tools_from_json(_to_config(row, grants), holder.tools), problems_from_json(holder.problems))


def remember_listing(server: ToolServerConfig, listing: Listing) -> None:
    """Store the listing of a server, so that a plan can count its tools without a request."""
    tools = tools_to_json(listing.tools)
    problems = problems_to_json(listing.problems)
    if server.bearer is not None:
        grant_rows = ToolGrant.objects.filter(pk__in=[server.bearer.grant] if server.bearer.grant else [])
        grant_rows.exclude(tools=tools, problems=problems).update(tools=tools, problems=problems)
        return
    changed_rows = ToolServer.objects.filter(name=server.name).exclude(tools=tools, problems=problems)
    changed_rows.update(tools=tools, problems=problems)


@transaction.atomic
def store_tool_server(
    *, user: AbstractUser, tool_server: ToolServer, api_key: str | None, document: ReadDocument | None = None
) -> None:
    """Store the row of a superuser's form.

    Other users may not store it, since a process runs any command with the worker's rights. `api_key`: None keeps the
    stored key, an empty text removes it. `document`: a new OpenAPI document; None keeps the stored one. Raises
    `openapi_document_missing`, `openapi_operation_unknown`, `openapi_too_many` and `superuser_only`.
    """
    if not (user.is_active and user.is_superuser):
        raise ProductError("superuser_only", "Only a superuser can change tool servers. Ask one to do it.", status=403)
    if api_key is not None:
        tool_server.api_key = api_key
    # The last listing and the discovery may come from another server.
    tool_server.tools = None
    tool_server.problems = []
    tool_server.sign_in = None
    before = load_stored(tool_server)
    is_openapi = tool_server.kind == ToolServer.Kind.OPENAPI
    if is_openapi:
        _choose_operations(tool_server, document)
    else:
        tool_server.operations = tool_server.unasked = []
    tool_server.save()
    if document is not None and is_openapi:
        _store_document(tool_server, document)
    elif not is_openapi:
        OpenApiDocument.objects.filter(server=tool_server).delete()
    changes = field_changes(before if before is not None else ToolServer(), tool_server)
    if document is not None and is_openapi:
        changes["document"] = None
    if before is None or changes:
        action = "tool_server.added" if before is None else "tool_server.changed"
        record(user=user, action=action, row=tool_server, name=tool_server.name, changes=changes)


def _choose_operations(tool_server: ToolServer, document: ReadDocument | None) -> None:
    """Make the chosen operations the tools of a server.

    Operations that a new document lacks are removed from the choice.
    """
    row = OpenApiDocument.objects.filter(server_id=tool_server.pk).first()
    if document is None and row is None:
        raise ProductError("openapi_document_missing", "Upload the OpenAPI document of this API, or enter its address.")
    operations = (
        document.operations if document is not None else list_operations(json.loads(row.content if row else ""))
    )
    by_key = {each.key: each for each in operations if each.problem is None}
    if document is not None:
        tool_server.operations = [key for key in tool_server.operations if key in by_key]
    if missing := [key for key in tool_server.operations if key not in by_key]:
        sentence = Sentence(
            "The document has no operation {operation} that can be a tool. Choose operations from the list.",
            operation=str(missing[0])[:200],
        )
        raise ProductError("openapi_operation_unknown", sentence)
    if len(tool_server.operations) > MAX_TOOLS_OF_SERVER:
        sentence = Sentence(
            "At most {most} operations of one server can be tools. Choose fewer, or add the document to a second "
            "server.",
            most=MAX_TOOLS_OF_SERVER,
        )
        raise ProductError("openapi_too_many", sentence)
    tool_server.unasked = [key for key in tool_server.unasked if key in tool_server.operations]
    chosen_operations = [by_key[key] for key in by_key if key in {*tool_server.operations}]
    server = _to_config(tool_server, NO_GRANTS)
    tool_server.tools = tools_to_json(build_operation_tools(server, chosen_operations, tool_server.unasked))


def _store_document(tool_server: ToolServer, document: ReadDocument) -> None:
    OpenApiDocument.objects.update_or_create(
        server=tool_server,
        defaults={
            "title": document.title[:400],
            "address": document.address,
            "content": json.dumps(document.content),
            "operations": [each.as_line() for each in document.operations],
        },
    )


def try_tool_server(*, user: AbstractUser | None = None, tool_server: ToolServer) -> Listing:
    """Ask a server for its tools, and store the listing. If each person signs in, use the sign-in of the user.

    Raises `ProductError` with the cause and advice for an administrator.
    """
    server = _to_config(tool_server, load_grants(user.pk if user is not None else None))
    try:
        with wait_outside():
            listing = asyncio.run(list_tools(server))
    except ServerFailed as failure:
        raise ProductError(failure.code, failure.advice, status=502) from failure
    remember_listing(server, listing)
    return listing


def _to_config(row: ToolServer, grants: PersonsGrants) -> ToolServerConfig:
    over_http = row.kind != ToolServer.Kind.STDIO
    is_openapi = row.kind == ToolServer.Kind.OPENAPI
    has_secret = row.access == ToolServer.Access.HEADER and (row.api_key or is_lost(row.api_key))
    return ToolServerConfig(
        row.name,
        url=row.base_url if over_http else "",
        command="" if over_http else row.command,
        sse=row.kind == ToolServer.Kind.SSE,
        secrets={row.secret_name: row.api_key} if has_secret else {},
        approval_required=row.approval_required,
        reaches_out=row.reaches_out,
        operations=tuple(row.tools or ()) if is_openapi else None,
        own_network=row.own_network,
        hosts=host_lists() if is_openapi else HostLists(),
        bearer=grants.bearer(row) if row.access == ToolServer.Access.PERSON else None,
    )


def _to_service(row: WebSearch) -> SearchService:
    return SearchService(SERVICE_KINDS[WebSearch.Kind(row.kind)], row.base_url, row.api_key)
