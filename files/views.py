"""Pages of files. A view reads the request, calls one service, and renders."""

from collections.abc import Sequence
from uuid import UUID

from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access.sessions import SignedInRequest as Request
from core.errors import NotFound, ProductError
from core.requests import with_row
from core.sentences import Sentence
from files import services
from files.api import parse_passage, parse_position, parse_sentence
from files.encodings import ENCODINGS, label
from files.models import File
from files.page_pictures import picture_response
from files.pages import (
    FileKind,
    FileListing,
    FileOrder,
    StoredText,
    add_uses,
    download,
    download_shown,
    list_files,
    repetition_notice,
)

NO_PASSAGE = (0, 0)  # an empty passage, for requests that name none


@require_http_methods(["GET", "POST"])
def files(request: Request) -> HttpResponse:
    """Show the user's files; a script gets only the rows. A POST uploads files; a script gets their chips."""
    if request.method == "POST":
        uploaded = upload(request)
        repeated = repetition_notices(uploaded)
        if request.htmx:
            return render(request, "files/_chips.html", {"files": uploaded}, status=201)
        if not repeated:
            return redirect("files:list")
    else:
        repeated = []
    listing = FileListing.of(request.GET)
    page, after = list_files(request.user, listing, request.GET.get("after"))
    context = {
        "listing": listing,
        "kinds": FileKind.choices,
        "orders": FileOrder.choices,
        "repeated": repeated,
        "section": "files",
        "stored": services.stored_bytes(request.user),
        "most": services.storage_limit(request.user),
        "files": page,
        "after": after,
        "unread": any(file.unread for file in page),
    }
    return render(request, "files/_rows.html" if "rows" in request.GET else "files/list.html", context)


def upload(request: Request) -> list[File]:
    """Store the files of a form. Raises `no_file` if none was chosen."""
    contents = [content for content in request.FILES.getlist("file") if content.name]
    if not contents:
        raise ProductError("no_file", "Choose one or more files, then upload.")
    return [services.upload(user=request.user, name=content.name or "", content=content) for content in contents]


def repetition_notices(uploaded: Sequence[File]) -> list[Sentence]:
    """Return a sentence for each uploaded file that the user had already."""
    return [repetition_notice(file) for file in uploaded if file.repeated]


@require_GET
def file(request: Request, pk: UUID) -> HttpResponse:
    """Show a file, and its text from a page, a character or a passage on.

    Citations link here while their conversation exists. If the file was deleted, the page says so.
    """
    try:
        row = services.visible_file(request.user, pk)
    except NotFound:
        return render(
            request, "files/gone.html", {"section": "files", "passage": parse_passage(request.GET)}, status=404
        )
    context = {
        "section": "files",
        "file": add_uses(request.user, [row])[0],
        "mine": row.owner_id == request.user.pk,
        "encoding": label(row.encoding),
        "encodings": ENCODINGS,
        **_text_context(request, row),
    }
    return render(request, "files/file.html", context)


def _text_context(request: Request, row: File) -> dict[str, object]:
    """Return the part of the context for the text.

    `pieces` are pairs of a piece and its text around the sentence. `lost`: the text does not contain the requested
    passage.
    """
    passage = parse_passage(request.GET)
    if row.is_image or row.status not in (File.Status.READY, File.Status.TOO_LONG):
        return {"lost": passage is not None}
    text = StoredText(row)
    page, start = (parse_position(request.GET, name) for name in ("page", "start"))
    if passage is None:
        window = text.at(start or 0 if page is None else text.page_start(page))
        pieces = [(piece, piece.mark_sentence(NO_PASSAGE, NO_PASSAGE)) for piece in window.pieces]
        return {"window": window, "pieces": pieces, "begins": None}
    sentence = parse_sentence(request.GET, passage)
    lost = not (text.holds(*passage) and text.holds(*sentence, page=page))
    window = text.at(sentence[0])
    if lost:
        passage = sentence = NO_PASSAGE
    first, end = sentence
    return {
        "lost": lost,
        "window": window,
        "pieces": [(piece, piece.mark_sentence(passage, sentence)) for piece in window.pieces],
        "marked": f"?start={first}&end={end}",
        "begins": first,
        "unmarked": text.pages_without_places(window.pieces),
    }


@with_row(services.visible_file, "GET")
def content(request: Request, row: File) -> HttpResponseBase:
    return download(row)


@with_row(services.visible_file, "GET")
def shown(request: Request, row: File) -> HttpResponseBase:
    return download_shown(row)


@with_row(services.visible_file, "GET")
def page_picture(request: Request, row: File, page: int) -> HttpResponse:
    return picture_response(request.user, row, page, parse_passage(request.GET))


@with_row(services.visible_file, "GET")
def chip(request: Request, row: File) -> HttpResponse:
    """Show the current state of a file at the composer."""
    return render(request, "files/_chip.html", {"file": row})


@with_row(services.visible_file)
def retry(request: Request, row: File) -> HttpResponse:
    services.retry(user=request.user, file=row)
    return redirect("files:file", row.pk)


@with_row(services.visible_file)
def reread(request: Request, row: File) -> HttpResponse:
    encoding = request.POST.get("encoding", "")
    services.reread(user=request.user, file=row, encoding=encoding, password=request.POST.get("password", ""))
    return redirect("files:file", row.pk)


@with_row(services.visible_file)
def delete(request: Request, row: File) -> HttpResponse:
    services.delete(user=request.user, file=row)
    return redirect("files:list")


@require_POST
def delete_several(request: Request) -> HttpResponse:
    """Delete the ticked files, after a page that asks. Raises the errors of `services.delete_several`."""
    rows = services.own_files(request.user, request.POST.getlist("file"))
    if "confirmed" not in request.POST:
        return render(request, "files/delete.html", {"section": "files", "files": add_uses(request.user, rows)})
    services.delete_several(user=request.user, files=rows)
    return redirect("files:list")
