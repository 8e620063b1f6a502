"""Measure every page, list, plan, send and search of messages, in a workspace that `contrib.bench.fill` fills.

    DJANGO_SETTINGS_MODULE=config.settings python -m scripts.services -m contrib.bench.with_django.volume --people 2 …

The options are the options of `contrib.bench.fill`. If the database is filled already, it is measured as it is. Prints
JSON for `contrib.bench.volume` to compare. `contrib.bench.measure_admin` measures the admin's pages.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import django

django.setup()

from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.management import call_command
from django.db import transaction
from django.db.models import QuerySet
from django.test import Client
from django.test.utils import override_settings, setup_test_environment
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.models import Session, User
from chat.models import Conversation, Message, Share, Turn
from contrib.bench import fill
from contrib.bench.measure_admin import cost_of
from contrib.bench.retrieval import messages
from files.models import File
from llm.models import Model
from personas.models import Persona
from projects.models import Project
from projects.planner.models import Task

PERSON = "fill-000002"  # the owner of the first project
RUNS = 7
# Pages that show no rows of a person, and the admin.
NOT_MEASURED = re.compile(r"^/(admin/|login/|logout/|setup/|offline/|api/docs/|api/v1/(schema|asyncapi)/)")


@dataclass(frozen=True, slots=True)
class PageCost:
    """The cost of a page. `time`: our CPU time and the database's time in ms, the minimum of several runs."""

    status: int
    queries: int
    time: float


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request to measure. With a `form` it is a POST; its changes are rolled back."""

    address: str
    form: dict[str, Any] | None = None
    type: str = "multipart"

    @property
    def name(self) -> str:
        """The address without the keys of rows, which differ between workspaces. A POST begins with “POST”."""
        plain = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=/s/)fill-\d+|\d{4}-\d{2}(-\d{2})?", "…", self.address)
        return plain if self.form is None else f"POST {plain}"


def without_arguments(patterns: list[URLPattern | URLResolver], before: str = "/") -> Iterator[str]:
    """Yield the addresses of the product that name no row, including nested addresses."""
    for each in patterns:
        here = before + str(each.pattern).lstrip("^").rstrip("$").replace("\\Z", "")
        if re.search(r"[<(]", here):
            continue
        if isinstance(each, URLResolver):
            yield from without_arguments(each.url_patterns, here)
        elif not NOT_MEASURED.match(here):
            yield here.replace("\\", "")


def requests(person: User) -> list[PageRequest]:
    """Return requests for every list and page of this person, and for the pages of their newest rows."""
    own: dict[str, QuerySet[Any]] = {
        "conversation": Conversation.objects.filter(owner=person).exclude(project=None),
        "message": Message.objects.filter(owner=person, role="assistant"),
        "turn": Turn.objects.filter(conversation__owner=person),
        "file": File.objects.filter(owner=person),
        "project": Project.objects.filter(owner=person),
        "persona": Persona.objects.filter(owner=person),
        "task": Task.objects.filter(owner=person),
        "link": Share.objects.filter(conversation__owner=person),
    }
    rows = {name: queryset.order_by("-pk")[0] for name, queryset in own.items()}
    key = {name: str(row.pk) for name, row in rows.items()}
    place, day = rows["conversation"].pk, rows["conversation"].updated.date()
    gets = [
        *without_arguments(get_resolver().url_patterns),
        *(f"/search/?q={word}" for word in ("everywhere", "tenth", "te", "nowhere")),
        *(f"/palette/?q={word}" for word in ("third", "Conversation", "File")),
        *("/files/?q=file", "/projects/?q=1", "/personas/?q=1", "/tasks/", "/usage/?by=model", "/usage/?by=day"),
        *(
            f"/c/{place}/{part}"
            for part in ("", "sources/", "organise/", "share/", "pick/?q=file", "prompts/", "next/")
        ),
        *(f"/c/{place}/pick/?q={word}" for word in ("everywhere", "tenth", "nowhere")),  # searches texts of files
        *(f"/c/{place}/export.{kind}" for kind in ("md", "json")),
        f"/c/{place}/?at={Message.objects.filter(conversation=place).order_by('pk')[0].pk}",
        *(f"/messages/{key['message']}/{part}" for part in ("menu/", "sources/")),
        *(f"/turns/{key['turn']}/report/", f"/s/{rows['link'].token}/"),
        *(f"/files/{key['file']}/", f"/files/{key['file']}/chip/", f"/files/{key['file']}/read/"),
        *(f"/projects/{key['project']}/{part}" for part in ("", "?q=word", "conversations/", "meter/")),
        *(f"/projects/{key['project']}/search/?q={word}" for word in ("everywhere", "tenth", "nowhere")),
        *(f"/personas/{key['persona']}/", f"/tasks/{key['task']}/", f"/tasks/day/{rows['task'].date}/"),
        *(f"/tasks/month/{rows['task'].date:%Y-%m}/", f"/tasks/year/{rows['task'].date:%Y}/", f"/daily/{day}/"),
        *in_the_api(key, day),
    ]
    form = {"text": "What was said everywhere?"}
    posts = [
        *(PageRequest("/", form), PageRequest(f"/c/{place}/turns/", form)),
        *(
            PageRequest("/plan/", form),
            PageRequest(f"/c/{place}/plan/", form),
            PageRequest(f"/c/{place}/plan/?panel", form),
        ),
        PageRequest(f"/api/v1/conversations/{place}/turns/", form, "application/json"),
        PageRequest(f"/api/v1/conversations/{place}/plan/", form, "application/json"),
        PageRequest(f"/api/v1/projects/{key['project']}/search/", {"query": "tenth"}, "application/json"),
    ]
    return [*map(PageRequest, dict.fromkeys(gets)), *posts]


def in_the_api(key: dict[str, str], day: date) -> Iterator[str]:
    for kind, row in (("conversations", "conversation"), ("messages", "message"), ("turns", "turn"), ("files", "file")):
        yield f"/api/v1/{kind}/{key[row]}/"
    for kind, row in (("projects", "project"), ("personas", "persona"), ("tasks", "task"), ("shares", "link")):
        yield f"/api/v1/{kind}/{key[row]}/"
    yield from (f"/api/v1/conversations/?{query}" for query in ("q=tenth", "archived=true", "page_size=200"))
    for part in ("messages/", "messages/?page_size=200", "shares/", "permissions/", "export/"):
        yield f"/api/v1/conversations/{key['conversation']}/{part}"
    yield from (f"/api/v1/projects/{key['project']}/{part}" for part in ("files/", "members/", "invitations/"))
    yield from (f"/api/v1/daily/{day}/{part}" for part in ("chat/", "summary/", "Daily_chat.json"))
    for by in ("day", "model", "conversation", "project", "persona", "group", "token", "purpose"):
        yield f"/api/v1/me/usage/?by={by}"
    yield from (f"/api/v1/search/?q={word}" for word in ("everywhere", "tenth", "te", "nowhere"))
    yield from ("/api/v1/files/?q=file", "/api/v1/audit/?actor=fill-000002", "/api/v1/audit/?action=share.made")


def further_pages(client: Client) -> Iterator[str]:
    """Yield the addresses of the second and third page of each list."""
    for address in ("conversations/?", "files/?", "tasks/?", "audit/?", "search/?q=everywhere&"):
        link = f"/api/v1/{address}page_size=5"
        for _ in range(2):
            answer = client.get(link)
            following = answer.json().get("next") if answer.status_code == 200 else None
            if not following:
                break
            link = re.sub(r"^https?://[^/]+", "", following)
            yield link


def measured(person: User) -> dict[str, PageCost]:
    """Return the cost of each page by name.

    An address without a row is skipped if it needs parameters or redirects. Raises RuntimeError if any other fails.
    """
    client = Client(raise_request_exception=False)
    Session.objects.visible_to(person).delete()
    client.force_login(person)
    first_pages = requests(person)
    costs: dict[str, PageCost] = {}
    refused: list[str] = []
    without_rows = set(without_arguments(get_resolver().url_patterns))
    pages = [*first_pages, *(PageRequest(each) for each in further_pages(client))]
    for number, request in enumerate(pages):
        name = (
            request.name if number < len(first_pages) else f"{re.sub('cursor=.*', 'cursor=…', request.name)} {number}"
        )
        # The first request fills the caches of the process, such as content types.
        status = once(client, request).status
        if status < 300:
            costs[name] = min((once(client, request) for _ in range(RUNS)), key=lambda each: each.time)
        elif request.address not in without_rows:
            refused.append(f"{name} answered {status}")
    if refused:
        raise RuntimeError(", ".join(refused))
    return costs


async def read(answer: Any) -> None:
    async for _ in answer:
        pass


def once(client: Client, request: PageRequest) -> PageCost:
    def answered() -> Any:
        answer: Any
        if request.form is None:
            answer = client.get(request.address)
        elif request.type == "multipart":
            answer = client.post(request.address, request.form, headers={"HX-Request": "true"})
        else:
            answer = client.post(request.address, request.form, content_type=request.type)
        if answer.streaming:
            async_to_sync(read)(answer) if answer.is_async else answer.getvalue()
        return answer

    if request.form is None:
        answer, queries, milliseconds = cost_of(answered)
    else:
        with transaction.atomic():
            answer, queries, milliseconds = cost_of(answered)
            transaction.set_rollback(True)
    return PageCost(answer.status_code, queries, milliseconds)


def has(person: User) -> dict[str, int]:
    counted = (Conversation.objects, Message.objects, Turn.objects, File.objects, Project.objects, Task.objects)
    return {rows.model.__name__: rows.filter(owner=person).count() for rows in counted}


def main(arguments: list[str]) -> dict[str, Any]:
    """Measure in the database of DATABASE_URL. The database is empty or filled by an earlier run.

    Returns `has`: the person's rows by model; `pages`: costs by name; `searches`: ms of each query of ten people.
    """
    setup_test_environment()
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    limits: dict[str, Any] = {"API_RATES": {}, "PAGE_RATES": {}}
    with override_settings(STORAGES={**settings.STORAGES, "staticfiles": plain}, **limits):
        call_command("migrate", verbosity=0)
        if not User.objects.filter(username=PERSON).exists():
            fill.main(arguments)
        Model.objects.filter(provider__name="fill").update(default=True)
        User.objects.filter(username=PERSON).update(is_staff=True, is_superuser=True)  # to see the audit and all usage
        person = User.objects.get(username=PERSON)
        pages = {name: asdict(each) for name, each in measured(person).items()}
        return {"has": has(person), "pages": pages, "searches": messages.searches()}


if __name__ == "__main__":
    json.dump(main(sys.argv[1:]), sys.stdout)
