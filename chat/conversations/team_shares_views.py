"""The pages that share a conversation in the workspace, and those of people with whom it is shared."""

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request
from chat.conversations import copying
from chat.conversations import team_shares as sharing
from chat.conversations.sharing import shared_page
from chat.models import Conversation, TeamShare
from chat.models.conversation_state import visible_conversation
from core.errors import ProductError
from core.requests import with_row

LISTED = 200  # shares on the list of what others share


@with_row(visible_conversation, "GET", "POST")
def team_shares(request: Request, row: Conversation) -> HttpResponse:
    """Show with whom a conversation is shared, in a dialog or as a page; a POST shares it."""
    problem: ProductError | None = None
    if request.method == "POST":
        try:
            sharing.share_conversation(
                user=request.user, conversation=row, recipient=_recipient(request), terms=_terms(request)
            )
        except ProductError as error:
            problem = error
        else:
            if not request.htmx:
                return redirect("chat:team_shares", row.pk)
    return _shares_page(request, row, problem)


def _recipient(request: Request) -> sharing.Recipient:
    return sharing.Recipient(
        username=request.POST.get("username", ""),
        group=request.POST.get("group") or None,
        project=request.POST.get("project") or None,
    )


def _terms(request: Request) -> sharing.TeamTerms:
    return sharing.TeamTerms(
        may_copy="may_copy" in request.POST,
        shows_context="shows_context" in request.POST,
        names_sources="names_sources" in request.POST,
    )


def _shares_page(request: Request, row: Conversation, problem: ProductError | None = None) -> HttpResponse:
    context = {
        "conversation": row,
        "team_shares": sharing.list_shares(request.user).filter(conversation=row),
        "preview": sharing.preview_share(row),
        "groups": sharing.groups_to_choose(request.user),
        "projects": sharing.projects_to_choose(request.user),
        "problem": problem,
        "asked": request.POST if problem else {},
    }
    if request.htmx:  # the dialog shows the form with the error; a status of 200 keeps the browser console clean
        return render(request, "chat/_team_share.html", context)
    return render(request, "chat/team_share.html", context, status=problem.status if problem else 200)


@with_row(sharing.get_own_or_received_share)
def end(request: Request, row: TeamShare) -> HttpResponse:
    """Withdraw a share of one's own, or remove one that was received."""
    sharing.end_team_share(user=request.user, share=row)
    if row.conversation.owner_id != request.user.pk:
        return redirect("chat:received")
    return (
        _shares_page(request, row.conversation) if request.htmx else redirect("chat:team_shares", row.conversation_id)
    )


@require_GET
def received(request: Request) -> HttpResponse:
    """List what others share with the user. A script asks for the list again when it changes."""
    rows = list(sharing.list_received(request.user)[: LISTED + 1])
    context = {"section": "received", "received": rows[:LISTED], "most": LISTED if len(rows) > LISTED else 0}
    return render(request, "chat/_received.html" if request.htmx else "chat/received.html", context)


@with_row(sharing.get_received_share, "GET")
def read(request: Request, row: TeamShare) -> HttpResponse:
    after = request.GET.get("after", "")
    page = shared_page(row, int(after) if after.isascii() and after.isdigit() and len(after) < 9 else -1)
    context = {"section": "received", "page": page, "share": row, "may_end": sharing.may_end(request.user, row)}
    return render(request, "chat/received_share.html", context)


@with_row(sharing.get_received_share)
def copy(request: Request, row: TeamShare) -> HttpResponse:
    """Copy a shared conversation, and open the copy."""
    return redirect("chat:conversation", copying.copy_shared(user=request.user, share=row).pk)
