"""The pages of projects. A view reads the request, calls one service, and renders."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import EDITING, Role, User
from core.requests import choice, choices, with_row
from files.api import whole_number
from files.index.finding import find_passages
from files.index.ledger import Payer
from files.index.search import passages
from files.models import File
from files.services import visible_file
from files.views import upload
from personas.models import Persona
from projects import invitations, services
from projects import members as membership
from projects.handing_over import files_of_project
from projects.models import Invitation, Project, ProjectFile, roles

CHOICES = 200  # files that one can add to a project
RESULTS = 10


@require_http_methods(["GET", "POST"])
def projects(request: Request) -> HttpResponse:
    if request.method == "POST":
        made = services.create_project(user=request.user, fields={"name": request.POST.get("name", "")})
        return redirect("projects:project", made.pk)
    rows = Project.objects.visible_to(request.user).select_related("owner")
    context = {"section": "projects", "projects": rows, "invitations": _received(request)}
    return render(request, "projects/list.html", context)


@require_safe
def received(request: Request) -> HttpResponse:
    """The invitations alone, for the page that is there already."""
    return render(request, "projects/_invitations.html", {"invitations": _received(request)})


@require_safe
def invited(request: Request) -> HttpResponse:
    """How many there are, for the side."""
    return render(request, "projects/_invited.html")


def _received(request: Request) -> QuerySet[Invitation]:
    return Invitation.objects.visible_to(request.user).select_related("project__owner")


@with_row(invitations.received)
def accept(request: Request, invitation: Invitation) -> HttpResponse:
    return redirect("projects:project", invitations.accept(user=request.user, invitation=invitation).pk)


@with_row(invitations.received)
def decline(request: Request, invitation: Invitation) -> HttpResponse:
    invitations.decline(user=request.user, invitation=invitation)
    return redirect("projects:list")


@with_row(roles.visible_project, "GET", "POST")
def project(request: Request, found: Project) -> HttpResponse:
    """Everything about a project; a POST saves its name, instructions and persona."""
    if request.method == "POST":
        roles.require_editor(user=request.user, project=found)
        based_on = whole_number(request.POST, "version")
        services.update_project(user=request.user, project=found, fields=_fields(request, found), based_on=based_on)
        return _go(request, reverse("projects:project", args=[found.pk]))
    shown = _context(request, found)
    context = {
        **shown,
        "section": "projects",
        **_members(request, found, shown["mine"]),
        "personas": choices(Persona.objects.visible_to(request.user), found.persona),
        "addable": File.objects.owned_by(request.user).exclude(project_entries__project=found)[:CHOICES],
        **_results(request.user, found, request.GET.get("q", "")),
    }
    return render(request, "projects/project.html", context)


def _fields(request: Request, found: Project) -> dict[str, Any]:
    given = [name for name in ("name", "instructions") if name in request.POST]
    fields: dict[str, Any] = {name: request.POST[name] for name in given}
    if "persona" in request.POST:
        visible = Persona.objects.visible_to(request.user)
        fields["persona"] = choice(visible, found.persona, request.POST["persona"], "persona")
    if "web" in request.POST:  # a box that is not ticked is not sent, so it comes with a hidden field
        fields["web"] = "on" in request.POST.getlist("web")
    return fields


@with_row(roles.visible_project, "GET")
def search(request: Request, found: Project) -> HttpResponse:
    """The results alone, for the page that is there already."""
    query = request.GET.get("q", "")
    return render(request, "projects/_results.html", {"project": found, **_results(request.user, found, query)})


def _results(user: User, project: Project, query: str) -> dict[str, Any]:
    if not query.strip():
        return {"query": query, "results": None}
    found = find_passages(queries=[query], files=services.files_of(project), limit=RESULTS, payer=Payer(user.pk))
    return {"query": query, "results": passages(found.hits), "notes": found.notes}


@with_row(roles.visible_project, "GET", "POST")
def files(request: Request, found: Project) -> HttpResponse:
    """The rows of the project's files; a POST adds one of one's own."""
    if request.method == "POST":
        roles.require_editor(user=request.user, project=found)
        file = visible_file(request.user, request.POST.get("file", ""))
        services.add_file(user=request.user, project=found, file=file)
    return _entries(request, found)


@with_row(roles.visible_project)
def upload_files(request: Request, found: Project) -> HttpResponse:
    """Uploads files and puts them into the project."""
    roles.require_editor(user=request.user, project=found)
    for file in upload(request):
        services.add_file(user=request.user, project=found, file=file)
    return _entries(request, found)


@with_row(roles.visible_project)
def change_file(request: Request, found: Project, file: UUID) -> HttpResponse:
    """Pins (`pinned`: true or false) or moves (`position`)."""
    pinned = {"true": True, "false": False}.get(request.POST.get("pinned", ""))
    position = whole_number(request.POST, "position")
    services.change_file(user=request.user, project=found, file=file, pinned=pinned, position=position)
    return _entries(request, found)


@with_row(roles.visible_project)
def remove_file(request: Request, found: Project, file: UUID) -> HttpResponse:
    services.remove_file(user=request.user, project=found, file=file)
    return _entries(request, found)


@with_row(roles.visible_project, "GET", "POST")
def members(request: Request, found: Project) -> HttpResponse:
    """The members and who is invited, for the page that is there already; a POST invites somebody."""
    if request.method == "POST":
        invitations.invite(
            user=request.user,
            project=found,
            username=request.POST.get("username", ""),
            role=request.POST.get("role", Role.READER),
        )
        return _go(request, reverse("projects:project", args=[found.pk]))
    mine = roles.role_of(request.user, found) == Role.OWNER
    context = {"project": found, "mine": mine, **_members(request, found, mine)}
    return render(request, "projects/_members.html", context)


def _members(request: Request, found: Project, mine: bool) -> dict[str, Any]:
    rows = membership.members_of(found)
    if not mine:
        return {"members": rows}
    choosable = membership.groups_to_choose(request.user, found)
    named = {"sent": Invitation.objects.sent(found), "roles": Role.choices, "groups": choosable}
    return {"members": rows, "going": files_of_project(found).count(), **named}


@with_row(roles.visible_project)
def add_group(request: Request, found: Project) -> HttpResponse:
    """Shares the project with a group."""
    role = request.POST.get("role", Role.READER)
    membership.add_group(user=request.user, project=found, group=request.POST.get("group", ""), role=role)
    return redirect("projects:project", found.pk)


@with_row(roles.visible_project)
def hand_over(request: Request, found: Project, member: UUID) -> HttpResponse:
    membership.hand_over(user=request.user, project=found, member=member)
    return redirect("projects:project", found.pk)


@with_row(roles.visible_project)
def withdraw(request: Request, found: Project, invitation: UUID) -> HttpResponse:
    invitations.withdraw(user=request.user, project=found, invitation=invitation)
    return redirect("projects:project", found.pk)


@with_row(roles.visible_project)
def change_member(request: Request, found: Project, member: UUID) -> HttpResponse:
    role = request.POST.get("role", "")
    membership.change_role(user=request.user, project=found, member=member, role=role)
    return redirect("projects:project", found.pk)


@with_row(roles.visible_project)
def remove_member(request: Request, found: Project, member: UUID) -> HttpResponse:
    membership.remove_member(user=request.user, project=found, member=member)
    if member == request.user.pk:
        return redirect("projects:list")
    return redirect("projects:project", found.pk)


@with_row(roles.visible_project)
def delete(request: Request, found: Project) -> HttpResponse:
    services.delete_project(user=request.user, project=found)
    return redirect("projects:list")


def _go(request: Request, url: str) -> HttpResponse:
    """htmx follows a redirect inside a fragment; HX-Redirect makes the page itself go there."""
    if request.htmx:
        return HttpResponse(status=204, headers={"HX-Redirect": url})
    return redirect(url)


def _context(request: Request, found: Project) -> dict[str, Any]:
    role = roles.role_of(request.user, found)
    entries = list(ProjectFile.objects.filter(project=found).select_related("file"))
    return {
        "project": found,
        "role": role,
        "editor": role in EDITING,
        "mine": role == Role.OWNER,
        "entries": entries,
        "unread": any(entry.file.unread for entry in entries),
        "readable": next((entry.file for entry in entries if entry.file.token_count), None) if entries[1:] else None,
        "tokens": sum(entry.file.token_count or 0 for entry in entries),
        "prompts": found.saved_prompts.all(),
    }


def _entries(request: Request, found: Project) -> HttpResponse:
    """After a change the page again; for a script only the rows, and the word that the meter may have changed."""
    if not request.htmx:
        return redirect("projects:project", found.pk)
    context = _context(request, found)
    response = render(request, "projects/_entries.html", context)
    if request.method == "POST" or not context["unread"]:
        response["HX-Trigger"] = "meterchange"
    return response
