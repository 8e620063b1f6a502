"""Staff with some of the rights: other tables are neither seen nor changed in the admin.

The tests walk every address of the admin, so a new one is covered when it is added.
"""

from collections.abc import Callable, Iterable

from django.contrib import admin
from django.contrib.auth.models import Permission
from django.db.models import Q
from django.test import Client
from django.urls import reverse

from accounts.models import User
from tests.config.household import INTRUSION, PRIVATE, SECRET, SHOWN, Household, content, signed_in

Kind = tuple[str, str]  # the label of an app and the name of a model
SEEN_BY = {"view", "change"}


def kinds() -> list[Kind]:
    return [(model._meta.app_label, model._meta.model_name or "") for model in admin.site._registry]


def pages(household: Household, kind: Kind) -> list[str]:
    """Of one table, without the address below which Django's earlier ones led on."""
    start = f"/admin/{kind[0]}/{kind[1]}/"
    return [each.url for each in household.addresses() if each.url.startswith(start)]


def staff(make: Callable[..., User], rights: Iterable[Permission]) -> Client:
    person = make(is_staff=True)
    person.user_permissions.set(rights)
    return signed_in(person)


def about(kind: Kind) -> Q:
    return Q(content_type__app_label=kind[0], content_type__model=kind[1])


def test_all_other_rights_open_nothing_of_a_table(household: Household, people: Callable[..., User]) -> None:
    """So no single right does either: rights only add to each other."""
    before, wrong = household.state(), []
    for kind in kinds():
        client = staff(people, Permission.objects.exclude(about(kind)))
        for url in pages(household, kind):
            for answer in (client.get(url), client.post(url, INTRUSION)):
                leads_back = answer.status_code == 302 and answer["Location"].startswith(url)
                if not leads_back and answer.status_code not in (403, 404, 405):
                    wrong.append((answer.request["REQUEST_METHOD"], url, answer.status_code))
    assert wrong == []
    assert household.state() == before


def test_one_right_shows_its_own_table_and_no_words_of_other_people(
    household: Household, people: Callable[..., User]
) -> None:
    wrong: list[object] = []
    for kind in kinds():
        name = f"{kind[0]}_{kind[1]}"
        for right in Permission.objects.filter(about(kind)).filter(codename__endswith=f"_{kind[1]}"):
            action = right.codename.partition("_")[0]
            client = staff(people, [right])
            listed = reverse(f"admin:{name}_changelist")
            urls = pages(household, kind) if action in SEEN_BY else [listed]
            for url in ("/admin/", *urls):
                answer = client.get(url)
                words = content(answer)
                if url == listed and answer.status_code != 302 and (answer.status_code == 200) != (action in SEEN_BY):
                    wrong.append((right.codename, url, answer.status_code))
                if SECRET in words or (
                    PRIVATE in words and not url.startswith(tuple(f"/admin{each}" for each in SHOWN))
                ):
                    wrong.append((right.codename, url))
    assert wrong == []


def test_the_right_to_look_changes_nothing(household: Household, people: Callable[..., User]) -> None:
    """With every such right at once, by every address, and by every act of every list."""
    person = people(is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client, before = signed_in(person), household.state()
    keys = {(row._meta.app_label, row._meta.model_name): str(row.pk) for row in household.rows}
    for model, pages_of in admin.site._registry.items():
        kind = (model._meta.app_label, model._meta.model_name or "")
        for url in pages(household, kind):
            client.post(url, INTRUSION)
        listed = reverse("admin:{}_{}_changelist".format(*kind))
        for name in ("delete_selected", *(str(act) for act in pages_of.actions or ())):
            client.post(listed, {"action": name, "_selected_action": [keys[kind]], "post": "yes"})
    assert household.state() == before


def test_people_are_not_found_by_who_may_not_see_them(people: Callable[..., User]) -> None:
    """The field to choose an owner uses an address of its own."""
    query = {"app_label": "projects", "model_name": "project", "field_name": "owner", "term": "a"}
    user = ("accounts", "user")
    client = staff(people, Permission.objects.exclude(about(user)))
    assert client.get(reverse("admin:autocomplete"), query).status_code == 403
