"""The pages of personas. A view reads the request, calls one service, and renders."""

from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access.rights import models_of, rights_of, search_asks
from accounts.access.sessions import SignedInRequest as Request
from accounts.models import May
from core.errors import ProductError
from core.permissions import has_right
from core.requests import with_row
from llm.models import Model, WebSearch
from personas import services, tools
from personas.forms import CountForm, PersonaPageForm
from personas.models import Persona, PersonaShare, SystemPrompt
from personas.sharing import views as sharing
from personas.sharing.roles import may_change, require_editor, visible_persona
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
        return _form_page(request, form, None)
    reminder = form.cleaned_data["reminder"]
    made = services.create_persona(user=request.user, fields=form.persona_fields, reminder=reminder)
    return redirect("personas:persona", made.pk)


@with_row(visible_persona, "GET", "POST")
def persona(request: Request, found: Persona) -> HttpResponse:
    """The persona to read, or to edit for whoever may; a POST saves it."""
    if request.method == "POST":
        require_editor(user=request.user, persona=found)
        return _save(request, found)
    if may_change(request.user, found):
        return _form_page(request, PersonaPageForm(instance=found, user=request.user), found)
    profile = found.budget_profile or services.default_profile()
    offers = tools.listed_last(rights_of(request.user).tool_servers)
    too_many = tools.too_many(offers, found.tools, _model_of(request, found.model))
    asks = "web_search" in found.tools and search_asks(request.user, workspace_of(request))
    context = {"section": "personas", "persona": found, "profile": profile, "too_many": too_many, "search_asks": asks}
    context |= sharing.context(request, found)
    return render(request, "personas/persona.html", context)


def _save(request: Request, found: Persona) -> HttpResponse:
    form = PersonaPageForm(request.POST, instance=visible_persona(request.user, found.pk), user=request.user)
    if not form.is_valid():
        return _form_page(request, form, found)
    based_on = {form.cleaned_data["tag"]} if form.cleaned_data["tag"] else None
    try:
        services.update_persona(
            user=request.user,
            persona=found,
            fields=form.persona_fields,
            reminder=form.cleaned_data["reminder"],
            based_on=based_on,
        )
    except ProductError as error:
        if error.code != "changed_meanwhile":
            raise
        return _form_page(request, _going_on(request, found), found, meanwhile=True)
    return redirect("personas:persona", found.pk)


def _going_on(request: Request, found: Persona) -> PersonaPageForm:
    """The form with what was written, which can be saved over the state of now: the page has said that there is one."""
    data = request.POST.copy()
    data["tag"] = found.tag
    return PersonaPageForm(data, instance=found, user=request.user)


def _form_page(
    request: Request, form: PersonaPageForm, found: Persona | None, *, meanwhile: bool = False
) -> HttpResponse:
    written = form.is_bound and (form.is_valid() or form.errors)  # either way there are the data that were right
    model = form.cleaned_data.get("model") if written else form.instance.model
    chosen = [str(name) for name in form["tools"].value() or ()]
    rights = rights_of(request.user)
    context: dict[str, Any] = {
        "section": "personas",
        "form": form,
        "persona": found,
        "meanwhile": meanwhile,
        "count": services.measured(form["instructions"].value() or "", model, user=request.user),
        "system_prompt": SystemPrompt.objects.filter(active=True).first(),
        "default_profile": services.default_profile(),
        "searching": WebSearch.objects.filter(active=True).exists(),
        "chosen": chosen,
        "own_tools": [
            (name, words)
            for name, words in tools.own_tools(search_asks=search_asks(request.user, workspace_of(request)))
            if words and (name in chosen or name not in tools.WEB or May.WEB in rights.may)
        ],
        "publishing": has_right(request.user, "change", Persona),  # whatever their groups say
        "kept": [name for name in chosen if tools.OWN.get(name) == ""],
        "servers": tools.tickable(map(tools.Offer, tools.server_names(rights.tool_servers)), chosen),
        "too_many": tools.too_many(tools.listed_last(rights.tool_servers), chosen, _model_of(request, model)),
    }
    if found is not None:
        context |= sharing.context(request, found)
    wrong = 412 if meanwhile else 400 if form.is_bound else 200
    return render(request, "personas/edit.html", context, status=wrong)


@with_row(visible_persona)
def duplicate(request: Request, found: Persona) -> HttpResponse:
    copy = services.duplicate_persona(user=request.user, persona=found)
    return redirect("personas:persona", copy.pk)


@require_POST
def count(request: Request) -> HttpResponse:
    """The tokens of instructions as they are being written: a fragment."""
    form = CountForm(request.user, request.POST)
    context: dict[str, Any] = {"errors": list(form.errors.values())}
    if form.is_valid():
        context = {
            "count": services.measured(form.cleaned_data["instructions"], form.cleaned_data["model"], user=request.user)
        }
    return render(request, "personas/_count.html", context)


@require_GET
def server_tools(request: Request) -> HttpResponse:
    """What can be ticked of tool servers, after asking them: a fragment. `tools` are those ticked so far, `model` is
    the one chosen for the persona."""
    chosen, rights = request.GET.getlist("tools"), rights_of(request.user)
    offers = tools.offers(rights.tool_servers)
    chosen_model = _chosen_model(request)
    context = {
        "servers": tools.tickable(offers, chosen),
        "chosen": chosen,
        "too_many": tools.too_many(offers, chosen, _model_of(request, chosen_model)),
    }
    return render(request, "personas/_server_tools.html", context)


def _chosen_model(request: Request) -> Model | None:
    """The model that the form names; None where it names none, or none that this person may use."""
    try:
        pk = UUID(request.GET.get("model", ""))
    except ValueError:
        return None
    return models_of(request.user).filter(pk=pk).first()


def _model_of(request: Request, chosen: Model | None) -> Model | None:
    """The model that a persona with this choice answers with; None where there is none."""
    try:
        return chosen or services.model_for(None, request.user)
    except ProductError:
        return None
