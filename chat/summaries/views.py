"""What a person does with summaries on a conversation's page."""

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from accounts.access.sessions import SignedInRequest as Request
from chat.context.summary import SECTION_SHARES
from chat.models.conversation_state import visible_conversation
from chat.summaries import services
from chat.summaries.pages import NAMES
from core.errors import ProductError


@require_POST
def summarise(request: Request, pk: UUID) -> HttpResponse:
    conversation = visible_conversation(request.user, pk)
    services.summarise_now(user=request.user, conversation=conversation)
    return redirect("chat:conversation", conversation.pk)


@require_http_methods(["GET", "POST"])
def edit(request: Request, pk: UUID) -> HttpResponse:
    """The sections as a form; what was written stays when it cannot be saved."""
    summary = services.visible_summary(request.user, pk)
    texts = {section["name"]: section["text"] for section in summary.sections}
    problem: ProductError | None = None
    if request.method == "POST":
        texts = {name: request.POST.get(name, "") for name in SECTION_SHARES}
        try:
            sections = [{"name": name, "text": text} for name, text in texts.items()]
            services.edit_summary(user=request.user, summary=summary, sections=sections)
            return redirect("chat:conversation", summary.conversation_id)
        except ProductError as error:
            problem = error
    fields = [{"name": name, "label": NAMES[name], "text": texts.get(name, "")} for name in SECTION_SHARES]
    context = {"summary": summary, "conversation": summary.conversation, "fields": fields, "problem": problem}
    return render(request, "chat/summary_edit.html", context, status=problem.status if problem else 200)


@require_POST
def rebuild(request: Request, pk: UUID) -> HttpResponse:
    summary = services.visible_summary(request.user, pk)
    services.rebuild_summary(user=request.user, summary=summary)
    return redirect("chat:conversation", summary.conversation_id)


@require_POST
def undo(request: Request, pk: UUID) -> HttpResponse:
    summary = services.visible_summary(request.user, pk)
    services.undo_summary(user=request.user, summary=summary)
    return redirect("chat:conversation", summary.conversation_id)
