"""Models for people: their own names, the order of the list, favourites, and those that are not offered."""

from uuid import uuid4

import pytest
from django.test import Client

from accounts.access.offered_models import offered_models, set_favourite
from accounts.models import User
from chat.models.conversation_state import ChatScope
from chat.web.messages import choices
from core.errors import NotFound
from llm.models import Model, Provider
from personas.models import Persona

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider() -> Provider:
    return Provider.objects.create(name="Gateway", base_url="http://127.0.0.1:9/v1")


@pytest.fixture
def anna() -> User:
    return User.objects.create_user("anna")


def labels(user: User) -> list[str]:
    return [model.label for model in offered_models(user)]


def test_people_get_the_admins_names_in_the_admins_order(provider: Provider, anna: User) -> None:
    Model.objects.create(provider=provider, name="m-2407", display_name="Our lawyer", order=1)
    Model.objects.create(provider=provider, name="z-fast")
    Model.objects.create(provider=provider, name="a-slow", display_name="Writer")
    assert labels(anna) == ["Our lawyer", "Writer", "z-fast"]


def test_favourites_come_first_for_whoever_has_marked_them(provider: Provider, anna: User) -> None:
    first, second = (Model.objects.create(provider=provider, name=name) for name in ("first", "second"))
    assert set_favourite(user=anna, model=second.pk, favourite=True).favourite  # type: ignore[attr-defined]  # annotated
    set_favourite(user=anna, model=str(second.pk), favourite=True)
    assert labels(anna) == ["second", "first"]
    assert labels(User.objects.create_user("otto")) == ["first", "second"]
    set_favourite(user=anna, model=second.pk, favourite=False)
    assert labels(anna) == ["first", "second"]
    Model.objects.filter(pk=first.pk).update(enabled=False)
    for unknown in (first.pk, uuid4(), "nothing"):
        with pytest.raises(NotFound):
            set_favourite(user=anna, model=unknown, favourite=True)


def test_a_hidden_model_and_one_that_only_embeds_are_not_offered_but_go_on_where_they_are_chosen(
    provider: Provider, anna: User
) -> None:
    Model.objects.create(provider=provider, name="open", default=True)
    hidden = Model.objects.create(provider=provider, name="old", hidden=True)
    Model.objects.create(provider=provider, name="vectors", found={"chat": False})
    assert labels(anna) == ["open"]
    persona = Persona.objects.create(owner=anna, name="Archivist", model=hidden)
    shown = choices(anna, ChatScope(persona=persona), all_models=False)
    assert shown["chosen_model"] == hidden and [each.name for each in shown["models"]] == ["old", "open"]


def test_the_picker_shows_name_purpose_and_star_and_the_api_says_the_same(provider: Provider, anna: User) -> None:
    fields = {"display_name": "Our lawyer", "description": "Contracts, slowly.", "icon": "leaf"}
    model = Model.objects.create(provider=provider, name="m-2407", default=True, **fields)
    client = Client()
    client.force_login(anna)
    page = client.get("/").content.decode()
    assert "Our lawyer" in page and "Contracts, slowly." in page and "#leaf" in page
    answer = client.post(f"/models/{model.pk}/favourite/", {"favourite": "true"}).content.decode()
    assert 'aria-pressed="true"' in answer
    row = client.get(f"/api/v1/models/{model.pk}/").json()
    assert {name: row[name] for name in ("name", "label", "description", "icon", "hidden", "favourite")} == {
        "name": "m-2407", "label": "Our lawyer", "description": "Contracts, slowly.", "icon": "leaf",
        "hidden": False, "favourite": True,
    }  # fmt: skip
    assert client.delete(f"/api/v1/models/{model.pk}/favourite/").status_code == 204
    assert client.post(f"/api/v1/models/{model.pk}/favourite/").json()["favourite"] is True
    assert (
        'aria-pressed="false"' in client.post(f"/models/{model.pk}/favourite/", {"favourite": "false"}).content.decode()
    )
