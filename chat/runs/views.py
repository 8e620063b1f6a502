"""A task's run on pages: a fragment for the pages of tasks and conversations, and a page of its own without scripts."""

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access.sessions import SignedInRequest as Request
from chat.models import Run
from chat.rendering import references
from chat.runs import pages as run_pages
from chat.runs import services as run_services
from core.errors import NotFound, ProductError
from projects.models import codes
from projects.models.task import Task
from projects.planner.queries import visible_task


@require_http_methods(["GET", "POST"])
def task_run(request: Request, pk: UUID) -> HttpResponse:
    """The task's newest run, or the button that begins one; a POST begins one."""
    task = visible_task(request.user, pk)
    if request.method == "GET":
        return _shown(request, task)
    try:
        run_services.create_run(user=request.user, task=task)
    except ProductError as error:
        return _refused(request, task, error)
    return _after(request, task)


@require_POST
def act(request: Request, pk: UUID, what: str) -> HttpResponse:
    """`what`: start, stop, answer or retry."""
    run = run_services.visible_run(request.user, pk)
    try:
        if what == "answer":
            run_services.answer_run(user=request.user, run=run, text=request.POST.get("text", ""))
        else:
            does = {"start": run_services.start_run, "stop": run_services.stop_run, "retry": run_services.retry_run}
            does[what](user=request.user, run=run)
    except ProductError as error:
        return _refused(request, run.task, error)
    return _after(request, run.task, run)


@require_GET
def by_code(request: Request, code: str) -> HttpResponse:
    """Where a mention leads: the task's page, also for its items."""
    if not codes.is_code(code.upper()):
        raise NotFound("task")
    task = visible_task(request.user, code.upper())
    return redirect("tasks:task", task.parent_id if task.level == Task.Level.ITEM and task.parent_id else task.pk)


@require_GET
def offer(request: Request) -> HttpResponse:
    """What may be meant by what is typed behind an @, as the options of a list."""
    found = references.offer(user=request.user, typed=request.GET.get("q", ""))
    return render(request, "chat/_mentions.html", {"tasks": found.tasks, "files": found.files})


def _shown(request: Request, task: Task, *, status: int = 200, problem: ProductError | None = None) -> HttpResponse:
    run = run_pages.newest(request.user, task)
    view = run_pages.run_view(run) if run else None
    compact = "compact" in request.GET or "compact" in request.POST
    seen = request.GET.get("seen")
    if view is not None and seen == view.tag and problem is None:
        return HttpResponse(status=204)
    context = {
        "task": task,
        "run": view,
        "startable": run_pages.startable(task),
        "compact": compact,
        "problem": problem,
    }
    if not request.htmx:
        return render(request, "chat/run.html", {**context, "section": "tasks"}, status=status)
    response = render(request, "chat/_run.html", context, status=status)
    if problem is not None:  # pages swap in what was refused only where the refusal names its place
        response["HX-Retarget"], response["HX-Reswap"] = f"#run-{task.pk}", "outerMorph"
    if seen or request.method == "POST":
        response["HX-Trigger"] = "taskschange"  # the items beside it have changed too
    return response


def _after(request: Request, task: Task, run: Run | None = None) -> HttpResponse:
    if request.htmx:
        return _shown(request, task)
    if run is not None and "compact" in request.POST:
        return redirect("chat:conversation", run.conversation_id)
    return redirect("chat:task_run", task.pk)


def _refused(request: Request, task: Task, error: ProductError) -> HttpResponse:
    """What was to be done is said with how the run stands now: it has often just changed."""
    return _shown(request, task, status=error.status, problem=error)
