"""Groups of people: the rights that they give, and the right to change them."""

import json
from typing import Any, cast
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.access.rights import Rights, may, require, rights_of, union
from accounts.groups.services import GroupFields, add_members, delete_group, follow_claims, remove_members, save_group
from accounts.models import PeopleGroup, Right, User
from core.audit.models import Entry
from core.errors import ProductError
from llm.models import Model, Provider, ToolServer
from workspace.models.version import version_now

pytestmark = pytest.mark.django_db


@pytest.fixture
def olga() -> User:
    return User.objects.create_user("olga")


@pytest.fixture
def binh() -> User:
    return User.objects.create_user("binh")


@pytest.fixture
def model() -> Model:
    return Model.objects.create(provider=Provider.objects.create(name=f"provider {uuid4()}"), name="one")


def group(name: str = "Sales", **fields: Any) -> PeopleGroup:
    return save_group(user=None, group=None, fields=cast("GroupFields", {"name": name, **fields}))


def take_all_from_everyone() -> None:
    everyone = PeopleGroup.objects.get(everyone=True)
    save_group(user=None, group=everyone, fields={"all_models": False, "all_tool_servers": False, "may": []})


def test_everyone_is_there_and_may_use_everything(olga: User, model: Model) -> None:
    rights = rights_of(olga)
    assert (rights.models, rights.tool_servers, rights.may) == (None, None, frozenset(Right.values))
    assert rights.groups == {PeopleGroup.objects.get(everyone=True).pk}


def test_rights_are_unions(olga: User, binh: User, model: Model) -> None:
    take_all_from_everyone()
    server = ToolServer.objects.create(name="calendar", base_url="https://tools.example/mcp")
    sales = group(members=[olga], allowed_models=[model], may=[Right.SHARE])
    group("Support", members=[olga], allowed_tool_servers=[server], may=[Right.UPLOAD], conversation_days=30)
    rights = rights_of(olga)
    assert rights.uses_model(model.pk)
    assert not rights.uses_model(uuid4())
    assert rights.uses_server("calendar")
    assert not rights.uses_server("mail")
    assert rights.may == {Right.SHARE, Right.UPLOAD}
    assert sales.pk in rights.groups
    assert not rights_of(binh).uses_model(model.pk)
    assert not may(binh, Right.SHARE)
    with pytest.raises(ProductError, match="share") as refused:
        require(binh, Right.SHARE)
    assert (refused.value.code, refused.value.status) == ("right_missing", 403)


@pytest.mark.parametrize(("days", "left"), [([None], None), ([30, None], 30), ([30, 7], 7), ([0, 30], 30), ([0], 0)])
def test_of_several_groups_the_fewest_days_count(days: list[int | None], left: int | None) -> None:
    groups = [Rights(frozenset({uuid4()}), None, None, frozenset(), each) for each in days]
    assert union(groups).conversation_days == left


def test_rights_cost_nothing_until_something_changes_by_whatever_way(olga: User, model: Model) -> None:
    take_all_from_everyone()
    rights_of(olga)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        rights_of(olga, version_now())
    assert len(queries) == 1  # for the version, which requests have read along with something else
    sales = group()
    for change in (
        lambda: sales.members.add(olga),
        lambda: sales.allowed_models.add(model),
        lambda: PeopleGroup.objects.filter(pk=sales.pk).update(may=[Right.WEB]),
        lambda: connection.cursor().execute("DELETE FROM accounts_peoplegroup_members"),
    ):
        before = rights_of(olga)
        change()
        assert rights_of(olga) != before


def test_a_renamed_tool_server_stays_allowed(olga: User) -> None:
    take_all_from_everyone()
    server = ToolServer.objects.create(name="calendar", base_url="https://tools.example/mcp")
    group(members=[olga], allowed_tool_servers=[server])
    assert rights_of(olga).uses_server("calendar")
    ToolServer.objects.filter(pk=server.pk).update(name="diary")
    assert rights_of(olga).tool_servers == frozenset({"diary"})


@pytest.mark.parametrize("fields", [{"name": "All"}, {"claim": "all"}, {"members": []}, {"conversation_days": 3}])
def test_everyone_stays_everyone(fields: GroupFields) -> None:
    everyone = PeopleGroup.objects.get(everyone=True)
    with pytest.raises(ProductError) as refused:
        save_group(user=None, group=everyone, fields=fields)
    assert refused.value.code == "everyone_is_fixed"
    with pytest.raises(ProductError):
        delete_group(user=User.objects.create_superuser("root"), group=everyone)


@pytest.mark.parametrize(
    "fields", [{"name": " "}, {"may": ["fly"]}, {"conversation_days": 5000}, {"name": "everyone".title()}]
)
def test_what_a_group_cannot_have_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ProductError) as refused:
        group(**{"name": "Sales", **fields})
    assert refused.value.code == "invalid_setting"


def test_claims_put_in_and_take_out(olga: User) -> None:
    sales, support, by_hand = group(claim="sales"), group("Support", claim="support"), group("Hand", members=[olga])
    for claims, expected in (
        (["sales", "x", ""], {sales, by_hand}),
        (["support"], {support, by_hand}),
        ([], {by_hand}),
    ):
        follow_claims(person=olga, claims=claims)
        assert set(olga.people_groups.all()) == expected
    changes = Entry.objects.filter(action="people_group.members_changed", object_id=str(sales.pk)).order_by("id")
    assert [entry.changes["members"] for entry in changes] == [
        {"added": [str(olga.pk)], "removed": []},
        {"added": [], "removed": [str(olga.pk)]},
    ]


def test_managers_say_who_is_in_their_group_and_nothing_else(olga: User, binh: User) -> None:
    sales, support = group(managers=[olga]), group("Support", members=[olga])
    assert add_members(user=olga, group=sales, people=[binh, olga]) == 2
    assert add_members(user=olga, group=sales, people=[binh]) == 0
    assert remove_members(user=olga, group=sales, people=[binh]) == 1
    for user, of, code in ((olga, support, "not_manager"), (binh, sales, "not_found")):
        with pytest.raises(ProductError) as refused:
            add_members(user=user, group=of, people=[binh])
        assert refused.value.code == code
    with pytest.raises(ProductError) as refused:
        save_group(user=olga, group=sales, fields={"all_models": True})
    assert refused.value.code == "staff_only"


def test_who_may_change_people_may_not_change_groups(client: Client, binh: User) -> None:
    staff = User.objects.create_user("staff", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(codename__in=["change_user", "view_user", "view_peoplegroup"]))
    sales = group()
    with pytest.raises(ProductError) as refused:
        add_members(user=staff, group=sales, people=[staff])
    assert refused.value.code == "not_found"
    client.force_login(staff)
    address = reverse("admin:accounts_peoplegroup_change", args=[sales.pk])
    assert client.get(address).status_code == 200
    assert client.post(address, {"name": "Sales", "all_models": "on"}).status_code == 403


def test_the_admin_makes_changes_and_deletes_groups(admin_client: Client, olga: User, model: Model) -> None:
    form = {"name": "Sales", "members": [olga.pk], "allowed_models": [model.pk], "may": ["share", "web"]}
    assert admin_client.post(reverse("admin:accounts_peoplegroup_add"), form).status_code == 302
    sales = PeopleGroup.objects.get(name="Sales")
    assert [*sales.members.all()] == [olga]
    assert [*sales.allowed_models.all()] == [model]
    assert (sales.may, sales.all_models) == (["share", "web"], False)
    address = reverse("admin:accounts_peoplegroup_change", args=[sales.pk])
    assert admin_client.get(address).status_code == 200
    assert admin_client.post(address, {**form, "name": "Selling", "members": []}).status_code == 302
    sales.refresh_from_db()
    assert (sales.name, sales.members.count()) == ("Selling", 0)
    acts = Entry.objects.filter(object_id=str(sales.pk)).order_by("id").values_list("action", flat=True)
    assert [*acts] == ["people_group.added", "people_group.changed"]
    assert "Selling" in admin_client.get(reverse("admin:accounts_peoplegroup_changelist")).content.decode()
    people = admin_client.get(reverse("admin:accounts_user_changelist", query={"people_group": sales.pk}))
    assert "olga" not in people.content.decode()
    admin_client.post(reverse("admin:accounts_peoplegroup_delete", args=[sales.pk]), {"post": "yes"})
    assert not PeopleGroup.objects.filter(pk=sales.pk).exists()
    everyone = PeopleGroup.objects.get(everyone=True)
    address = reverse("admin:accounts_peoplegroup_change", args=[everyone.pk])
    assert admin_client.post(address, {"all_models": "on", "may": ["share"]}).status_code == 302
    everyone.refresh_from_db()
    assert (everyone.name, everyone.may, everyone.all_tool_servers) == ("Everyone", ["share"], False)
    assert admin_client.post(reverse("admin:accounts_peoplegroup_delete", args=[everyone.pk])).status_code == 403


def call(client: Client, method: str, path: str = "", **body: Any) -> Any:
    return client.generic(method, f"/api/v1/groups/{path}", json.dumps(body), content_type="application/json")


def test_programs_make_change_and_delete_groups(admin_client: Client, client: Client, olga: User, model: Model) -> None:
    group = call(
        admin_client, "POST", name="Sales", members=[str(olga.pk)], models=[str(model.pk)], may=["share"]
    ).json()
    assert (group["models"], group["tools"], group["members"]) == ([str(model.pk)], [], [str(olga.pk)])
    changed = call(admin_client, "PATCH", f"{group['id']}/", models=None, claim="sales").json()
    assert (changed["models"], changed["claim"], changed["may"]) == (None, "sales", ["share"])
    assert call(admin_client, "PATCH", f"{group['id']}/", members=[]).json()["members"] == []
    many = {"managers": [str(olga.pk)] * 1_001}
    for wrong in (
        {"may": ["fly"]},
        {"members": [str(uuid4())]},
        {"tools": ["no-such"]},
        {"colour": "red"},
        many,
    ):
        assert call(admin_client, "PATCH", f"{group['id']}/", **wrong).status_code == 400
    everyone = PeopleGroup.objects.get(everyone=True)
    refused = call(admin_client, "PATCH", f"{everyone.pk}/", name="All")
    assert (refused.status_code, refused.json()["code"]) == (409, "everyone_is_fixed")
    assert call(admin_client, "PATCH", f"{everyone.pk}/", may=[]).json()["may"] == []
    assert call(admin_client, "DELETE", f"{group['id']}/").status_code == 204
    client.force_login(olga)
    assert call(client, "GET").status_code == 403
    me = client.get("/api/v1/me/").json()
    assert (me["rights"], me["groups"]) == ([], ["Everyone"])


def test_the_page_shows_what_one_may_and_lets_managers_say_who_is_in(client: Client, olga: User, binh: User) -> None:
    sales = group(members=[olga], managers=[olga])
    client.force_login(olga)
    page = client.get("/settings/groups/").content.decode()
    assert "Sales" in page
    assert "Share conversations by link" in page
    address = f"/settings/groups/{sales.pk}/"
    assert "olga" in client.get(address).content.decode()
    assert client.post(f"{address}add/", {"username": "binh"}).status_code == 302
    wrong = client.post(f"{address}add/", {"username": "nobody"})
    assert (wrong.status_code, "nobody" in wrong.content.decode()) == (422, True)
    assert "binh" not in client.get(f"{address}?q=olga").content.decode()
    assert client.post(f"{address}members/{binh.pk}/remove/").status_code == 302
    assert [*sales.members.all()] == [olga]
    assert client.post(f"{address}members/{binh.pk}/remove/").status_code == 404
    client.force_login(binh)
    assert client.get(address).status_code == 404
    assert client.post(f"{address}add/", {"username": "binh"}).status_code == 404
