"""The pages of shared conversations: one's own links, and what is behind one, for anybody."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access.sessions import SignedInRequest as Request
from chat.conversations.sharing import services as sharing
from chat.models import Share
from chat.models.conversation_state import visible_conversation

LISTED = 200


@require_http_methods(["GET", "POST"])
def share(request: Request, pk: UUID) -> HttpResponse:
    """The links of a conversation; a POST makes one."""
    found = visible_conversation(request.user, pk)
    if request.method == "POST":
        sharing.share(user=request.user, conversation=found)
        return redirect("chat:share", pk)
    shares = [*sharing.shares_of(request.user).filter(conversation=found)]
    return render(request, "chat/share.html", {"conversation": found, "shares": _linked(request, shares)})


@require_GET
def shares(request: Request) -> HttpResponse:
    found = [*sharing.shares_of(request.user)[:LISTED]]
    return render(
        request, "chat/shares.html", {"section": "settings", "place": "shares", "shares": _linked(request, found)}
    )


@require_POST
def end(request: Request, pk: UUID) -> HttpResponse:
    found = sharing.visible_share(request.user, pk)
    sharing.end_share(user=request.user, share=found)
    if request.POST.get("from") == "list":
        return redirect("chat:shares")
    return redirect("chat:share", found.conversation_id)


@require_GET
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """For anybody who has the link; no search engine lists it, and no link in it tells where it was followed."""
    after = request.GET.get("after", "")
    shown = sharing.shared_page(token, int(after) if after.isascii() and after.isdigit() and len(after) < 9 else -1)
    response = render(request, "chat/shared.html", {"page": shown})
    response["X-Robots-Tag"] = "noindex, nofollow, noarchive"
    response["Referrer-Policy"] = "no-referrer"
    response["Cache-Control"] = "private, no-store"
    return response


def _linked(request: Request, found: list[Share]) -> list[tuple[Share, str]]:
    return [(each, request.build_absolute_uri(reverse("chat:shared", args=[each.token]))) for each in found]
