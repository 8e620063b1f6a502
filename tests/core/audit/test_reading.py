"""The audit as it is read: in the admin, over the API, by the command."""

import csv
import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from accounts.services import create_token
from core.audit.models import Entry
from core.audit.origin import How, Origin, use_origin
from core.audit.reading import AuditFilter, csv_pages, json_lines
from core.audit.services import record
from tests.config.household import content
from tests.core.audit.test_chain import seal

pytestmark = pytest.mark.django_db
LIST = reverse("admin:audit_entry_changelist")


@pytest.fixture
def olga() -> User:
    return User.objects.create_user("olga")


@pytest.fixture
def acts(olga: User) -> list[Entry]:
    """Return acts of olga, and acts without a person."""
    with use_origin(Origin(How.PAGE, "203.0.113.9", "request-1")):
        record(user=olga, action="persona.deleted", row=olga)
        record(user=olga, action="group.added", row=olga, name="=cmd()")
    record(user=None, action="group.deleted", name="Nobody's")
    seal()
    return list(Entry.objects.order_by("-sequence")[:3])[::-1]


def program(person: User, *scopes: str) -> dict[str, str]:
    _row, token = create_token(user=person, name="siem", scopes=scopes)
    seal()
    return {"Authorization": f"Bearer {token}"}


def read(client: Client, headers: dict[str, str], status: int = 200, **query: Any) -> Any:
    answer = client.get("/api/v1/audit/", query, headers=headers)
    assert answer.status_code == status, answer.content
    return json.loads(answer.content)


def test_the_api_gives_pages_the_newest_first(client: Client, admin_user: User, acts: list[Entry]) -> None:
    headers = program(admin_user, "admin")
    first = read(client, headers, page_size=2)
    assert [row["action"] for row in first["results"]] == ["token.made", "group.deleted"]
    assert first["next"]
    entry = first["results"][1]
    assert (entry["how"], entry["actor_id"], entry["actor_name"], entry["object_name"]) == (
        "system",
        None,
        "",
        "Nobody's",
    )
    assert set(entry) >= {"sequence", "at", "address", "request_id", "token_id", "changes", "hash"}
    assert "digest" not in entry


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"actor": "olga"}, ["group.added", "persona.deleted"]),
        ({"action": "group"}, ["group.deleted", "group.added"]),
        ({"action": "group.added"}, ["group.added"]),
        ({"actor": "olga", "action": "token"}, []),
        ({"since": "2999-01-01T00:00:00Z"}, []),
        ({"until": "2001-01-01T00:00:00Z"}, []),
    ],
)
def test_the_api_filters(
    client: Client, admin_user: User, acts: list[Entry], query: dict[str, Any], expected: list[str]
) -> None:
    rows = read(client, program(admin_user, "admin"), **query)["results"]
    assert [row["action"] for row in rows] == expected


def test_a_program_goes_on_after_what_it_has_read(client: Client, admin_user: User, acts: list[Entry]) -> None:
    headers = program(admin_user, "admin")
    rows = read(client, headers, after=acts[1].sequence)["results"]
    assert [row["action"] for row in rows] == ["token.made", "group.deleted"]
    by_id = read(client, headers, actor=str(acts[0].actor_id))["results"]
    assert len(by_id) == 2


def test_the_api_refuses_in_words(client: Client, admin_user: User, olga: User, acts: list[Entry]) -> None:
    assert read(client, program(admin_user, "admin"), 400, action="group.painted")["code"] == "unknown_action"
    assert read(client, program(admin_user, "admin"), 400, since="yesterday")["code"]
    assert read(client, program(admin_user, "chat"), 403)["code"] == "missing_scope"
    assert read(client, program(olga, "admin"), 403)["code"] == "staff_only"
    olga.is_staff = True
    olga.save()
    assert read(client, program(olga, "admin"), 403)["code"] == "right_missing"
    olga.user_permissions.add(Permission.objects.get(codename="view_entry"))
    assert read(client, program(olga, "admin"))["results"]
    for method in ("post", "put", "patch", "delete"):
        answer = getattr(client, method)("/api/v1/audit/", headers=program(admin_user, "admin"))
        assert answer.status_code == 405


def test_the_list_is_searched_and_filtered_and_counts_nothing(admin_client: Client, acts: list[Entry]) -> None:
    with CaptureQueriesContext(connection) as queries:
        page = content(admin_client.get(LIST))
    assert not any("COUNT(" in query["sql"] and "audit_entry" in query["sql"] for query in queries.captured_queries)
    assert "persona.deleted" in page and "group.deleted" in page
    search_page = content(admin_client.get(LIST, {"q": "request-1"}))
    assert search_page.count("203.0.113.9") == 2
    assert content(admin_client.get(LIST, {"q": str(acts[0].actor_id)})).count("203.0.113.9") == 2
    assert "203.0.113.9" not in content(admin_client.get(LIST, {"action__exact": "", "action": "group.deleted"}))
    assert "203.0.113.9" not in content(admin_client.get(LIST, {"q": "request"}))
    one = content(admin_client.get(reverse("admin:audit_entry_change", args=[acts[1].pk])))
    assert acts[1].hash in one and "=cmd()" in one


def test_the_admin_adds_changes_and_deletes_none(admin_client: Client, acts: list[Entry]) -> None:
    page = reverse("admin:audit_entry_change", args=[acts[0].pk])
    assert admin_client.post(page, {"action": "group.added"}).status_code == 403
    assert admin_client.post(reverse("admin:audit_entry_delete", args=[acts[0].pk]), {"post": "yes"}).status_code == 403
    assert admin_client.get(reverse("admin:audit_entry_add")).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": [str(acts[0].pk)], "post": "yes"}
    admin_client.post(LIST, chosen)
    assert Entry.objects.filter(pk=acts[0].pk, action="persona.deleted").exists()


def test_it_is_taken_along_as_csv_and_as_json_lines(acts: list[Entry]) -> None:
    rows = list(csv.DictReader(StringIO("".join(csv_pages(AuditFilter(actor="olga").rows())))))
    assert [row["action"] for row in rows] == ["persona.deleted", "group.added"]
    assert rows[1]["object_name"] == "'=cmd()"  # no formula to a spreadsheet
    lines = "".join(json_lines(AuditFilter(action="group.added").rows()))
    assert [json.loads(line)["object_name"] for line in lines.splitlines()] == ["=cmd()"]


def test_the_page_for_taking_along_says_what_is_wrong(admin_client: Client, acts: list[Entry]) -> None:
    address, today = reverse("admin:audit_entry_take_along"), timezone.localdate().isoformat()
    assert admin_client.get(address).status_code == 200
    assert admin_client.get(address, {"kind": "pdf"}).status_code == 422
    answer = admin_client.get(address, {"kind": "jsonl", "first": today, "last": today, "action": "group.added"})
    assert answer["Content-Disposition"] == 'attachment; filename="audit.jsonl"'
    assert Entry.objects.get(action="audit.exported").changes["action"] == "group.added"


def test_who_may_not_see_the_audit_takes_none_along(client: Client, olga: User) -> None:
    olga.is_staff = True
    olga.save()
    client.force_login(olga)
    assert client.get(reverse("admin:audit_entry_take_along"), {"kind": "csv"}).status_code == 403


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("audit", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_prints_lines_and_json(acts: list[Entry]) -> None:
    lines = run("--actor", "olga").splitlines()
    assert [line.split()[2:4] for line in lines] == [["olga", "persona.deleted"], ["olga", "group.added"]]
    rows = [json.loads(line) for line in run("--json", "--after", str(acts[0].sequence)).splitlines()]
    assert [each["action"] for each in rows] == ["group.added", "group.deleted"]
    tomorrow = (timezone.now() + timedelta(days=2)).date().isoformat()
    assert run("--since", tomorrow) == ""
    assert "group.deleted" in run("--since", "2001-01-01T08:00Z")
    for wrong in (("--since", "tomorrow"), ("--since", "2026-13-01"), ("--action", "group.painted")):
        with pytest.raises(CommandError):
            run(*wrong)
