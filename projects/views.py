"""The pages of projects. A view reads the request, calls one service or one page function, and renders."""

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.middleware import SignedInRequest as Request
from llm.errors import NotFound
from personas.models import Persona
from projects import pages, services
from projects.file_api import whole_number
from projects.file_views import upload
from projects.models import Membership, Project


@login_required
@require_http_methods(["GET", "POST"])
def projects(request: Request) -> HttpResponse:
    if request.method == "POST":
        made = services.create_project(user=request.user, fields={"name": request.POST.get("name", "")})
        return redirect("projects:project", made.pk)
    rows = Project.objects.visible_to(request.user).select_related("owner")
    return render(request, "projects/list.html", {"section": "projects", "projects": rows})


@login_required
@require_http_methods(["GET", "POST"])
def project(request: Request, pk: UUID) -> HttpResponse:
    """Everything about a project; a POST saves its name, instructions and persona."""
    found = services.visible_project(request.user, pk)
    if request.method == "POST":
        services.require_editor(user=request.user, project=found)
        based_on = whole_number(request.POST, "version")
        services.update_project(user=request.user, project=found, fields=_fields(request, found), based_on=based_on)
        return _go(request, reverse("projects:project", args=[found.pk]))
    query = request.GET.get("q", "")
    context = {
        **_context(request, found),
        "section": "projects",
        "members": pages.members_of(found),
        "roles": Membership.Role.choices,
        "personas": pages.personas_for(request.user, found),
        "addable": pages.addable(request.user, found),
        "query": query,
        "results": pages.results(found, query) if query.strip() else None,
    }
    return render(request, "projects/project.html", context)


def _fields(request: Request, found: Project) -> dict[str, Any]:
    fields: dict[str, Any] = {name: request.POST[name] for name in ("name", "instructions") if name in request.POST}
    if "instructions" in fields:
        fields["instructions"] = fields["instructions"].replace("\r\n", "\n")  # forms are sent so; it is no change
    if "persona" in request.POST:
        fields["persona"] = _persona(request, found, request.POST["persona"])
    return fields


def _persona(request: Request, found: Project, pk: str) -> Persona | None:
    if not pk:
        return None
    if pk == str(found.persona_id):
        return found.persona
    chosen = Persona.objects.visible_to(request.user).filter(pk=services.identifier(pk, "persona")).first()
    if chosen is None:
        raise NotFound("persona")
    return chosen


@login_required
@require_GET
def search(request: Request, pk: UUID) -> HttpResponse:
    """The results alone, for the page that is there already."""
    found = services.visible_project(request.user, pk)
    query = request.GET.get("q", "")
    shown = pages.results(found, query) if query.strip() else None
    return render(request, "projects/_results.html", {"project": found, "query": query, "results": shown})


@login_required
@require_http_methods(["GET", "POST"])
def files(request: Request, pk: UUID) -> HttpResponse:
    """The rows of the project's files; a POST adds one of one's own."""
    found = services.visible_project(request.user, pk)
    if request.method == "POST":
        services.require_editor(user=request.user, project=found)
        file = services.visible_file(request.user, request.POST.get("file", ""))
        services.add_file(user=request.user, project=found, file=file)
    return _entries(request, found)


@login_required
@require_POST
def upload_files(request: Request, pk: UUID) -> HttpResponse:
    """Uploads files and puts them into the project."""
    found = services.visible_project(request.user, pk)
    services.require_editor(user=request.user, project=found)
    for file in upload(request):
        services.add_file(user=request.user, project=found, file=file)
    return _entries(request, found)


@login_required
@require_POST
def change_file(request: Request, pk: UUID, file: UUID) -> HttpResponse:
    """Pins (`pinned`: true or false) or moves (`position`)."""
    found = services.visible_project(request.user, pk)
    pinned = {"true": True, "false": False}.get(request.POST.get("pinned", ""))
    position = whole_number(request.POST, "position")
    services.change_file(user=request.user, project=found, file=file, pinned=pinned, position=position)
    return _entries(request, found)


@login_required
@require_POST
def remove_file(request: Request, pk: UUID, file: UUID) -> HttpResponse:
    found = services.visible_project(request.user, pk)
    services.remove_file(user=request.user, project=found, file=file)
    return _entries(request, found)


@login_required
@require_POST
def add_member(request: Request, pk: UUID) -> HttpResponse:
    found = services.visible_project(request.user, pk)
    services.add_member(
        user=request.user,
        project=found,
        username=request.POST.get("username", ""),
        role=request.POST.get("role", Membership.Role.READER),
    )
    return _go(request, reverse("projects:project", args=[found.pk]))


@login_required
@require_POST
def change_member(request: Request, pk: UUID, member: UUID) -> HttpResponse:
    found = services.visible_project(request.user, pk)
    role = request.POST.get("role", "")
    services.change_role(user=request.user, project=found, member=member, role=role)
    return redirect("projects:project", found.pk)


@login_required
@require_POST
def remove_member(request: Request, pk: UUID, member: UUID) -> HttpResponse:
    found = services.visible_project(request.user, pk)
    services.remove_member(user=request.user, project=found, member=member)
    if member == request.user.pk:
        return redirect("projects:list")
    return redirect("projects:project", found.pk)


@login_required
@require_POST
def delete(request: Request, pk: UUID) -> HttpResponse:
    services.delete_project(user=request.user, project=services.visible_project(request.user, pk))
    return redirect("projects:list")


def _go(request: Request, url: str) -> HttpResponse:
    """htmx follows a redirect inside a fragment; HX-Redirect makes the page itself go there."""
    if request.headers.get("HX-Request"):
        return HttpResponse(status=204, headers={"HX-Redirect": url})
    return redirect(url)


def _context(request: Request, found: Project) -> dict[str, Any]:
    role = services.role_of(request.user, found)
    return {
        "project": found,
        "role": role,
        "editor": role != Membership.Role.READER,
        "mine": role == services.OWNER,
        "list": pages.entries_of(found),
    }


def _entries(request: Request, found: Project) -> HttpResponse:
    """After a change the page again; for a script only the rows, and the word that the meter may have changed."""
    if not request.headers.get("HX-Request"):
        return redirect("projects:project", found.pk)
    context = _context(request, found)
    response = render(request, "projects/_entries.html", context)
    if request.method == "POST" or not context["list"].unread:
        response["HX-Trigger"] = "meterchange"
    return response
