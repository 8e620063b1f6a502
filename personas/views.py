"""The pages of personas. A view reads the request, calls one service or one page function, and renders."""

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.middleware import SignedInRequest as Request
from llm.errors import ProductError
from personas import pages, services, tools
from personas.forms import CountForm, PersonaPageForm
from personas.models import Persona


@login_required
@require_GET
def personas(request: Request) -> HttpResponse:
    context = {"section": "personas", "list": pages.persona_list(request.user)}
    return render(request, "personas/list.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def new(request: Request) -> HttpResponse:
    form = PersonaPageForm(request.POST if request.method == "POST" else None)
    if not (form.is_bound and form.is_valid()):
        return _form_page(request, form, None)
    reminder = form.cleaned_data["reminder"]
    made = services.create_persona(user=request.user, fields=form.persona_fields, reminder=reminder)
    return redirect("personas:persona", made.pk)


@login_required
@require_http_methods(["GET", "POST"])
def persona(request: Request, pk: UUID) -> HttpResponse:
    """The persona to read, or to edit for whoever may; a POST saves it."""
    found = services.visible_persona(request.user, pk)
    if request.method == "POST":
        services.require_owner(user=request.user, persona=found)
        return _save(request, found)
    if services.may_change(request.user, found):
        return _form_page(request, PersonaPageForm(instance=found), found)
    context = {"persona": found, "profile": pages.profile_words(found.budget_profile or services.default_profile())}
    return render(request, "personas/persona.html", {"section": "personas", **context})


def _save(request: Request, found: Persona) -> HttpResponse:
    form = PersonaPageForm(request.POST, instance=services.visible_persona(request.user, found.pk))
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
        return _form_page(request, _going_on(request.POST, found), found, meanwhile=True)
    return redirect("personas:persona", found.pk)


def _going_on(sent: QueryDict, found: Persona) -> PersonaPageForm:
    """The form with what was written, which can be saved over the state of now: the page has said that there is one."""
    data = sent.copy()
    data["tag"] = found.tag
    return PersonaPageForm(data, instance=found)


def _form_page(
    request: Request, form: PersonaPageForm, found: Persona | None, *, meanwhile: bool = False
) -> HttpResponse:
    written = form.is_bound and (form.is_valid() or form.errors)  # either way there are the data that were right
    chosen = form.cleaned_data.get("model") if written else form.instance.model
    context: dict[str, Any] = {
        "section": "personas",
        "form": form,
        "persona": found,
        "meanwhile": meanwhile,
        "count": pages.count(form["instructions"].value() or "", chosen),
        **pages.choices(form),
    }
    wrong = 412 if meanwhile else 400 if form.is_bound else 200
    return render(request, "personas/edit.html", context, status=wrong)


@login_required
@require_POST
def duplicate(request: Request, pk: UUID) -> HttpResponse:
    copy = services.duplicate_persona(user=request.user, persona=services.visible_persona(request.user, pk))
    return redirect("personas:persona", copy.pk)


@login_required
@require_POST
def count(request: Request) -> HttpResponse:
    """The tokens of instructions as they are being written: a fragment."""
    form = CountForm(request.POST)
    context: dict[str, Any] = {"errors": list(form.errors.values())}
    if form.is_valid():
        context = {"count": pages.count(form.cleaned_data["instructions"], form.cleaned_data["model"])}
    return render(request, "personas/_count.html", context)


@login_required
@require_GET
def server_tools(request: Request) -> HttpResponse:
    """What can be ticked of tool servers, after asking them: a fragment. `tools` are those ticked so far."""
    found = pages.server_tools(tools.offers(), request.GET.getlist("tools"))
    return render(request, "personas/_server_tools.html", {"servers": found})
