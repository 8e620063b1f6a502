"""Show the pages on which the first administrator sets up the workspace. Every step can be skipped or repeated."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypedDict

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts import people
from accounts.access.sessions import SignedInRequest as Request
from core.errors import ProductError
from core.net.site import site_origin
from core.requests import get_or_404
from core.sentences import NO_SENTENCE
from llm import model_facts
from llm.model_facts import describe_values
from llm.models import Model, Provider
from llm.services import is_chat_model, known_values, save_provider_form, set_default_model
from personas.services import create_persona
from workspace.models import Workspace
from workspace.models.settings import workspace_of
from workspace.services import set_setup
from workspace.setup import services
from workspace.setup.forms import ConnectForm, FirstPersonaForm, invitation

MAX_TICKED_MODELS = 3  # models; if a provider offers no more than these, all are ticked


def administrators(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Allow the view only to superusers, since the setup changes the whole workspace."""

    @wraps(view)
    def answer(request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_superuser:
            raise ProductError("staff_only", "Only an administrator can set the workspace up.", status=403)
        return view(request, *args, **kwargs)

    return answer


@administrators
@require_GET
def start(request: Request) -> HttpResponse:
    return _page(request, "start", {"bundled": services.bundled_model(), "providers": services.connected_providers()})


@administrators
@never_cache
@sensitive_post_parameters("new_api_key")
@require_http_methods(["GET", "POST"])
def provider(request: Request) -> HttpResponse:
    """Show the form of a provider. A POST stores it before listing its models, so a valid key is typed only once."""
    if request.method == "GET":
        pk = request.GET.get("of")
        row = get_or_404(Provider.objects.all(), pk, "provider") if pk else None
        return _page(request, "provider", {"form": ConnectForm(provider=row)})
    form = ConnectForm(request.POST)
    if not form.is_valid():
        return _page(request, "provider", {"form": form}, status=422)
    row = form.save(commit=False)
    row.enabled = True
    save_provider_form(user=request.user, provider=row, api_key=form.api_key)
    try:
        services.list_offered_models(row)
    except ProductError as problem:
        retry_form = ConnectForm({**request.POST.dict(), "of": str(row.pk)})  # the key is already stored
        retry_form.is_valid()
        return _page(request, "provider", {"form": retry_form, "problem": problem, "stored": row}, status=422)
    return redirect("setup:models_of", row.pk)


@administrators
@require_GET
def models(request: Request) -> HttpResponse:
    """Redirect to the models of the newest provider."""
    newest = services.connected_providers().first()
    return redirect("setup:models_of", newest.pk) if newest is not None else redirect("setup:provider")


@administrators
@require_http_methods(["GET", "POST"])
def models_of(request: Request, pk: Any) -> HttpResponse:
    row = get_or_404(Provider.objects.all(), pk, "provider")
    chosen = request.POST.getlist("model")
    typed = request.POST.get("other", "").strip()
    problem: ProductError | None = None
    if request.method == "POST":
        try:
            services.add_models(user=request.user, provider=row, names=[*chosen, *([typed] if typed else [])])
            return redirect("setup:default")
        except ProductError as error:
            problem = error
    offered, failure = _offers(row)
    offers = [offer for offer in offered if offer["answers"] or offer["added"]]
    if not chosen and len(offers) <= MAX_TICKED_MODELS:
        chosen = [offer["name"] for offer in offers]
    context = {
        "provider": row,
        "found": offers,
        "others": [offer["name"] for offer in offered if offer not in offers],
        "chosen": chosen,
        "typed": typed,
        "failure": failure,
        "problem": problem,
    }
    return _page(request, "models", context, status=problem.status if problem else 200)


class ModelOffer(TypedDict):
    """A model that a provider offers. `words`: its facts in words; `added`: whether the workspace has it.

    `answers`: it is for conversations, and not for embeddings or other work.
    """

    name: str
    added: bool
    words: str
    answers: bool


def _offers(row: Provider) -> tuple[list[ModelOffer], ProductError | None]:
    """Return the models that the provider offers, with their facts, or no models and the error."""
    try:
        names = services.list_offered_models(row)
        facts = model_facts.ask_provider(row, names).facts
    except ProductError as error:
        return [], error
    added = set(row.models.values_list("name", flat=True))
    models = [Model(provider=row, name=name, found=facts.get(name, {})) for name in names]
    return [
        {
            "name": model.name,
            "added": model.name in added,
            "words": describe_values(known_values(model)),
            "answers": is_chat_model(model),
        }
        for model in models
    ], None


@administrators
@require_http_methods(["GET", "POST"])
def default(request: Request) -> HttpResponse:
    usable = Model.objects.usable().order_by("provider__name", "name")
    if request.method == "POST":
        set_default_model(user=request.user, model=get_or_404(usable, request.POST.get("model"), "model"))
        return redirect("setup:persona")
    own = [row for row in usable if row.provider.base_url != settings.BUNDLED_MODEL_URL]
    current = next((row for row in usable if row.default), None)
    best = own[0] if own and current not in own else current
    return _page(request, "default", {"models": usable, "best": best})


@administrators
@require_http_methods(["GET", "POST"])
def persona(request: Request) -> HttpResponse:
    form = FirstPersonaForm(request.user, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        create_persona(user=request.user, fields=form.persona_fields)
        return redirect("setup:people")
    return _page(request, "persona", {"form": form}, status=422 if form.is_bound else 200)


@administrators
@never_cache
@require_http_methods(["GET", "POST"])
def invite(request: Request) -> HttpResponse:
    """Show the form of an invitation. A POST shows the invitation link, which cannot be shown again."""
    form = invitation(request.user, request.POST if request.method == "POST" else None)
    link = ""
    person = None
    mailed = False
    problem = NO_SENTENCE
    if form.is_bound and form.is_valid():
        person = form.save(commit=False)
        key = people.invite(user=request.user, person=person)
        link = site_origin(request) + reverse("welcome", args=[person.pk], query={"key": key})
        try:
            mailed = bool(people.mail_links([(person, link)]))
        except ProductError as error:
            problem = error.sentence
        form = invitation(request.user)
    days = settings.PASSWORD_RESET_TIMEOUT // 86_400
    context = {"form": form, "link": link, "invited": person, "days": days, "mailed": mailed, "problem": problem}
    return _page(request, "people", context, status=422 if form.is_bound else 200)


@administrators
@require_POST
def end_setup(request: Request) -> HttpResponse:
    """Complete or dismiss the setup. Afterwards only the menu of the admin links to it."""
    set_setup(user=request.user, state=Workspace.Setup.DONE)
    return redirect("chat:home")


def _page(request: HttpRequest, name: str, context: Mapping[str, object], *, status: int = 200) -> HttpResponse:
    """Return a page of the setup with the list of its steps."""
    steps = services.steps()
    names = [step.name for step in steps]
    number = names.index(name) + 1 if name in names else 0
    next_step = names[number] if number < len(names) else None
    frame = {
        "place": name,
        "steps": steps,
        "number": number,
        "next_url": reverse(f"setup:{next_step}") if next_step else reverse("setup:start"),
        "open": workspace_of(request).setup != Workspace.Setup.DONE,
        "heading": _("Set up the workspace"),
    }
    return render(request, f"setup/{name}.html", {**context, **frame}, status=status)
