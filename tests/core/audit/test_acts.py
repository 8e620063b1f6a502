"""Every act is recorded with its person, way and address, and without secrets and private texts."""

from time import time

import pytest
from django.core.cache import cache

from accounts.access.sign_ins import MINUTE
from accounts.models import User
from core.audit.models import Entry
from core.audit.origin import How
from tests.core.audit import acts_of_people, acts_of_staff
from tests.core.audit.acts import ACTS, Act
from tests.core.audit.world import AGENT, PASSWORD, SECRET, TEXT, World, texts_of

__all__ = ["acts_of_people", "acts_of_staff"]  # what is in them is in ACTS once they are imported
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_refusals_of_other_tests() -> None:
    """The audit lists few refusals a minute, and tests of sign-in make many."""
    minute = int(time() // MINUTE)
    cache.delete_many([f"audit:refused:{minute}", f"audit:refused:{minute + 1}"])


@pytest.fixture
def world() -> World:
    admin = User.objects.create_superuser("admin", password=PASSWORD)
    return World(admin, User.objects.create_user("olga", password=PASSWORD))


@pytest.mark.parametrize(("action", "how", "does"), ACTS, ids=[f"{action}-{how}" for action, how, _ in ACTS])
def test_an_act_is_recorded(world: World, action: str, how: How, does: Act) -> None:
    before = set(Entry.objects.values_list("pk", flat=True))
    does(world)
    recorded = list(Entry.objects.exclude(pk__in=before))
    entries = [entry for entry in recorded if entry.action == action and entry.how == how]
    assert entries, [(entry.action, entry.how) for entry in recorded]
    actor = {How.PAGE: "olga", How.COMMAND: "operator", How.SYSTEM: ""}.get(how, "admin")
    expected = "" if action in ("person.sign_in_failed", "person.signed_out_by_provider") else actor
    ids = {"olga": world.olga.pk, "admin": world.admin.pk}
    for entry in entries:
        assert (entry.actor_name, entry.actor_id) == (expected, ids.get(expected))
        assert (entry.token_id == world.token_row.pk) == (how == How.API)
        assert (entry.address == AGENT) == bool(entry.request_id) == (how in (How.PAGE, How.API, How.ADMIN))
    assert SECRET not in texts_of(recorded) and TEXT not in texts_of(recorded) and PASSWORD not in texts_of(recorded)


def test_there_are_sixty_of_them() -> None:
    assert len({(action, how) for action, how, _ in ACTS}) >= 60
    assert len({action for action, _, _ in ACTS}) >= 60
