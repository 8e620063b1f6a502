import pytest
from django.test import Client

from accounts.models import User
from projects.planner.rules import Actor


@pytest.fixture
def actor(db: None) -> Actor:
    return Actor(User.objects.create_user("wendy", timezone="UTC"))


@pytest.fixture
def model(actor: Actor) -> Actor:
    return Actor(actor.user, model="small-model")


@pytest.fixture
def browser(actor: Actor) -> Client:
    client = Client()
    client.force_login(actor.user)
    return client
