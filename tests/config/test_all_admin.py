"""The menu of the admin, and the page with all of its pages and settings."""

import re

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from accounts.models import User
from config.admin import GROUPS, ON_SHOW

pytestmark = pytest.mark.django_db
ALL = reverse("admin_all")


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("everything"))
    return client


def links(page: str) -> set[str]:
    return set(re.findall(r'href="(/admin/[a-z]+/[a-z]+/)[#"]', page))


def test_the_menu_shows_twelve_pages_and_leads_to_all(admin: Client) -> None:
    page = admin.get(reverse("admin:index")).content.decode()
    menu = page[page.index('id="nav-sidebar"') : page.index("</nav>")] if 'id="nav-sidebar"' in page else page
    assert len(ON_SHOW) == 12
    assert {label for labels in GROUPS.values() for label in labels} >= ON_SHOW
    assert f'href="{ALL}"' in menu
    everything = links(admin.get(ALL).content.decode())
    assert len(everything) >= sum(len(labels) for labels in GROUPS.values())


def test_settings_are_found_by_name_and_help_text(admin: Client) -> None:
    page = admin.get(ALL, {"q": "ask web search"}).content.decode()
    assert "/admin/accounts/workspace/#id_search_approval" in page
    page = admin.get(ALL, {"q": "least length password"}).content.decode()
    assert "#id_password_length" in page
    page = admin.get(ALL, {"q": "budget profiles"}).content.decode()
    assert "/admin/personas/budgetprofile/" in page
    nothing = admin.get(ALL, {"q": "no such <thing>"}).content.decode()
    assert "No page and no setting has all words of “no such &lt;thing&gt;”" in nothing


def test_who_may_see_few_pages_has_them_in_the_menu_and_finds_no_others() -> None:
    user = User.objects.create_user("auditor", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_entry"))
    client = Client()
    client.force_login(user)
    page = client.get(ALL).content.decode()
    assert links(page) == {"/admin/audit/entry/"}
    assert "id_search_approval" not in client.get(ALL, {"q": "search"}).content.decode()


def test_an_empty_list_says_what_comes_there(admin: Client) -> None:
    empty = admin.get(reverse("admin:accounts_limit_changelist")).content.decode()
    assert "No limits yet: everybody may use as much as they like." in empty
    filtered = admin.get(reverse("admin:accounts_limit_changelist"), {"q": "nobody"}).content.decode()
    assert "Nothing here matches the search and the filters." in filtered
    lab = admin.get(reverse("admin:chat_replay_changelist")).content.decode()
    assert "Plan past turns again with …" in lab and "Add replay" not in lab
