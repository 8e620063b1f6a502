"""What people type into the field for a new task or for a checklist becomes rows, all of it or nothing."""

from django.db import transaction

from accounts.models import User
from llm.errors import ProductError
from projects.models import Project
from projects.tasks import services
from projects.tasks.models import Task
from projects.tasks.queries import today, visible_task
from projects.tasks.quick_add import Period, QuickItem, parse, parse_items
from projects.tasks.rules import Actor, DraftItem, NewTask


@transaction.atomic
def add_line(*, actor: Actor, text: str, on: Period) -> Task:
    """`text` as in `quick_add`; `on` is the period of the page that it was typed on."""
    quick = parse(text, on=on, today=today(actor.user))
    new = NewTask(
        title=quick.title,
        level=quick.level,
        horizon=quick.period.horizon,
        date=quick.period.start,
        archetype=quick.archetype,
        parent=visible_task(actor.user, quick.parent) if quick.parent else None,
        project=project_named(actor.user, quick.project) if quick.project else None,
    )
    if quick.items and (quick.level, quick.period.horizon) != ("task", "day"):
        raise ProductError("no_checklist", "Only day tasks have a checklist. Leave the items out, or name a day.")
    made = services.create(actor=actor, new=new)
    if quick.items:
        services.draft_checklist(actor=actor, task=made, items=[DraftItem(*item) for item in quick.items])
    return made


@transaction.atomic
def add_items(*, actor: Actor, task: Task, text: str) -> list[Task]:
    """Puts them at the end of the checklist, finished items or not."""
    items = parse_items(text)
    if not items:
        raise ProductError("empty_checklist", "Write at least one item.")
    return [services.create(actor=actor, new=_new_item(task, item)) for item in items]


def _new_item(task: Task, item: QuickItem) -> NewTask:
    return NewTask(item.title, level=Task.Level.ITEM, parent=task, breakpoint=item.breakpoint, needs=item.needs)


def project_named(user: User, name: str) -> Project:
    """Whatever its capitals, spaces and hyphens. Raises `ProductError` if there is not exactly one."""
    found = [each for each in Project.objects.visible_to(user) if _folded(each.name) == _folded(name)]
    if not found:
        raise ProductError("unknown_project", f"You have no project called “{name}”. To keep it as text, write \\#.")
    if len(found) > 1:
        raise ProductError("several_projects", f"Several projects are called “{name}”. Set it on the task's own page.")
    return found[0]


def _folded(name: str) -> str:
    return "".join(each for each in name.casefold() if each not in " -_")
