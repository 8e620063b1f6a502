"""The settings page “Connected tools”, the page to which authorization servers return, and the client's document."""

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request
from accounts.connected_tools import services
from accounts.models import User
from core.errors import NotFound, ProductError
from core.net.addresses import host_of
from core.net.site import site_origin
from core.requests import with_headers, with_row
from core.sentences import Sentence
from llm.models import ToolGrant, ToolServer
from llm.oauth.grants import AuthorizationAnswer
from llm.oauth.values import client_document

MAX_LENGTH = 4_096  # characters of a parameter of an answer


@never_cache
@require_GET
def page(request: Request) -> HttpResponse:
    """Show the tool servers to which the person signs in."""
    return _page(request)


def offered(user: User, pk: UUID) -> ToolServer:
    """Return a tool server to which the user may sign in. Raises `NotFound`."""
    row = services.connection(user, pk)
    if not row.offered:
        raise NotFound("tool server")
    return row.server


def granted(user: User, pk: UUID) -> ToolGrant:
    """Return the user's grant of a tool server. Raises `NotFound`."""
    row = services.connection(user, pk)
    if row.grant is None:
        raise NotFound("tool server")
    return row.grant


@with_row(offered)
def sign_in(request: Request, server: ToolServer) -> HttpResponse:
    """Begin a sign-in, and show where it goes. `then`: the page to open afterwards.

    The page has a link: a form's redirect to another site is refused by the content security policy.
    """
    then = request.POST.get("then", "")
    is_local = url_has_allowed_host_and_scheme(then, {request.get_host()}, require_https=request.is_secure())
    try:
        pending = services.begin_sign_in(
            user=request.user,
            server=server,
            site=site_origin(request),
            session=request.session.session_key or "",
            then=then if is_local else "",
        )
    except ProductError as error:
        return _page(request, error)
    context = {
        "section": "settings",
        "place": "tools",
        "server": server,
        "address": pending.address,
        "host": host_of(pending.address),
        "scope": pending.scope,
        "back": then if is_local else reverse("settings:tools"),
    }
    return render(request, "accounts/tools_go.html", context)


@never_cache
@require_GET
def returned(request: Request) -> HttpResponse:
    """Complete the sign-in with which an authorization server sent the browser back."""
    values = {name: request.GET.get(name, "")[:MAX_LENGTH].replace("\0", "") for name in ("state", "code", "error")}
    answer = AuthorizationAnswer(
        state=values["state"],
        code=values["code"],
        iss=request.GET.get("iss"),
        error=values["error"],
        description=request.GET.get("error_description", "")[:MAX_LENGTH],
    )
    try:
        completed = services.complete_sign_in(
            user=request.user, answer=answer, session=request.session.session_key or ""
        )
    except ProductError as error:
        return _page(request, error)
    if completed.then:
        return redirect(completed.then)
    messages.success(request, str(Sentence("You are signed in to {name}.", name=completed.grant.tool_server.name)))
    return redirect("settings:tools")


@with_row(granted)
def disconnect(request: Request, grant: ToolGrant) -> HttpResponse:
    name = grant.tool_server.name
    if services.disconnect(user=request.user, grant=grant):
        messages.success(request, str(Sentence("You are signed out of {name}.", name=name)))
    else:
        sentence = Sentence(
            "Glasshouse has deleted your sign-in to {name}. {name} itself did not confirm the end of it. If it lists "
            "connected applications, remove Glasshouse there, too.",
            name=name,
        )
        messages.warning(request, str(sentence))
    return redirect("settings:tools")


@require_GET
def client(request: HttpRequest) -> HttpResponse:
    """Describe this workspace as a client to authorization servers (OAuth Client ID Metadata Document)."""
    site = site_origin(request)
    document = client_document(
        client_id=f"{site}{reverse(services.CLIENT_DOCUMENT)}", site=site, redirect_uri=services.redirect_uri(site)
    )
    return JsonResponse(document)


def _page(request: Request, error: ProductError | None = None) -> HttpResponse:
    context = {
        "section": "settings",
        "place": "tools",
        "connections": services.connections(request.user),
        "problem": error.sentence if error is not None else None,
    }
    response = render(request, "accounts/tools.html", context, status=error.status if error is not None else 200)
    return with_headers(response, error) if error is not None else response
