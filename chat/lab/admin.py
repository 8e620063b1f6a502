"""The prompt lab in the admin. Only the owner of a conversation sees its texts."""

from typing import Any, ClassVar, cast

from django import forms
from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import ForeignKey
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy
from django.utils.translation import gettext as _
from unfold.widgets import UnfoldAdminTextInputWidget, UnfoldBooleanWidget

from accounts.models import User
from chat.lab import services
from chat.lab.models import Replay
from chat.prompts.wording import KINDS, SECTIONS, state_of
from core.admin import STATE_COLOURS, RecordAdmin, acting_user, display
from core.errors import ProductError
from core.i18n import grouped
from llm.models import Model

HEADINGS = (
    *(gettext_lazy("Tokens"), gettext_lazy("Planned"), gettext_lazy("Cached, in percent"), gettext_lazy("Planned")),
    *(gettext_lazy("Left out"), gettext_lazy("Planned"), gettext_lazy("Cost"), gettext_lazy("Planned")),
)
CHOICES = ("layout", "policy", "note_form", "reminder_place", "citation_reminder")  # they override the profile
CHANGED_SETTINGS = ("model", "profile", *CHOICES, "system_prompt")


class ReplayForm(forms.ModelForm[Replay]):
    """The form of a new replay, of one turn or of many. The admin sets `user`, the author."""

    user: User

    turn = forms.CharField(required=False, widget=forms.HiddenInput)
    conversation_id = forms.CharField(
        label="Conversation",
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text=(
            "The id of a conversation whose newest turns are planned again. Empty: a sample of all conversations."
        ),
    )
    asks = forms.BooleanField(
        label="Ask the model, too",
        required=False,
        widget=UnfoldBooleanWidget,
        help_text=f"Each turn is a model call that costs money. At most {Replay.MAX_ASKED} turns, and only of your "
        "own conversations, since the texts of other people are private.",
    )

    class Meta:
        model = Replay
        fields: ClassVar = ["most", *CHANGED_SETTINGS, "asks"]

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        if self.errors:
            return data
        fields = {name: data[name] for name in (*CHANGED_SETTINGS, "asks")}
        try:
            turn = services.get_turn(data["turn"]) if data["turn"] else None
            conversation = turn.conversation if turn is not None else None
            if data["conversation_id"] and turn is None:
                conversation = services.get_conversation(data["conversation_id"])
            turn_id = turn.pk if turn is not None else None
            most = 1 if turn is not None else data["most"]
            job = Replay(conversation=conversation, turn_id=turn_id, most=most, **fields)
            services.check_replay(user=self.user, job=job)
        except ProductError as error:
            raise forms.ValidationError(str(error.sentence), code=error.code) from error
        self.instance.conversation = conversation
        if turn is not None:
            self.instance.turn_id, self.instance.most = turn.pk, 1
        return data


def _display_value(job: Replay, name: str) -> object:
    """Return the value of a changed setting; for a choice, its label."""
    return getattr(job, f"get_{name}_display")() if name in CHOICES else getattr(job, name)


def _asks_for_turn(request: HttpRequest) -> bool:
    """Return whether the form of a new replay is for one turn, which `turn` names."""
    return bool(request.POST.get("turn") or request.GET.get("turn"))


@admin.register(Replay)
class ReplayAdmin(RecordAdmin):
    empty_words = "Nothing was planned again yet. Begin here, or with “Plan it again with …” on the page of a turn."
    add_words = "Plan past turns again with …"
    form = ReplayForm
    change_form_template = "admin/chat/replay/change_form.html"
    list_display = ("created", "author", "turns_of", "instead", "status_label", "progress")
    list_select_related = ("author", *(name for name in CHANGED_SETTINGS if name not in CHOICES))
    list_filter = ("status",)
    search_fields = ("=id", "=conversation__id", "=author__username")
    search_help_text = "The id of a replay or conversation, or a user name"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return acting_user(request).has_perm("chat.add_replay")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return acting_user(request).has_perm("chat.delete_replay")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            place = ("turn",) if _asks_for_turn(request) else ("conversation_id", "most")
            return (*place, *CHANGED_SETTINGS, "asks")
        return ("author", "created", "turns_of", "instead", "asks")  # the results show the fields that change

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is not None:
            return super().get_form(request, obj, change, form=forms.ModelForm, **kwargs)
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.user = acting_user(request)
        return form

    def formfield_for_foreignkey(self, db_field: "ForeignKey[Any, Any]", request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "model":
            kwargs["queryset"] = Model.objects.usable()
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.start_replay(user=cast("User", acting_user(request)), job=obj)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:chat_replay_change", args=[obj.pk]))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        title = gettext("Plan it again with …") if _asks_for_turn(request) else gettext("Plan past turns again with …")
        return super().add_view(request, form_url, {"title": title, **(extra_context or {})})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        job = self.get_object(request, object_id)
        context = {**self._results(request, job), **(extra_context or {})} if job is not None else extra_context
        return super().change_view(request, object_id, form_url, context)

    def _results(self, request: HttpRequest, job: Replay) -> dict[str, Any]:
        """Return the template context of the results: the totals, and one page of turns, in the order of planning."""
        rows = job.turns.select_related("turn__conversation", "turn__answer").defer("turn__report")
        page = Paginator(rows, self.list_per_page).get_page(request.GET.get("page"))
        totals = job.totals
        return {
            "job": job,
            "headings": HEADINGS,
            "totals": services.format_figures(totals["sent"], totals["planned"]) if totals else (),
            "page": page,
            "rows": [
                {
                    "row": row,
                    "cells": services.format_figures(row.sent, row.planned),
                    "changes": [
                        {**change, "kind": KINDS.get(change["kind"]) or SECTIONS[change["kind"]]}
                        | {"words": state_of(change), "words_before": state_of(change["was"]) if change["was"] else ""}
                        for change in row.changes
                    ],
                    "own": row.turn.conversation.owner_id == request.user.pk,
                }
                for row in page
            ],
        }

    @display(description="Turns of")
    def turns_of(self, job: Replay) -> str:
        if job.turn_id is not None:
            return _("One turn of conversation %(id)s") % {"id": job.conversation_id}
        if job.conversation_id is None:
            return _("a sample of all turns")
        return _("Conversation %(id)s") % {"id": job.conversation_id}

    @display(description="Instead")
    def instead(self, job: Replay) -> str:
        fields = [field for field in Replay._meta.concrete_fields if field.name in CHANGED_SETTINGS]
        named = [(field.verbose_name, _display_value(job, field.name)) for field in fields]
        settings = [f"{name}: {value}" for name, value in named if value]
        return ", ".join(settings) or _("nothing")

    @display(description="Status", ordering="status", label=STATE_COLOURS)
    def status_label(self, job: Replay) -> str:
        return job.status

    @display(description="Planned")
    def progress(self, job: Replay) -> str:
        numbers = {"planned": grouped(job.planned), "total": grouped(job.total)}
        if not job.totals:
            return _("%(planned)s of %(total)s") % numbers
        return _("%(planned)s of %(total)s, %(compared)s compared") % {
            **numbers,
            "compared": grouped(job.totals["compared"]),
        }
