"""Downloads of conversations, for people and for programs (`/api/v1/`)."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET

from accounts.middleware import SignedInRequest as Request
from accounts.models import User
from accounts.permissions import user_of_request
from chat import exporting
from chat.models import Conversation
from llm.errors import NotFound


@login_required
@require_GET
def export(request: Request, pk: UUID, kind: str) -> HttpResponse:
    return _one(request.user, pk, kind)


@login_required
@require_GET
def export_all(request: Request) -> StreamingHttpResponse:
    return _all(request.user)


@require_GET
def api_export(request: HttpRequest, pk: UUID) -> HttpResponse:
    """`?kind=md` or `json`, the default."""
    return _one(user_of_request(request, "chat"), pk, request.GET.get("kind", "json"))


@require_GET
def api_export_all(request: HttpRequest) -> StreamingHttpResponse:
    return _all(user_of_request(request, "chat"))


def _one(user: User, pk: UUID, kind: str) -> HttpResponse:
    rows = Conversation.objects.visible_to(user).select_related("persona", "project")
    found = rows.filter(pk=pk).first()
    if found is None:
        raise NotFound("conversation")
    response = HttpResponse(exporting.export(found, kind), content_type=exporting.KINDS[kind])
    name = exporting.file_name(found, kind)
    response["Content-Disposition"] = content_disposition_header(as_attachment=True, filename=name) or "attachment"
    response["Cache-Control"] = "private, no-store"
    return response


def _all(user: User) -> StreamingHttpResponse:
    response = StreamingHttpResponse(exporting.everything(user), content_type="application/zip")
    response["Content-Disposition"] = 'attachment; filename="conversations.zip"'
    response["Cache-Control"] = "private, no-store"
    return response
