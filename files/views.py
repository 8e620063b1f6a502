"""The pages of files."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access.sessions import SignedInRequest as Request
from core.errors import NotFound, ProductError
from core.requests import with_row
from files import services
from files.api import passage_of, whole_number
from files.encodings import ENCODINGS, label
from files.models import File
from files.page_pictures import picture
from files.pages import Reading, download, download_shown, file_list, with_uses


@require_http_methods(["GET", "POST"])
def files(request: Request) -> HttpResponse:
    """The list of one's files, or only its rows; a POST uploads and gives a script the chips of the new files."""
    if request.method == "POST":
        uploaded = upload(request)
        if not request.htmx:
            return redirect("files:list")
        return render(request, "files/_chips.html", {"files": uploaded}, status=201)
    found, after = file_list(request.user, request.GET.get("after"))
    context = {
        "section": "files",
        "stored": services.stored_bytes(request.user),
        "most": services.most_stored(request.user),
        "files": found,
        "after": after,
        "unread": any(file.unread for file in found),
    }
    return render(request, "files/_rows.html" if "rows" in request.GET else "files/list.html", context)


def upload(request: Request) -> list[File]:
    """Stores the files of a form; raises `no_file` when none was chosen."""
    given = [content for content in request.FILES.getlist("file") if content.name]
    if not given:
        raise ProductError("no_file", "No file was chosen. Choose one or several, then upload.")
    return [services.upload(user=request.user, name=content.name or "", content=content) for content in given]


@require_GET
def file(request: Request, pk: UUID) -> HttpResponse:
    """What is known of a file, and its text from a page, a character or a passage on.

    Citations lead here for as long as their conversation exists, so what they cannot open any more is said in words.
    """
    try:
        found = services.visible_file(request.user, pk)
    except NotFound:
        return render(request, "files/gone.html", {"section": "files", "passage": passage_of(request.GET)}, status=404)
    context = {
        "section": "files",
        "file": with_uses(request.user, [found])[0],
        "mine": found.owner_id == request.user.pk,
        "encoding": label(found.encoding),
        "encodings": ENCODINGS,
        **_text(request, found),
    }
    return render(request, "files/file.html", context)


def _text(request: Request, found: File) -> dict[str, Any]:
    """`pieces` of a file with text are (piece, before, passage, after); `lost`: the passage asked for is not there."""
    passage = passage_of(request.GET)
    if found.is_image or found.status not in (File.Status.READY, File.Status.TOO_LONG):
        return {"lost": passage is not None}
    reading = Reading(found)
    page, start = (whole_number(request.GET, name) for name in ("page", "start"))
    if passage is None:
        window = reading.at(start or 0 if page is None else reading.start_of(page))
        return {"window": window, "pieces": [(piece, *piece.marked(0, 0)) for piece in window.pieces]}
    lost = not reading.holds(*passage, page=page)
    window = reading.at(passage[0])
    marked = (0, 0) if lost else passage
    pieces = [(piece, *piece.marked(*marked)) for piece in window.pieces]
    address = "?start={}&end={}".format(*marked)
    unmarked = reading.without_places(window.pieces)
    more = {"marked": address, "begins": marked[0], "unmarked": unmarked}
    return {"lost": lost, "window": window, "pieces": pieces, **more}


@with_row(services.visible_file, "GET")
def content(request: Request, found: File) -> HttpResponseBase:
    return download(found)


@with_row(services.visible_file, "GET")
def shown(request: Request, found: File) -> HttpResponseBase:
    return download_shown(found)


@with_row(services.visible_file, "GET")
def page_picture(request: Request, found: File, page: int) -> HttpResponse:
    return picture(request.user, found, page, passage_of(request.GET))


@with_row(services.visible_file, "GET")
def chip(request: Request, found: File) -> HttpResponse:
    """A file at the composer, in its present state."""
    return render(request, "files/_chip.html", {"file": found})


@with_row(services.visible_file)
def retry(request: Request, found: File) -> HttpResponse:
    services.retry(user=request.user, file=found)
    return redirect("files:file", found.pk)


@with_row(services.visible_file)
def reread(request: Request, found: File) -> HttpResponse:
    given = {name: request.POST.get(name, "") for name in ("encoding", "password")}
    services.reread(user=request.user, file=found, **given)
    return redirect("files:file", found.pk)


@with_row(services.visible_file)
def delete(request: Request, found: File) -> HttpResponse:
    services.delete(user=request.user, file=found)
    return redirect("files:list")
