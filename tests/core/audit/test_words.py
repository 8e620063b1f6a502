"""Names of acts in words for people. Programs get the codes."""

import pytest
from django.db import transaction
from django.test import Client
from django.utils.translation import override

from accounts.models import User
from core.admin import HISTORY_PAGE, action_label, kind_label
from core.audit.actions import ACTIONS
from core.audit.models import Entry
from core.audit.services import record
from core.audit.words import ACTION_LABELS

pytestmark = pytest.mark.django_db


@pytest.fixture
def olga(admin_user: User) -> User:
    """Return a person with more acts than a page has."""
    person = User.objects.create_user("olga")
    with transaction.atomic():
        record(user=admin_user, action="person.added", row=person, name="olga")
        for _ in range(HISTORY_PAGE):
            record(user=person, action="person.signed_in", row=person, name="olga")
        record(user=admin_user, action="person.changed", row=person, name="olga", changes={"is_active": [True, False]})
    return person


def test_every_act_has_words_in_both_languages() -> None:
    assert set(ACTIONS) == ACTION_LABELS.keys()
    with override("vi"):
        assert {action for action in ACTIONS if action_label(action) == ACTION_LABELS[action]} == set()


def test_kinds_are_called_what_pages_call_them() -> None:
    assert kind_label("accounts.apitoken") == "API token"
    assert kind_label("accounts.gone") == "accounts.gone"
    assert kind_label("") == ""


def test_a_history_has_the_newest_first_page_by_page(admin_client: Client, olga: User) -> None:
    address = f"/admin/accounts/user/{olga.pk}/history/"
    first, second = (admin_client.get(address, {"p": number}) for number in (1, 2))
    acts = [[act.code for act in page.context["action_list"]] for page in (first, second)]
    assert [len(page) for page in acts] == [HISTORY_PAGE, 2]
    assert (acts[0][0], acts[1][-1]) == ("person.changed", "person.added")
    text = first.content.decode()
    assert "Person changed: active" in text
    assert '<code class="quiet">person.changed</code>' in text


def test_the_list_says_both_and_filters_by_the_code(admin_client: Client, olga: User) -> None:
    page = admin_client.get("/admin/audit/entry/", {"action": "person.changed", "q": "olga"})
    (entry,) = page.context["cl"].result_list
    text = page.content.decode()
    assert 'Person changed <code class="quiet">person.changed</code>' in text
    assert "API token created · token.made" in text
    one = admin_client.get(f"/admin/audit/entry/{entry.pk}/change/").content.decode()
    assert "<code>true → false</code>" in one
    assert Entry.objects.filter(object_id=str(olga.pk)).count() == HISTORY_PAGE + 2
