"""The page of search."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request
from chat.conversations.search import messages as message_search
from chat.conversations.search.words import MAX_QUERY
from core.lookups import identifier


@require_GET
def search(request: Request) -> HttpResponse:
    query = request.GET.get("q", "")[:MAX_QUERY]
    after = request.GET.get("after")
    found = message_search.search(user=request.user, query=query, after=identifier(after, "page") if after else None)
    fragment = request.htmx and after
    context = {"section": "search", "query": query, "found": found, "first": not after}
    return render(request, "chat/_found.html" if fragment else "chat/search.html", context)
