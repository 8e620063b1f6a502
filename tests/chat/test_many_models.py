"""A workspace with hundreds of models: a page brings a few of them along, and the rest is fetched."""

import re
from uuid import uuid4

import pytest
from django.test import Client

from accounts.models import User
from chat.models import Conversation, Message
from llm.models import Model, Provider

pytestmark = pytest.mark.django_db

MANY = 40


@pytest.fixture
def models() -> list[Model]:
    """Return the models in the order in which they are offered."""
    provider = Provider.objects.create(name=f"a {uuid4().hex}")
    return Model.objects.bulk_create([Model(provider=provider, name=f"model {number:02}") for number in range(MANY)])


@pytest.fixture
def olga() -> User:
    return User.objects.create_user("olga")


@pytest.fixture
def client(olga: User) -> Client:
    browser = Client()
    browser.force_login(olga)
    return browser


def offered(client: Client, path: str) -> list[str]:
    """The names of the models in the sheet, in order."""
    response = client.get(path)
    assert response.status_code == 200, path
    return re.findall(r'data-name="([^"]*)"', response.content.decode())


def test_a_page_offers_the_first_and_the_one_that_is_chosen(client: Client, olga: User, models: list[Model]) -> None:
    place = Conversation.objects.create(owner=olga)
    last = models[-1]
    place.leaf = Message.objects.create(conversation=place, depth=0, role=Message.Role.ASSISTANT, model=last)
    place.save()
    names = offered(client, f"/c/{place.pk}/")
    assert names == [*(each.name for each in models[:12]), last.name]
    page = client.get(f"/c/{place.pk}/").content.decode()
    assert re.search(rf'value="{last.pk}"[^>]*checked', page)
    assert f"Show all {MANY} models" in page


def test_all_of_them_are_fetched_or_come_with_the_page_of_who_has_no_scripts(
    client: Client, olga: User, models: list[Model]
) -> None:
    names = [each.name for each in models]
    place = Conversation.objects.create(owner=olga)
    assert offered(client, "/models/") == names
    assert offered(client, "/?models=all") == names
    assert offered(client, f"/c/{place.pk}/?models=all") == names
    again = client.get("/models/?again").content.decode()
    assert all(name in again for name in names) and "Show all" not in again


def test_a_model_that_cannot_be_asked_is_not_among_them(client: Client, models: list[Model]) -> None:
    Model.objects.filter(pk=models[3].pk).update(enabled=False)
    assert models[3].name not in offered(client, "/models/")
