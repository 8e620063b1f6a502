"""Tasks that tests make and change through the services, on a day in the past, so that no test runs on it."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from core.errors import ProductError
from projects.planner import services
from projects.planner.models.task import Task, TaskChange
from projects.planner.rules import Actor, NewTask

DAY, NEXT = date(2024, 11, 21), date(2024, 11, 22)


def new(actor: Actor, title: str = "Task", **fields: Any) -> Task:
    return services.create(actor=actor, new=NewTask(title, **{"date": DAY, **fields}))


def item(actor: Actor, parent: Task, title: str = "Item", **fields: Any) -> Task:
    return new(actor, title, level="item", parent=parent, **fields)


def status(actor: Actor, task: Task, value: str) -> Task:
    return services.set_status(actor=actor, task=task, status=value)


def refused(code: str, call: Callable[..., object], **arguments: Any) -> None:
    before = list(Task.objects.values()), TaskChange.objects.count()
    with pytest.raises(ProductError) as caught:
        call(**arguments)
    assert caught.value.code == code
    assert (list(Task.objects.values()), TaskChange.objects.count()) == before


def titles(rows: Any) -> list[str]:
    return [row.title for row in rows]
