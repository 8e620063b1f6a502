"""The pages that list, change, search, share, export and import conversations, and the page of a day.

Programs can export too (`/api/v1/`).
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypedDict
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import HttpResponseClientRedirect, trigger_client_event

from accounts.access.api_views import user_of_request
from accounts.access.authentication import bearer
from accounts.access.login import fresh_sign_in, require_fresh
from accounts.access.login_throttle import begin, require_password_tries
from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.conversations import chatgpt_export, daily, import_undo, services, sharing
from chat.conversations import export as exporting
from chat.conversations import search as searching
from chat.conversations.importing import jobs as importing
from chat.conversations.sidebar import SEVERAL, requested_list
from chat.models import Conversation, Import, Share, Tag
from chat.models.conversation_state import visible_conversation
from chat.models.words import MAX_QUERY
from chat.turns.services import forget_permission
from core.api.parameters import refuse_unknown_query
from core.errors import ProductError
from core.requests import get_or_404, identifier, with_headers, with_row
from projects.models import Project
from projects.models.roles import visible_project

MAX_PROJECTS = 200  # projects in a menu
MAX_TAGS = 30  # tags in a menu
SHARES = 200  # links on the page of all links
IMPORTS = 20  # imports on their page
RESULTS = 1_000  # results per import
READINGS = 20  # readings per conversation
DAY_PAGE = 40  # messages on one page of a day
MAX_PASSWORD_LENGTH = 200  # characters; the rest is ignored
PASSWORD_COOKIE = "opened"  # noqa: S105 - the name of the cookie that replaces the password of a link
COOKIE_SECONDS = 12 * 60 * 60  # seconds


@require_GET
def conversations(request: Request) -> HttpResponse:
    """Show one page of the list, after the cursor `after`, or all rows down to the cursor `through`.

    Responds 204 if the page already shows this list: `seen` has the digest of the list and the current conversation.
    """
    after = request.GET.get("after")
    through = request.GET.getlist("through")
    shown = requested_list(request, after=after, through=through[-1] if through else None)
    current = request.GET.get("current", "")
    if request.GET.get("seen") == f"{shown.digest}-{current}":
        return HttpResponse(status=204)
    return render(request, "chat/_conversations.html", {"side": shown, "current": current, "more": bool(after)})


@with_row(visible_conversation, "GET")
def organise(request: Request, row: Conversation) -> HttpResponse:
    """Show the actions on a conversation in a menu, or as a page without scripts."""
    template = "chat/_organise.html" if request.htmx else "chat/organise.html"
    destinations = _destinations(request.user)
    details = {
        "permissions": row.permissions.all(),
        "readings": row.readings.all()[:READINGS],
        "tag_choices": _tag_choices(row, [tag.name for tag in destinations["known_tags"][:MAX_TAGS]]),
    }
    return render(request, template, {"conversation": row, **details, **destinations})


@dataclass(frozen=True, slots=True)
class TagChoice:
    """A tag that is put on a conversation, or taken off it, by a click. `then`: all of its tags after the click."""

    name: str
    chosen: bool
    then: list[str]


def _tag_choices(conversation: Conversation, names: list[str]) -> list[TagChoice]:
    own = [tag.name for tag in conversation.tags.all()]
    return [
        TagChoice(name, name in own, [each for each in own if each != name] if name in own else [*own, name])
        for name in names
    ]


class Destinations(TypedDict):
    """Projects and tags that a conversation can get."""

    projects: QuerySet[Project]
    known_tags: QuerySet[Tag]


def _destinations(user: User) -> Destinations:
    """Return the projects and tags to choose from."""
    projects = Project.objects.visible_to(user).only("id", "name", "icon", "colour").order_by("name")[:MAX_PROJECTS]
    return {"projects": projects, "known_tags": Tag.objects.visible_to(user)}


@with_row(visible_conversation)
def forget(request: Request, row: Conversation, permission: UUID) -> HttpResponse:
    """Revoke a permission for calls of a tool in this conversation."""
    forget_permission(user=request.user, conversation=row, pk=permission)
    return redirect("chat:conversation", row.pk)


@with_row(visible_conversation)
def rename(request: Request, row: Conversation) -> HttpResponse:
    return _change(request, row, {"title": request.POST.get("title", "")})


@with_row(visible_conversation)
def move(request: Request, row: Conversation) -> HttpResponse:
    """Move a conversation into a project, or out of its project if the form names none."""
    named = request.POST.get("project")
    return _change(request, row, {"project": visible_project(request.user, named) if named else None})


@with_row(visible_conversation)
def archive(request: Request, row: Conversation) -> HttpResponse:
    return _change(request, row, {"archived": request.POST.get("archived") == "yes"})


@with_row(visible_conversation)
def show_tasks(request: Request, row: Conversation) -> HttpResponse:
    """Include the user's tasks in the prompts of this conversation, or leave them out."""
    response = _change(request, row, {"tasks_in_prompts": request.POST.get("tasks") == "yes"})
    return trigger_client_event(response, "planchange") if request.htmx else response


@with_row(visible_conversation)
def let_find(request: Request, row: Conversation) -> HttpResponse:
    """Let models search this conversation in the user's other conversations, or keep it out."""
    return _change(request, row, {"findable": request.POST.get("findable") == "yes"})


@with_row(visible_conversation)
def pin(request: Request, row: Conversation) -> HttpResponse:
    return _change(request, row, {"pinned": request.POST.get("pinned") == "yes"})


@with_row(visible_conversation)
def tag(request: Request, row: Conversation) -> HttpResponse:
    """Replace all tags of a conversation. Commas separate them."""
    return _change(request, row, {"tags": _tag_names(request)})


def _tag_names(request: Request) -> list[str]:
    return [name for name in request.POST.get("tags", "").split(",") if name.strip()]


@require_POST
def chosen(request: Request) -> HttpResponse:
    """Apply an action (`do`) to several conversations. Without one, show the actions in a menu or on a page."""
    rows = services.chosen_conversations(request.user, request.POST.getlist("conversation"))
    action = request.POST.get("do", "ask")
    problem: ProductError | None = None
    if action not in ("ask", "ask_delete"):
        try:
            return _show_result(request, rows, action)
        except ProductError as error:
            problem = error
    listed = {name: _how_many([bool(getattr(row, name)) for row in rows]) for name in ("pinned", "archived")}
    asking = action == "ask_delete"
    context = {"chosen": rows, "listed": listed, "asking": asking, "problem": problem, **_destinations(request.user)}
    template = "chat/_chosen.html" if request.htmx else "chat/chosen.html"
    response = render(request, template, context, status=problem.status if problem else 200)
    if problem:
        response["HX-Retarget"] = "#organise"  # so the page shows this fragment, and not an error page
    return response


def _how_many(are: list[bool]) -> str:
    return "all" if all(are) else "some" if any(are) else ""


def _show_result(request: Request, rows: list[Conversation], action: str) -> HttpResponse:
    away = reverse("chat:home")
    context: dict[str, object] = {"current": ""}
    if action == "delete":
        services.delete_conversations(user=request.user, conversations=rows)
        request.session[SEVERAL] = [str(each.pk) for each in rows]
        away = f"{away}?deleted={SEVERAL}"
        context["deleted_several"] = rows
    else:
        services.change_conversations(user=request.user, conversations=rows, fields=_fields(request, action))
    if not request.htmx:
        return redirect(away)
    if action == "delete" and any(_is_on_its_page(request, each) for each in rows):
        return HttpResponseClientRedirect(away)
    context["side"] = requested_list(request)
    return render(request, "chat/_chosen_done.html", context)


def _fields(request: Request, action: str) -> Mapping[str, object]:
    """Return the fields that an action changes. Raises `unknown_action`, and `bad_tag` if the form names no tag."""
    match action:
        case "tag" | "untag":
            return {action: _tag_names(request) or [""]}
        case "move":
            named = request.POST.get("project")
            return {"project": visible_project(request.user, named) if named else None}
        case "archive" | "unarchive":
            return {"archived": action == "archive"}
        case "pin" | "unpin":
            return {"pinned": action == "pin"}
    raise ProductError("unknown_action", "This action does not exist for several conversations. Reload the page.")


@require_POST
def restore_several(request: Request) -> HttpResponse:
    services.restore_conversations(user=request.user, ids=request.POST.getlist("conversation"))
    if not request.htmx:
        return redirect("chat:home")
    return trigger_client_event(HttpResponse(), "sidechange")


@with_row(visible_conversation)
def delete(request: Request, row: Conversation) -> HttpResponse:
    services.delete_conversation(user=request.user, conversation=row)
    away = reverse("chat:home") + ("" if row.temporary else f"?deleted={row.pk}")
    if not request.htmx:
        return redirect(away)
    if _is_on_its_page(request, row):
        return HttpResponseClientRedirect(away)
    return _reload_list(render(request, "chat/_deleted.html", {"deleted": row, "in_place": True}), row)


@require_POST
def restore(request: Request, pk: UUID) -> HttpResponse:
    conversation = services.restore_conversation(user=request.user, pk=pk)
    if not request.htmx:
        return redirect("chat:conversation", pk)
    return _reload_list(HttpResponse(), conversation)


def _change(request: Request, row: Conversation, fields: Mapping[str, object]) -> HttpResponse:
    services.update_conversation(user=request.user, conversation=row, fields=fields)
    if not request.htmx:
        return redirect("chat:conversation", row.pk)
    return _reload_list(HttpResponse(status=204), row)


def _reload_list(response: HttpResponse, conversation: Conversation) -> HttpResponse:
    """Make the page reload the list."""
    detail = {"conversation": str(conversation.pk), "title": conversation.title}
    return trigger_client_event(response, "sidechange", detail)


def _is_on_its_page(request: Request, conversation: Conversation) -> bool:
    here = urlsplit(request.headers.get("HX-Current-URL", "")).path
    return here == reverse("chat:conversation", args=[conversation.pk])


@require_GET
def search(request: Request) -> HttpResponse:
    query = request.GET.get("q", "")[:MAX_QUERY]
    after = request.GET.get("after")
    titles_shown = request.GET.get("titles", "")
    valid = titles_shown.isdecimal() and len(titles_shown) < 9
    most_titles = min(int(titles_shown), searching.MAX_TITLES) if valid else searching.FIRST_TITLES
    place = identifier(after, "page") if after else None
    tag = request.GET.get("tag", "")[: Tag.MAX_NAME].replace("\0", "")
    most_titles = max(most_titles, searching.FIRST_TITLES)
    page = searching.search(user=request.user, query=query, after=place, most_titles=most_titles, tag=tag)
    fragment = request.htmx and after
    context: dict[str, object] = {"section": "search", "query": query, "found": page, "first": not after, "tag": tag}
    context["characters_read"] = searching.CHARACTERS_READ
    if not after:
        named = {} if tag else searching.match_names(user=request.user, query=query, limit=searching.PAGE_MESSAGES)
        context |= {
            "known_tags": Tag.objects.visible_to(request.user),
            "named": named,
            "something": any(each.rows for each in named.values()),
            "next_titles": most_titles + searching.MORE_TITLES,
        }
    return render(request, "chat/_found.html" if fragment else "chat/search.html", context)


@require_GET
def today(request: Request) -> HttpResponse:
    return redirect("chat:day", timezone.localdate(timezone=request.user.zone))


@require_GET
def day(request: Request, day: date) -> HttpResponse:
    """Show the page of a day, or with `?after=` the entries after a message."""
    after = request.GET.get("after")
    entries = daily.next_rows(
        daily.find_messages(request.user, day), identifier(after, "message") if after else None, DAY_PAGE + 1
    )
    context: dict[str, object] = {"day": day, "messages": entries[:DAY_PAGE], "more": len(entries) > DAY_PAGE}
    if request.htmx:
        return render(request, "chat/_day_messages.html", context)
    context |= {
        "summaries": daily.find_summaries(request.user, day).select_related("conversation").order_by("id"),
        "before": day - timedelta(days=1) if day > date.min else None,
        "next_day": day + timedelta(days=1) if day < date.max else None,
        "is_today": day == timezone.localdate(timezone=request.user.zone),
    }
    return render(request, "chat/day.html", context)


@with_row(visible_conversation, "GET", "POST")
def share(request: Request, row: Conversation) -> HttpResponse:
    """Show the links of a conversation, in a dialog or as a page; a POST creates one."""
    problem: ProductError | None = None
    if request.method == "POST":
        try:
            sharing.create_share(user=request.user, conversation=row, terms=_terms(request))
        except ProductError as error:
            problem = error
        else:
            if not request.htmx:
                return redirect("chat:share", row.pk)
    return _shares_page(request, row, problem)


def _shares_page(request: Request, row: Conversation, problem: ProductError | None = None) -> HttpResponse:
    shares = [*sharing.list_shares(request.user).filter(conversation=row)]
    context = {"conversation": row, "shares": _with_urls(request, shares), "problem": problem, "asked": request.POST}
    if request.htmx:  # the dialog shows the form with the error; a status of 200 keeps the browser console clean
        return render(request, "chat/_share.html", context)
    return render(request, "chat/share.html", context, status=problem.status if problem else 200)


def _terms(request: Request) -> sharing.ShareTerms:
    """Return the terms of the form. An invalid number of days means no limit, as the empty choice does."""
    days = request.POST.get("days", "")
    limit = timedelta(days=int(days)) if days.isascii() and days.isdigit() and int(days[:4]) > 0 else None
    return sharing.ShareTerms(
        password=request.POST.get("password", "")[:MAX_PASSWORD_LENGTH],
        expires=timezone.now() + limit if limit and len(days) < 5 else None,
        shows_context="shows_context" in request.POST,
        names_sources="names_sources" in request.POST,
    )


@require_GET
def shares(request: Request) -> HttpResponse:
    rows = [*sharing.list_shares(request.user)[:SHARES]]
    return render(
        request, "chat/shares.html", {"section": "settings", "place": "shares", "shares": _with_urls(request, rows)}
    )


@with_row(sharing.visible_share)
def end_share(request: Request, row: Share) -> HttpResponse:
    sharing.end_share(user=request.user, share=row)
    if request.htmx:
        return _shares_page(request, row.conversation)
    if request.POST.get("from") == "list":
        return redirect("chat:shares")
    return redirect("chat:share", row.conversation_id)


@require_http_methods(["GET", "HEAD", "POST"])
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """Show a shared conversation to anyone with the link and its password.

    A POST sends the password, and a cookie for this address then replaces it. No search engine lists the page, and its
    links send no referrer.
    """
    share = sharing.readable_share(token)
    problem: ProductError | None = None
    if request.method == "POST" and share.has_password:
        try:
            _check_password(request, share)
        except ProductError as error:
            problem = error
        else:
            return _make_private(_remember_password(redirect("chat:shared", token), share))
    if share.has_password and not _is_open(request, share):
        status = problem.status if problem else 200
        page = render(request, "chat/shared_locked.html", {"share": share, "problem": problem}, status=status)
        return _make_private(with_headers(page, problem) if problem else page)
    after = request.GET.get("after", "")
    shown = sharing.shared_page(share, int(after) if after.isascii() and after.isdigit() and len(after) < 9 else -1)
    return _make_private(render(request, "chat/shared.html", {"page": shown}))


def _check_password(request: HttpRequest, share: Share) -> None:
    """Check the password of the request. The limit of attempts is the same as for signing in.

    Raises `throttled` (429) and `wrong_password` (403).
    """
    attempt = begin(request, f"share {share.pk}")
    require_password_tries(attempt.retry_after)
    if not sharing.is_password(share, request.POST.get("password", "")):
        require_password_tries(attempt.retry_after_failure)
        raise ProductError(
            "wrong_password", "This is not the password of this link. Ask the person who sent you the link.", status=403
        )
    attempt.succeeded()


def _is_open(request: HttpRequest, share: Share) -> bool:
    return request.get_signed_cookie(PASSWORD_COOKIE, None, salt=_salt(share), max_age=COOKIE_SECONDS) == "yes"


def _remember_password(response: HttpResponse, share: Share) -> HttpResponse:
    response.set_signed_cookie(
        PASSWORD_COOKIE,
        "yes",
        salt=_salt(share),
        max_age=COOKIE_SECONDS,
        path=reverse("chat:shared", args=[share.token]),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return response


def _salt(share: Share) -> str:
    """Return the salt of the cookie. It is specific to the link and its password."""
    return f"share {share.pk} {share.password}"


def _make_private(response: HttpResponse) -> HttpResponse:
    response["X-Robots-Tag"] = "noindex, nofollow, noarchive"
    response["Referrer-Policy"] = "no-referrer"
    response["Cache-Control"] = "private, no-store"
    return response


def _with_urls(request: Request, rows: list[Share]) -> list[tuple[Share, str]]:
    return [(each, request.build_absolute_uri(reverse("chat:shared", args=[each.token]))) for each in rows]


@require_GET
def export(request: Request, pk: UUID, kind: str) -> HttpResponse:
    return _send_one(request.user, pk, kind)


@fresh_sign_in
@require_GET
def export_all(request: Request) -> StreamingHttpResponse:
    return _send_everything(request.user)


@fresh_sign_in
@require_GET
def export_for_others(request: Request) -> StreamingHttpResponse:
    """Send the conversations in ChatGPT's shape."""
    exporting.record_export(user=request.user)
    return _zip_response(chatgpt_export.zip_for_others(request.user))


@csrf_exempt  # it changes nothing
@require_GET
def api_export(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Send a conversation as `?kind=md` or `json`, the default."""
    refuse_unknown_query(request.GET, {"kind"})
    return _send_one(user_of_request(request, "chat"), pk, request.GET.get("kind", "json"))


@csrf_exempt  # as above
@require_GET
def api_export_all(request: HttpRequest) -> StreamingHttpResponse:
    """Send a zip of the conversations in `?conversation=`, or of everything. The latter needs a fresh sign-in."""
    refuse_unknown_query(request.GET, {"conversation"})
    user = user_of_request(request, "chat")
    chosen = request.GET.getlist("conversation")
    if not chosen and bearer(request) is None:
        require_fresh(request)
    return _send_several(user, chosen) if chosen else _send_everything(user)


def _send_one(user: User, pk: UUID, kind: str) -> HttpResponse:
    rows = Conversation.objects.visible_to(user).select_related("persona", "project")
    row = get_or_404(rows, pk, "conversation")
    response = HttpResponse(exporting.export(row, kind), content_type=exporting.MEDIA_TYPES[kind])
    exporting.record_export(user=user, conversation=row)
    name = exporting.file_name(row, kind)
    response["Content-Disposition"] = content_disposition_header(as_attachment=True, filename=name) or "attachment"
    response["Cache-Control"] = "private, no-store"
    return response


@require_POST
def export_several(request: Request) -> StreamingHttpResponse:
    return _send_several(request.user, request.POST.getlist("conversation"))


def _send_several(user: User, ids: list[str]) -> StreamingHttpResponse:
    rows = services.chosen_conversations(user, ids)
    for each in rows:
        exporting.record_export(user=user, conversation=each)
    return _zip_response(exporting.zip_conversations(user, [each.pk for each in rows]))


def _send_everything(user: User) -> StreamingHttpResponse:
    exporting.record_export(user=user)
    return _zip_response(exporting.zip_everything(user))


def _zip_response(content: AsyncIterator[bytes]) -> StreamingHttpResponse:
    response = StreamingHttpResponse(content, content_type="application/zip")
    response["Content-Disposition"] = 'attachment; filename="conversations.zip"'
    response["Cache-Control"] = "private, no-store"
    return response


@require_http_methods(["GET", "POST"])
def imports(request: Request) -> HttpResponse:
    problem: ProductError | None = None
    if request.method == "POST":
        try:
            return redirect("chat:import", _start_import(request).pk)
        except ProductError as error:
            problem = error
    rows = Import.objects.visible_to(request.user).defer("results")[:IMPORTS]
    context = {"section": "settings", "place": "import", "imports": rows, "problem": problem}
    response = render(request, "chat/imports.html", context, status=problem.status if problem else 200)
    return with_headers(response, problem) if problem else response


@with_row(importing.visible_import, "GET")
def import_one(request: Request, job: Import) -> HttpResponse:
    """Show an import as a page, or as a fragment for the page that waits for it."""
    # First the conversations that were not imported, since people look for these. After an undo, first what stays.
    order = ["skipped", "known", "imported"]
    if job.status == Import.Status.UNDONE:
        order.reverse()
    results = sorted(job.results, key=lambda result: order.index(result["outcome"]))
    context = {
        "section": "settings",
        "place": "import",
        "job": job,
        "results": results[:RESULTS],
        "hidden": max(0, len(results) - RESULTS),
    }
    return render(request, "chat/_import.html" if request.htmx else "chat/import.html", context)


@with_row(importing.visible_import)
def retry_import(request: Request, job: Import) -> HttpResponse:
    importing.retry_import(user=request.user, job=job)
    return redirect("chat:import", job.pk)


@with_row(importing.visible_import)
def pause_import(request: Request, job: Import) -> HttpResponse:
    importing.pause_import(user=request.user, job=job)
    return redirect("chat:import", job.pk)


@with_row(importing.visible_import)
def undo_import(request: Request, job: Import) -> HttpResponse:
    import_undo.undo_import(user=request.user, job=job)
    return redirect("chat:import", job.pk)


@with_row(importing.visible_import)
def remove_import(request: Request, job: Import) -> HttpResponse:
    importing.remove_import(user=request.user, job=job)
    return redirect("chat:imports")


def _start_import(request: Request) -> Import:
    upload = request.FILES.get("file")
    if upload is None:
        raise ProductError("no_file", "Choose the export first: the zip, or the JSON file.")
    return importing.start_import(user=request.user, name=upload.name or "", content=upload)
