"""Summaries on the page of a conversation, and the forms that change them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy

from accounts.access.sessions import SignedInRequest as Request
from chat.context.summary import SECTION_SHARES
from chat.models import Conversation, Summary, SummaryJob
from chat.models.conversation_state import visible_conversation
from chat.models.summary import in_force
from chat.summaries import services
from chat.summaries.headings import SummarySection
from core.errors import ProductError
from core.requests import with_row
from personas.models import SummaryPrompt

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

NAMES = {
    "Earlier": gettext_lazy("Earlier"),
    "This month": gettext_lazy("This month"),
    "Today": gettext_lazy("Today"),
    "Now": gettext_lazy("Now"),
}


class SectionField(TypedDict):
    """A section on the page; `label` is its translated name."""

    name: str
    label: "StrOrPromise"
    text: str


@dataclass(frozen=True, slots=True)
class SummaryView:
    """A summary on the page. `sections`: all four, in order. `stale`: the summary prompt has changed since."""

    row: Summary
    sections: list[SectionField]
    stale: bool


def summary_of_branch(conversation: Conversation) -> tuple[SummaryView | None, SummaryJob | None]:
    """Return the active summary of the shown branch, and the newest job if it failed.

    In a conversation without jobs this takes one query.
    """
    newest = SummaryJob.objects.filter(conversation=conversation).order_by("-id").first()
    if newest is None:
        return None, None
    summary = in_force(conversation.pk, conversation.leaf_id)
    failed = newest if newest.status == SummaryJob.Status.FAILED else None
    if summary is None:
        return None, failed
    active = SummaryPrompt.objects.filter(active=True).values_list("version", flat=True).first() or 0
    return SummaryView(summary, _sections(_texts(summary)), stale=summary.prompt_version != active), failed


def _texts(summary: Summary) -> dict[str, str]:
    return {section["name"]: section["text"] for section in summary.sections}


def _sections(texts: Mapping[str, str]) -> list[SectionField]:
    return [{"name": name, "label": NAMES[name], "text": texts.get(name, "")} for name in SECTION_SHARES]


@with_row(visible_conversation)
def summarise(request: Request, conversation: Conversation) -> HttpResponse:
    services.summarise_now(user=request.user, conversation=conversation, model=request.POST.get("model"))
    return redirect("chat:conversation", conversation.pk)


@with_row(services.visible_summary, "GET", "POST")
def edit(request: Request, summary: Summary) -> HttpResponse:
    """Show the sections as a form. If the texts cannot be saved, the form keeps them."""
    texts = _texts(summary)
    problem: ProductError | None = None
    if request.method == "POST":
        texts = {name: request.POST.get(name, "") for name in SECTION_SHARES}
        try:
            sections = [SummarySection(name=name, text=text) for name, text in texts.items()]
            services.edit_summary(user=request.user, summary=summary, sections=sections)
            return redirect("chat:conversation", summary.conversation_id)
        except ProductError as error:
            problem = error
    context = {"summary": summary, "conversation": summary.conversation, "fields": _sections(texts), "problem": problem}
    return render(request, "chat/summary_edit.html", context, status=problem.status if problem else 200)


@with_row(services.visible_summary)
def rebuild(request: Request, summary: Summary) -> HttpResponse:
    services.rebuild_summary(user=request.user, summary=summary)
    return redirect("chat:conversation", summary.conversation_id)


@with_row(services.visible_summary)
def undo(request: Request, summary: Summary) -> HttpResponse:
    services.undo_summary(user=request.user, summary=summary)
    return redirect("chat:conversation", summary.conversation_id)
