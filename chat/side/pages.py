"""What the templates beside every page show: the list of conversations, and what was just deleted."""

from typing import Any

from accounts.middleware import SignedInRequest as Request
from chat.deletion import deleted_conversation
from chat.side.groups import chosen_view, side


def side_context(request: Request) -> dict[str, Any]:
    view = chosen_view(request.session, request.GET.get("side"))
    after = request.GET.get("conversations")
    gone = request.GET.get("deleted")
    return {
        "side": side(request.user, view, after),
        "deleted": deleted_conversation(request.user, gone) if gone else None,
    }
