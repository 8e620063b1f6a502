"""A page of the admin takes as many queries for a full list as for one row, and is no larger than it may be."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.models import AdminRecord, ApiToken, User, Webhook, WebhookDelivery
from chat.lab.models import Replay
from chat.ledger.models import ModelCall
from chat.models import Conversation, Import, Message, Share, Summary, SummaryJob, Turn
from core.audit.services import record
from files.models import Embedder, File, Reranker, SpeechServer
from llm.models import Model, Provider, ToolServer, WebSearch
from personas.models import BudgetProfile, Persona, Reminder, SummaryPrompt, SystemPrompt
from projects.models import Invitation, Project
from projects.planner.models import Run, Task, TaskChange
from projects.planner.rules import Actor, NewTask
from projects.planner.services import create as create_task

pytestmark = pytest.mark.django_db
MANY = 55  # more than a list has on a page
MAX_BYTES = 152_000  # of a page, before it is compressed
WITHOUT = {"webaccess"}  # has one row, and its list leads there


def one_of_each(number: int) -> None:
    """Create one row of each kind, with an owner of its own, so that no query serves two rows."""
    name, now = f"a-name-of-some-length-{number}", timezone.now()
    owner = User.objects.create_user(name)
    model = Model.objects.create(provider=Provider.objects.create(name=name), name=name)
    persona = Persona.objects.create(owner=owner, name=name, model=model, visibility="workspace")
    persona.reminders.add(Reminder.objects.create(text=name, scope=Reminder.Scope.PERSONA))
    for kind in (SystemPrompt, SummaryPrompt):
        kind.objects.create(version=number + 1000, text=name, author=owner)
    project = Project.objects.create(owner=owner, name=name, persona=persona)
    place = Conversation.objects.create(owner=owner, persona=persona, project=project)
    question = Message.objects.create(conversation=place, role="user")
    answer = Message.objects.create(
        conversation=place,
        parent=question,
        depth=1,
        role="assistant",
        model=model,
        feedback="bad",
        feedback_comment=name,
    )
    turn = Turn.objects.create(conversation=place, user_message=question, answer=answer, model=model, status="done")
    ModelCall.objects.create(person=owner, turn=turn, model=model, persona=persona, project=project, input=1, output=1)
    Summary.objects.create(
        conversation=place, first=question, last=question, messages=1, span_start=now, span_end=now, as_of=now,
        sections=[], tokens_in=1, tokens_out=1, timezone="UTC", prompt_version=0,
    )  # fmt: skip
    SummaryJob.objects.create(conversation=place, status="done")
    task = create_task(actor=Actor(owner), new=NewTask(name))
    Run.objects.create(owner=owner, task=task, conversation=place, status="done", heartbeat=now)
    assert Task.objects.filter(owner=owner).exists() and TaskChange.objects.filter(owner=owner).exists()
    hook = Webhook.objects.create(owner=owner, url="http://127.0.0.1:9/", origin="", events=["file.ready"])
    WebhookDelivery.objects.create(webhook=hook, event=hook.pk, type="file.ready", payload={}, status="failed")
    more: list[tuple[Any, dict[str, Any]]] = [
        (Group, {"name": name}),
        (BudgetProfile, {"name": name, "summary_model": model}),
        (WebSearch, {"name": name, "base_url": "http://127.0.0.1:9"}),
        (ToolServer, {"name": name, "base_url": "http://127.0.0.1:9"}),
        (Embedder, {"name": name}),
        (Reranker, {"name": name, "base_url": "http://127.0.0.1:9"}),
        (SpeechServer, {"name": name, "base_url": "http://127.0.0.1:9"}),
        (File, {"owner": owner, "name": name, "size": 1, "sha256": "0" * 64}),
        (Share, {"conversation": place, "leaf": answer, "title": name}),
        (Import, {"owner": owner, "name": name, "results": []}),
        (Replay, {"author": owner, "conversation": place, "model": model, "status": "done"}),
        (Invitation, {"project": project, "person": owner, "username": name, "expires": now + timedelta(days=1)}),
        (ApiToken, {"user": owner, "name": name, "digest": name}),
        (AdminRecord, {"username": name, "at": now, "action": 2, "what": "user", "row": name}),
    ]
    with transaction.atomic():
        record(user=owner, action="provider.added", row=model.provider, name=name)
    for kind, fields in more:
        kind.objects.create(**fields)


def counted(client: Client) -> dict[str, tuple[int, int]]:
    """The queries and bytes of each list, of the form, the history and the deletion of its newest row, and of the form
    for a new one."""
    counts = {}
    for model in admin.site._registry:
        if model._meta.model_name in WITHOUT:
            continue
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        newest = model._default_manager.order_by("-pk").values_list("pk", flat=True).first()
        if newest is None:
            continue
        pages = [reverse(f"{name}_{page}", args=[newest]) for page in ("change", "history", "delete")]
        for url in (reverse(f"{name}_changelist"), *pages, reverse(f"{name}_add")):
            with CaptureQueriesContext(connection) as queries:
                page = client.get(url)
            if page.status_code not in (302, 403):  # such rows cannot be added or deleted
                assert page.status_code == 200, url
                counts[url.replace(str(newest), "…")] = len(queries), len(page.content)
    return counts


@pytest.mark.slow
def test_full_lists_cost_no_more_queries_and_no_page_is_too_large(admin_client: Client) -> None:
    one_of_each(0)
    counted(admin_client)  # what is asked once in a process, such as for kinds of rows
    few = counted(admin_client)
    for number in range(1, MANY):
        one_of_each(number)
    admin_client.get(reverse("admin:index"))  # the new rows made a new version of what processes keep
    many = counted(admin_client)
    assert {url: (few[url][0], many[url][0]) for url in few if many[url][0] != few[url][0]} == {}
    assert len(few) >= 100
    assert {url: size for url, (_, size) in many.items() if size > MAX_BYTES} == {}
