"""The sheet at the composer in which files that are there already are chosen for a message."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from accounts.middleware import SignedInRequest as Request
from accounts.models import User
from chat import prompts, services
from chat.context.budget import DocumentBudget
from chat.plans import budget, chosen_files, counted
from chat.views import asked_place
from files.models import File
from files.pages import FileView, file_view
from llm.sentences import grouped
from personas.services import model_for
from projects.pages import Result, passages
from projects.services import identifier, visible_files

ROWS = 20
PASSAGES = 60  # of which each file shows its best


@dataclass(frozen=True, slots=True)
class Choice:
    """A file in the sheet. `why_not` says why it may not be chosen, empty when it may."""

    file: FileView
    passage: Result | None
    chosen: bool
    why_not: str


@login_required
@require_GET
def pick(request: Request, pk: UUID | None = None) -> HttpResponse:
    """The rows for `q`, each held against the line that holds with the composer's other fields."""
    place = asked_place(request, pk, request.GET)
    model = services.visible_model(next(iter(request.GET.getlist("model")), None)) or model_for(place.persona)
    allowed = budget(prompts.setting(user=request.user, model=model, place=place))
    ids = [identifier(each, "file") for name in ("files", "unread") for each in request.GET.getlist(name) if each]
    chosen = {file.pk: counted(file) for file in chosen_files(user=request.user, ids=ids)}
    query = " ".join(request.GET.get("q", "").replace("\0", " ").split())
    choices = [
        Choice(
            file=file_view(file),
            passage=passage,
            chosen=file.pk in chosen,
            why_not="" if file.pk in chosen else _why_not(file, list(chosen.values()), allowed),
        )
        for file, passage in _found(request.user, query)
    ]
    unread = any(choice.file.unread for choice in choices)
    return render(request, "chat/_pick.html", {"choices": choices, "query": query, "unread": unread})


def _found(user: User, query: str) -> list[tuple[File, Result | None]]:
    """Those with the query in their names, newest first, then those with it in their text, best first."""
    visible = visible_files(user).order_by("-id")
    if not query:
        return [(file, None) for file in visible[:ROWS]]
    best: dict[UUID, Result] = {}
    for passage in passages(visible, query, limit=PASSAGES):
        best.setdefault(passage.file, passage)
    named = {file.pk: file for file in visible.filter(name__icontains=query)[:ROWS]}
    inside = visible.in_bulk(best)
    files = {**named, **{pk: inside[pk] for pk in best if pk in inside}}
    return [(file, best.get(file.pk)) for file in files.values()][:ROWS]


def _why_not(file: File, chosen: Sequence[int | None], allowed: DocumentBudget) -> str:
    size = counted(file)
    if file.status == File.Status.FAILED:
        return _("It could not be read.")
    if size is None:
        return _("Its tokens are not counted yet.")
    if None in chosen:
        return _("Wait until the files chosen so far are read.")
    if not allowed.accepts(size, chosen):
        over = sum(tokens or 0 for tokens in chosen) + size - allowed.selectable_up_to
        return _("%(over)s tokens over the line") % {"over": grouped(over)}
    if file.status == File.Status.TOO_LONG:
        return _("Too long to send whole.")
    return ""
