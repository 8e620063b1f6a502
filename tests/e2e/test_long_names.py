"""No page is wider than a small phone, even if every name has the greatest length and no place to break."""

from uuid import uuid4

import pytest
from django.contrib import admin
from django.db.models import CharField
from django.db.models import Model as Row
from django.urls import reverse
from playwright.sync_api import ViewportSize

from accounts.models import ApiToken, User
from chat.ledger.models import ModelCall
from chat.models import Conversation, Share
from files.models import File
from llm.models import Model, Provider
from personas.models import BudgetProfile, Persona
from projects.models import Project
from projects.planner.models import Task
from projects.saved_prompts.models import SavedPrompt
from tests.conftest import Person
from tests.e2e.conftest import HAND, TOO_WIDE, OpenBrowser, in_thread
from tests.house import PROFILE, House
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]

SMALL: ViewportSize = {"width": 320, "height": 640}


def long_name() -> str:
    return 3 * uuid4().hex


def own_model(product: Product) -> tuple[str, str]:
    """Create a model, its provider and a profile with long names, and return their ids."""
    name = long_name()
    product.model.set_script(name, {"text": "Yes."})
    scripted = Provider.objects.get(name="Scripted")
    provider = Provider.objects.create(name=long_name(), kind=scripted.kind, base_url=scripted.base_url)
    model = Model.objects.create(provider=provider, name=f"scripted:{name}", context_window=64_000, tools=True)
    return str(model.pk), str(BudgetProfile.objects.create(**{**PROFILE, "name": long_name()}).pk)


def most(kind: type[Row], name: str) -> int | None:
    """How many characters the field takes."""
    field = kind._meta.get_field(name)
    return field.max_length if isinstance(field, CharField) else None


def lengthen(user: User) -> None:
    """Give the person and all their rows the longest names."""
    User.objects.filter(pk=user.pk).update(is_superuser=True, is_staff=True)
    named = {
        User.objects.filter(pk=user.pk): ["username"],
        Conversation.objects.filter(owner=user): ["title"],
        Share.objects.filter(conversation__owner=user): ["title"],
        Task.objects.filter(owner=user): ["title"],
        ApiToken.objects.filter(user=user): ["name"],
        File.objects.filter(owner=user): ["name"],
        Persona.objects.filter(owner=user): ["name"],
        Project.objects.filter(owner=user): ["name"],
        SavedPrompt.objects.filter(owner=user): ["name"],
        ModelCall.objects.filter(person=user): ["model_name", "provider_name"],
    }
    for rows, names in named.items():
        for pk in rows.values_list("pk", flat=True):
            rows.filter(pk=pk).update(**{name: long_name()[: most(rows.model, name)] for name in names})


def newest() -> set[tuple[str, object]]:
    """The newest row of each kind in the admin: the beginning of its pages' names, and its key."""
    rows = {place(kind): kind._default_manager.order_by("-pk").first() for kind in admin.site._registry}
    return {(name, row.pk) for name, row in rows.items() if row is not None}


def place(kind: type[Row]) -> str:
    return f"admin:{kind._meta.app_label}_{kind._meta.model_name}"


def in_the_admin(rows: set[tuple[str, object]]) -> list[str]:
    """Every list and empty form, and the pages of these rows."""
    names = [f"{place(kind)}_{page}" for kind in admin.site._registry for page in ("changelist", "add")]
    own = [reverse(f"{name}_{page}", args=[pk]) for name, pk in sorted(rows, key=str) for page in ("change", "delete")]
    return [reverse("admin:index"), *map(reverse, names), *own]


def test_long_names_fit_a_small_phone(visit: OpenBrowser, product: Product, person: Person) -> None:
    opened = visit(**{**HAND, "viewport": SMALL})
    opened.expected += ["403", "404"]  # not every row is made or deleted by hand
    page = opened.sign_in()
    before = in_thread(newest)  # what other tests have made has names of its own
    model, profile = in_thread(lambda: own_model(product))
    name = in_thread(lambda: Model.objects.get(pk=model).name.partition(":")[2])
    house = House(person.caller, lambda script: product.model.set_script(name, script), model, profile)
    paths = [*house.furnish().values()]
    in_thread(lambda: lengthen(person.user))
    too_wide = {}
    for path in [*paths, *in_the_admin(in_thread(newest) - before)]:
        page.goto(product.url + path)
        assert "/login/?" not in page.url, path  # a page that asks who one is would fit, too
        wide = page.evaluate(TOO_WIDE, SMALL["width"])
        if wide:
            too_wide[path] = wide
    assert too_wide == {}
