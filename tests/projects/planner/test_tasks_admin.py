import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import User
from projects.planner import services
from projects.planner.models.task import Task, TaskChange
from projects.planner.rules import Actor
from tests.projects.planner.planning import NEXT, item, new, status

pytestmark = pytest.mark.django_db
PRIVATE = "a private matter"


@pytest.fixture
def task() -> Task:
    actor = Actor(User.objects.create_user("wendy"))
    task = new(actor, PRIVATE, archetype="hybrid", notes=PRIVATE)
    stop = item(actor, task, PRIVATE, breakpoint=True, needs=PRIVATE)
    status(Actor(actor.user, model="small-model"), stop, "waiting")
    services.move(actor=actor, task=task, day=NEXT)
    return task


def page(client: Client, name: str, *args: object) -> str:
    response = client.get(reverse(f"admin:projects_{name}", args=args))
    assert response.status_code == 200
    return response.content.decode()


def test_operators_see_how_tasks_stand_and_nothing_that_was_written(admin_client: Client, task: Task) -> None:
    changes = page(admin_client, "taskchange_changelist")
    pages = [
        page(admin_client, "task_changelist"),
        page(admin_client, "task_change", task.pk),
        page(admin_client, "task_history", task.pk),
        changes,
        *(page(admin_client, "taskchange_change", row.pk) for row in TaskChange.objects.all()),
    ]
    assert not [text for text in pages if PRIVATE in text]
    assert all(f"{task.code}.C01" in text for text in (pages[0], changes))
    assert "D2024-11-22-T01" in pages[1]
    assert all(words in changes for words in ("small-model", "waiting", "16 characters"))


@pytest.mark.parametrize("name", ["task", "taskchange"])
def test_operators_change_nothing(admin_client: Client, task: Task, name: str) -> None:
    row = task if name == "task" else TaskChange.objects.latest("id")
    before = list(Task.objects.values()), list(TaskChange.objects.values())
    assert admin_client.post(reverse(f"admin:projects_{name}_add"), {}).status_code == 403
    for what in ("change", "delete"):
        url = reverse(f"admin:projects_{name}_{what}", args=[row.pk])
        assert admin_client.post(url, {"post": "yes", "title": "x"}).status_code == 403
    assert (list(Task.objects.values()), list(TaskChange.objects.values())) == before
