"""The pages of personas. A view reads the request, calls one service, and renders."""

from uuid import UUID

from django.db.models import Exists, OuterRef, Q
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access.rights import models_of, rights_of, search_asks
from accounts.access.sessions import SignedInRequest as Request
from accounts.models import Right
from core.errors import ProductError
from core.permissions import has_right
from core.requests import with_row
from llm.models import Model, WebSearch
from personas import services, tools
from personas.forms import CountForm, PersonaPageForm
from personas.models import Persona, PersonaShare, SystemPrompt
from personas.sharing import views as sharing
from personas.sharing.roles import is_editor, require_editor, visible_persona
from workspace.models.settings import workspace_of


@require_GET
def personas(request: Request) -> HttpResponse:
    shared = Exists(PersonaShare.objects.filter(persona=OuterRef("pk"))) | Q(visibility=Persona.Visibility.WORKSPACE)
    rows = Persona.objects.visible_to(request.user).annotate(shared=shared).select_related("owner", "model")
    rows = rows.defer("instructions")
    mine = [each for each in rows if each.owner_id == request.user.pk]
    others = [each for each in rows if each.owner_id != request.user.pk]
    return render(request, "personas/list.html", {"section": "personas", "mine": mine, "others": others})


@require_http_methods(["GET", "POST"])
def new(request: Request) -> HttpResponse:
    data = request.POST if request.method == "POST" else None
    form = PersonaPageForm(data, instance=Persona(owner=request.user), user=request.user)
    if not (form.is_bound and form.is_valid()):
        return _render_form(request, form, None)
    reminder = form.cleaned_data["reminder"]
    created = services.create_persona(user=request.user, fields=form.persona_fields, reminder=reminder)
    return redirect("personas:persona", created.pk)


@with_row(visible_persona, "GET", "POST")
def persona(request: Request, row: Persona) -> HttpResponse:
    """Show the persona, or its form to users who may edit it. A POST saves the form."""
    if request.method == "POST":
        require_editor(user=request.user, persona=row)
        return _save(request, row)
    if is_editor(request.user, row):
        return _render_form(request, PersonaPageForm(instance=row, user=request.user), row)
    offers = tools.cached_offers(rights_of(request.user).tool_servers, person=request.user.pk)
    context = {
        "section": "personas",
        "persona": row,
        "profile": row.budget_profile or services.default_profile(),
        "too_many": tools.excess_warning(offers, row.tools, _answering_model(request, row.model)),
        "search_asks": "web_search" in row.tools and search_asks(request.user, workspace_of(request)),
        **sharing.shares_context(request, row),
    }
    return render(request, "personas/persona.html", context)


def _save(request: Request, row: Persona) -> HttpResponse:
    form = PersonaPageForm(request.POST, instance=visible_persona(request.user, row.pk), user=request.user)
    if not form.is_valid():
        return _render_form(request, form, row)
    based_on = {form.cleaned_data["tag"]} if form.cleaned_data["tag"] else None
    try:
        services.update_persona(
            user=request.user,
            persona=row,
            fields=form.persona_fields,
            reminder=form.cleaned_data["reminder"],
            based_on=based_on,
        )
    except ProductError as error:
        if error.code != "changed_meanwhile":
            raise
        return _render_form(request, _form_over_new_state(request, row), row, meanwhile=True)
    return redirect("personas:persona", row.pk)


def _form_over_new_state(request: Request, row: Persona) -> PersonaPageForm:
    """Return the posted form with the current tag, so that a second save replaces the other change.

    The page tells the user about that change.
    """
    data = request.POST.copy()
    data["tag"] = row.tag
    return PersonaPageForm(data, instance=row, user=request.user)


def _render_form(
    request: Request, form: PersonaPageForm, row: Persona | None, *, meanwhile: bool = False
) -> HttpResponse:
    has_cleaned_data = form.is_bound and (
        form.is_valid() or form.errors
    )  # `cleaned_data` has at least the valid fields
    model = form.cleaned_data.get("model") if has_cleaned_data else form.instance.model
    chosen = [str(name) for name in form["tools"].value() or ()]
    rights = rights_of(request.user)
    context = {
        "section": "personas",
        "form": form,
        "persona": row,
        "meanwhile": meanwhile,
        "fine_tuned": form.fine_tuned,
        "count": services.measure_text(form["instructions"].value() or "", model, user=request.user),
        "system_prompt": SystemPrompt.objects.filter(active=True).first(),
        "default_profile": services.default_profile(),
        "searching": WebSearch.objects.filter(active=True).exists(),
        "chosen": chosen,
        "own_tools": [
            (name, words)
            for name, words in tools.own_tools(search_asks=search_asks(request.user, workspace_of(request)))
            if words and (name in chosen or name not in tools.WEB_TOOLS or Right.WEB in rights.may)
        ],
        "publishing": has_right(request.user, "change", Persona),  # they may publish without a group that grants it
        "kept": [name for name in chosen if tools.OWN_TOOLS.get(name) == ""],
        "servers": tools.tool_choices(map(tools.ToolOffer, tools.server_names(rights.tool_servers)), chosen),
        "too_many": tools.excess_warning(
            tools.cached_offers(rights.tool_servers, person=request.user.pk), chosen, _answering_model(request, model)
        ),
    }
    if row is not None:
        context |= sharing.shares_context(request, row)
    status = 412 if meanwhile else 400 if form.is_bound else 200
    return render(request, "personas/edit.html", context, status=status)


@with_row(visible_persona)
def duplicate(request: Request, row: Persona) -> HttpResponse:
    duplicated = services.duplicate_persona(user=request.user, persona=row)
    return redirect("personas:persona", duplicated.pk)


@require_POST
def count(request: Request) -> HttpResponse:
    """Return a fragment with the number of tokens in instructions that are not saved yet."""
    form = CountForm(request.user, request.POST)
    if not form.is_valid():
        return render(request, "personas/_count.html", {"errors": list(form.errors.values())})
    text = form.cleaned_data["instructions"]
    size = services.measure_text(text, form.cleaned_data["model"], user=request.user)
    return render(request, "personas/_count.html", {"count": size})


@require_GET
def server_tools(request: Request) -> HttpResponse:
    """Ask the tool servers, and return a fragment with their checkboxes.

    Query: `tools` are the names ticked so far, `model` is the model chosen for the persona.
    """
    chosen = request.GET.getlist("tools")
    rights = rights_of(request.user)
    offers = tools.query_servers(rights.tool_servers, person=request.user.pk)
    chosen_model = _chosen_model(request)
    context = {
        "servers": tools.tool_choices(offers, chosen),
        "chosen": chosen,
        "too_many": tools.excess_warning(offers, chosen, _answering_model(request, chosen_model)),
    }
    return render(request, "personas/_server_tools.html", context)


def _chosen_model(request: Request) -> Model | None:
    """Return the model chosen in the form; None if there is none, or the user may not use it."""
    try:
        pk = UUID(request.GET.get("model", ""))
    except ValueError:
        return None
    return models_of(request.user).filter(pk=pk).first()


def _answering_model(request: Request, chosen: Model | None) -> Model | None:
    """Return the model that answers for a persona with this choice. None if no model can be used."""
    try:
        return chosen or services.model_for(None, request.user)
    except ProductError:
        return None
