"""Change projects, and serve parts of their page. The page itself has a composer: `chat.web.project_page`."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import Role
from core.requests import choice, with_row
from core.sentences import Sentence
from files.api import parse_position
from files.services import visible_file
from files.views import repetition_notices, upload
from personas.models import Persona
from projects import invitations, pages, services
from projects import members as membership
from projects.models import Invitation, Project, roles
from projects.sample import create_sample_project


@require_POST
def sample(request: Request) -> HttpResponse:
    """Create the user's copy of the sample project, and open it."""
    return redirect("chat:project", create_sample_project(user=request.user).pk)


@require_http_methods(["GET", "POST"])
def projects(request: Request) -> HttpResponse:
    if request.method == "POST":
        created = services.create_project(user=request.user, fields={"name": request.POST.get("name", "")})
        return redirect("chat:project", created.pk)
    rows = Project.objects.visible_to(request.user).select_related("owner")
    context = {"section": "projects", "projects": rows, "invitations": _received(request)}
    return render(request, "projects/list.html", context)


@require_safe
def received(request: Request) -> HttpResponse:
    """Return a fragment with the invitations, for a page that is already open."""
    return render(request, "projects/_invitations.html", {"invitations": _received(request)})


@require_safe
def invited(request: Request) -> HttpResponse:
    """Return a fragment with the number of invitations, for the sidebar."""
    return render(request, "projects/_invited.html")


def _received(request: Request) -> QuerySet[Invitation]:
    return Invitation.objects.visible_to(request.user).select_related("project__owner")


@with_row(invitations.get_received)
def accept(request: Request, invitation: Invitation) -> HttpResponse:
    return redirect("chat:project", invitations.accept(user=request.user, invitation=invitation).pk)


@with_row(invitations.get_received)
def decline(request: Request, invitation: Invitation) -> HttpResponse:
    invitations.decline(user=request.user, invitation=invitation)
    return redirect("projects:list")


@with_row(roles.visible_project)
def save(request: Request, row: Project) -> HttpResponse:
    """Save the name, the face, the instructions, the persona, and what models may do."""
    roles.require_editor(user=request.user, project=row)
    based_on = parse_position(request.POST, "version")
    services.update_project(user=request.user, project=row, fields=_fields(request, row), based_on=based_on)
    return _redirect(request, reverse("chat:project", args=[row.pk]))


def _fields(request: Request, row: Project) -> services.ProjectFields:
    fields: services.ProjectFields = {}
    if "name" in request.POST:
        fields["name"] = request.POST["name"]
    if "instructions" in request.POST:
        fields["instructions"] = request.POST["instructions"]
    if "icon" in request.POST:
        fields["icon"] = request.POST["icon"]
    if "colour" in request.POST:
        fields["colour"] = request.POST["colour"]
    if "persona" in request.POST:
        visible = Persona.objects.visible_to(request.user)
        fields["persona"] = choice(visible, row.persona, request.POST["persona"], "persona")
    if "web" in request.POST:  # browsers do not send an unticked box, so the form has a hidden field of this name
        fields["web"] = "on" in request.POST.getlist("web")
    if "findable" in request.POST:  # with a hidden field, too
        fields["findable"] = "on" in request.POST.getlist("findable")
    return fields


@with_row(roles.visible_project, "GET")
def search(request: Request, row: Project) -> HttpResponse:
    """Return a fragment with the results, for a page that is already open."""
    context = {"project": row, **pages.search_context(request.user, row, request.GET.get("q", ""))}
    return render(request, "projects/_results.html", context)


@with_row(roles.visible_project, "GET")
def choose(request: Request, row: Project) -> HttpResponse:
    """Show the user's files, to add some to the project: a fragment, or a page."""
    roles.require_editor(user=request.user, project=row)
    picker = pages.file_picker(request.user, row, request.GET.get("q", ""))
    context = {"project": row, "picker": picker, "section": "projects"}
    return render(request, "projects/_choose.html" if request.htmx else "projects/choose.html", context)


@with_row(roles.visible_project, "GET", "POST")
def files(request: Request, row: Project) -> HttpResponse:
    """Show the rows of the project's files. A POST adds one of the user's files."""
    if request.method == "POST":
        roles.require_editor(user=request.user, project=row)
        file = visible_file(request.user, request.POST.get("file", ""))
        services.add_file(user=request.user, project=row, file=file)
    return _show_entries(request, row)


@with_row(roles.visible_project)
def upload_files(request: Request, row: Project) -> HttpResponse:
    """Upload files, and add them to the project."""
    roles.require_editor(user=request.user, project=row)
    files = upload(request)
    for file in files:
        services.add_file(user=request.user, project=row, file=file)
    return _show_entries(request, row, repetition_notices(files))


@with_row(roles.visible_project)
def change_file(request: Request, row: Project, file: UUID) -> HttpResponse:
    """Pin (`pinned`: true or false) or move (`position`) a file."""
    pinned = {"true": True, "false": False}.get(request.POST.get("pinned", ""))
    position = parse_position(request.POST, "position")
    services.change_file(user=request.user, project=row, file=file, pinned=pinned, position=position)
    return _show_entries(request, row)


@with_row(roles.visible_project)
def remove_file(request: Request, row: Project, file: UUID) -> HttpResponse:
    services.remove_file(user=request.user, project=row, file=file)
    return _show_entries(request, row)


@with_row(roles.visible_project, "GET", "POST")
def members(request: Request, row: Project) -> HttpResponse:
    """Return a fragment with the members and invitations, for a page that is already open. A POST invites a user."""
    if request.method == "POST":
        invitations.invite(
            user=request.user,
            project=row,
            username=request.POST.get("username", ""),
            role=request.POST.get("role", Role.READER),
        )
        return _redirect_to_members(row)
    mine = roles.get_role(request.user, row) == Role.OWNER
    context = {"project": row, "mine": mine, **pages.people_context(request.user, row, mine=mine)}
    return render(request, "projects/_members.html", context)


@with_row(roles.visible_project)
def add_group(request: Request, row: Project) -> HttpResponse:
    """Share the project with a group."""
    role = request.POST.get("role", Role.READER)
    membership.add_group(user=request.user, project=row, group=request.POST.get("group", ""), role=role)
    return _redirect_to_members(row)


@with_row(roles.visible_project)
def hand_over(request: Request, row: Project, member: UUID) -> HttpResponse:
    membership.hand_over(user=request.user, project=row, member=member)
    return _redirect_to_members(row)


@with_row(roles.visible_project)
def withdraw(request: Request, row: Project, invitation: UUID) -> HttpResponse:
    invitations.withdraw(user=request.user, project=row, invitation=invitation)
    return _redirect_to_members(row)


@with_row(roles.visible_project)
def change_member(request: Request, row: Project, member: UUID) -> HttpResponse:
    role = request.POST.get("role", "")
    membership.change_role(user=request.user, project=row, member=member, role=role)
    return _redirect_to_members(row)


@with_row(roles.visible_project)
def remove_member(request: Request, row: Project, member: UUID) -> HttpResponse:
    membership.remove_member(user=request.user, project=row, member=member)
    if member == request.user.pk:
        return redirect("projects:list")
    return _redirect_to_members(row)


@with_row(roles.visible_project)
def delete(request: Request, row: Project) -> HttpResponse:
    services.delete_project(user=request.user, project=row)
    return redirect("projects:list")


def _redirect_to_members(row: Project) -> HttpResponse:
    """Redirect to the members on the page of the project. The URL fragment makes a browser open that part."""
    return redirect(f"{reverse('chat:project', args=[row.pk])}#members")


def _redirect(request: Request, url: str) -> HttpResponse:
    """Redirect. For htmx, HX-Redirect loads the whole page; htmx would put a followed redirect into a fragment."""
    if request.htmx:
        return HttpResponse(status=204, headers={"HX-Redirect": url})
    return redirect(url)


def _show_entries(request: Request, row: Project, repeated: Sequence[Sentence] = ()) -> HttpResponse:
    """Show the project after a change. A script gets only the rows, with an event for the prompt's meter.

    `repeated`: sentences about uploaded files that the user had already.
    """
    if not request.htmx:
        return redirect("chat:project", row.pk)
    context = pages.files_context(row, roles.get_role(request.user, row))
    response = render(request, "projects/_entries.html", {**context, "repeated": repeated})
    if request.method == "POST" or not context["unread"]:
        response["HX-Trigger"] = "meterchange"
    return response
