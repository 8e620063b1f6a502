"""Views of the guide, for all signed-in users."""

import mimetypes

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import get_language
from django.views.decorators.http import require_safe

from config.help import search
from config.help.guide import ENGLISH, PICTURES, GuidePlace, page, pages_in, pictures
from config.help.rendering import address_of
from config.help.rendering import render as rendered

MAX_QUERY_LENGTH = 200  # characters
PICTURE_SECONDS = 24 * 60 * 60  # time that a browser may cache a picture


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the table of contents, or the hits of a search."""
    query = request.GET.get("q", "")[:MAX_QUERY_LENGTH]
    if not query.strip():
        return guide_page(request, "index")
    hits = [(section, address_of(section.place)) for section in search.find(query, _language())]
    return render(request, "help/search.html", {"query": query, "hits": hits, "section": "help"})


@require_safe
def guide_page(request: HttpRequest, path: str) -> HttpResponse:
    """Show a page in the reader's language or, without a translation, in English. For a folder, list its pages."""
    path = path.strip("/")
    language = _language()
    row = page(path, language)
    folder = row.folder if row else path
    neighbours = [(each, address_of(GuidePlace(each.path, ""))) for each in pages_in(folder, language) if folder]
    if row is None and not neighbours:
        raise Http404
    context = {
        "title": row.title if row else path.rpartition("/")[2].capitalize(),
        "content": rendered(row) if row else "",
        "content_language": row.language if row else ENGLISH,
        "neighbours": neighbours,
        "path": path,
        "section": "help",
    }
    return render(request, "help/page.html", context)


@require_safe
def picture(request: HttpRequest, name: str) -> HttpResponse:
    """Send a picture of the guide."""
    if name not in pictures():
        raise Http404
    content_type = mimetypes.guess_type(name)[0]
    headers = {"Cache-Control": f"private, max-age={PICTURE_SECONDS}"}
    return HttpResponse((PICTURES / name).read_bytes(), content_type=content_type, headers=headers)


def _language() -> str:
    return (get_language() or ENGLISH).split("-")[0]
