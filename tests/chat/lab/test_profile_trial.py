"""Trials of a budget profile on real conversations, beside its form."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from accounts.models import User
from chat.lab.profile_trial import TRIALS, run_trials
from chat.models import Conversation, Message
from llm.models import Model, Provider
from personas.models import BudgetProfile

pytestmark = pytest.mark.django_db
ADDRESS = reverse("admin:personas_budgetprofile_conversations")


@pytest.fixture
def model() -> Model:
    provider = Provider.objects.create(name="P", base_url="http://127.0.0.1:9")
    return Model.objects.create(provider=provider, name="big", context_window=8_000, tools=False, default=True)


def talk(owner: User, messages: int, text: str = "a private matter ") -> Conversation:
    """A conversation of as many messages of about 300 tokens."""
    place = Conversation.objects.create(owner=owner, title="A private matter")
    leaf = None
    for number in range(messages):
        leaf = Message.objects.create(
            conversation=place,
            parent=leaf,
            depth=number,
            role="assistant" if number % 2 else "user",
            parts=[{"type": "text", "text": text * 100}],
        )
    Conversation.objects.filter(pk=place.pk).update(leaf=leaf)
    return place


def typed(**changes: Any) -> dict[str, Any]:
    names = [field.name for field in BudgetProfile._meta.fields if field.name not in ("id", "default")]
    form = {name: getattr(BudgetProfile(), name) for name in names} | {"name": "Mine"} | changes
    return {name: "" if value is None else value for name, value in form.items() if value is not False}


def test_the_longest_of_the_newest_are_planned_under_both(admin_user: User, model: Model) -> None:
    places = [talk(User.objects.create_user(f"p{number}"), number) for number in (2, 4, 6, 20)]
    roomy, tight = run_trials(BudgetProfile(name="a")), run_trials(BudgetProfile(name="b", window=3_000))
    assert [trial.conversation for trial in tight] == [place.pk for place in reversed(places[1:])]
    assert len(tight) == TRIALS
    longest = tight[0]
    assert (longest.now, longest.messages) == (roomy[0].then, 20)
    assert (longest.now.sent, longest.now.left_out) == (20, 0)
    assert longest.then.left_out > 0 and longest.then.sent + longest.then.left_out == 20
    assert longest.then.used <= longest.then.limit < longest.now.limit
    refused = run_trials(BudgetProfile(name="c", window=1_100))[0].then
    assert refused.error == "" or refused.sent == 0


def test_it_follows_the_fields_and_shows_no_word_of_anybody(admin_client: Client, model: Model) -> None:
    person = User.objects.create_user("olga")
    place = talk(person, 20)
    page = admin_client.get(reverse("admin:personas_budgetprofile_add")).content.decode()
    assert f'hx-post="{ADDRESS}' in page
    shown = admin_client.post(ADDRESS, typed(window=3_000, name="")).content.decode()
    assert "20 messages of olga with big" in shown and str(place.pk) in shown
    assert re.search(r"messages sent\s*</th>\s*<td>20</td>\s*<td>[1-9]</td>", shown)
    assert "private matter" not in shown
    assert (
        "The counts appear when the numbers are valid" in admin_client.post(ADDRESS, typed(window=100)).content.decode()
    )


def test_it_takes_the_right_to_see_conversations(client: Client, model: Model) -> None:
    talk(User.objects.create_user("olga"), 4)
    staff = User.objects.create_user("staff", is_staff=True)
    profile = BudgetProfile.objects.create(name="Stored", window=2_000)
    staff.user_permissions.set(Permission.objects.filter(codename="view_budgetprofile"))
    client.force_login(staff)
    page = client.get(reverse("admin:personas_budgetprofile_change", args=[profile.pk])).content.decode()
    assert ADDRESS not in page
    assert client.post(ADDRESS, typed()).status_code == 403
    staff.user_permissions.add(Permission.objects.get(codename="view_conversation"))
    shown = client.post(f"{ADDRESS}?profile={profile.pk}").content.decode()
    assert "4 messages of olga" in shown


def test_without_a_conversation_or_a_model_it_says_so(admin_client: Client) -> None:
    assert "no conversation to count yet" in admin_client.post(ADDRESS, typed()).content.decode()
    talk(User.objects.create_user("olga"), 2)
    assert "no conversation to count yet" in admin_client.post(ADDRESS, typed()).content.decode()
