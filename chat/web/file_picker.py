"""Show the composer's sheet for choosing uploaded files for a message."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.context.types import DocumentBudget
from chat.conversations import services
from chat.prompts.document_budget import budget, chosen_files, document_tokens
from chat.prompts.turn_context import base_context
from chat.prompts.wording import too_long
from chat.web.conversation import composer_scope
from core.requests import identifier
from core.sentences import Sentence
from files.index.ledger import Payer
from files.index.search import PassageExcerpt, cut_excerpts, search_many
from files.models import File
from personas.services import model_for

ROWS = 20
MAX_HITS = 60  # search hits; each file shows only its best one


@dataclass(frozen=True, slots=True)
class FileChoice:
    """A file in the sheet. `why_not`: why it may not be chosen, empty if it may."""

    file: File
    passage: PassageExcerpt | None
    chosen: bool
    why_not: str


class FileMatches(NamedTuple):
    """Files, each with its best passage if a search found one. `notes`: the notes of that search."""

    files: list[tuple[File, PassageExcerpt | None]]
    notes: tuple[Sentence, ...] = ()


@require_GET
def pick(request: Request, pk: UUID | None = None) -> HttpResponse:
    """Show the files for the query `q`. The other fields of the composer determine the document budget."""
    scope = composer_scope(request, pk, request.GET)
    model = services.visible_model(request.user, next(iter(request.GET.getlist("model")), None)) or model_for(
        scope.persona, request.user
    )
    allowed = budget(base_context(user=request.user, model=model, scope=scope), scope)
    ids = [identifier(each, "file") for name in ("files", "unread") for each in request.GET.getlist(name) if each]
    chosen = {file.pk: document_tokens(file) for file in chosen_files(user=request.user, ids=ids)}
    query = " ".join(request.GET.get("q", "").replace("\0", " ").split())
    matches = _matches(request.user, query)
    choices = [
        FileChoice(
            file=file,
            passage=passage,
            chosen=file.pk in chosen,
            why_not="" if file.pk in chosen else _refusal_reason(file, list(chosen.values()), allowed),
        )
        for file, passage in matches.files
    ]
    unread = any(choice.file.unread for choice in choices)
    shown = {"choices": choices, "query": query, "unread": unread, "notes": matches.notes}
    return render(request, "chat/_pick.html", shown)


def _matches(user: User, query: str) -> FileMatches:
    """Return files with the query in their names, newest first, then files with it in their text, best first."""
    visible = File.objects.visible_to(user).order_by("-id")
    if not query:
        return FileMatches([(file, None) for file in visible[:ROWS]])
    best: dict[UUID, PassageExcerpt] = {}
    result = search_many(queries=[query], files=visible, limit=MAX_HITS, payer=Payer(user.pk))
    for passage in cut_excerpts(result.hits):
        best.setdefault(passage.file, passage)
    named = {file.pk: file for file in visible.filter(name__icontains=query)[:ROWS]}
    inside = visible.in_bulk(best)
    files = {**named, **{pk: inside[pk] for pk in best if pk in inside}}
    return FileMatches([(file, best.get(file.pk)) for file in files.values()][:ROWS], result.notes)


def _refusal_reason(file: File, chosen: Sequence[int | None], allowed: DocumentBudget) -> str:
    """Return why the file may not be chosen, empty if it may. `chosen`: the tokens of the chosen files."""
    size = document_tokens(file)
    if file.status == File.Status.FAILED:
        return _("It could not be read.")
    if size is None:
        return _("Its length is not known yet.")
    if None in chosen:
        return _("Wait until the files chosen so far are read.")
    if not allowed.accepts(size, chosen):
        excess = sum(tokens or 0 for tokens in chosen) + size - allowed.selectable_up_to
        return too_long(excess, allowed.selectable_up_to)
    if file.status == File.Status.TOO_LONG:
        return _("Too long to send whole.")
    return ""
