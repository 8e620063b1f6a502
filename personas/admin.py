"""Who answers, and under which rules, as administrators set it up."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import Count, ManyToManyField, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.decorators import display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from llm.administration import Confirmation, RowAdmin, acting, confirmed, go
from personas import services
from personas.forms import PersonaForm
from personas.models import BudgetProfile, Persona, Reminder
from personas.prompt_admin import PromptAdmin, person, size

__all__ = ["BudgetProfileAdmin", "PersonaAdmin", "PromptAdmin", "ReminderAdmin"]


@admin.register(Persona)
class PersonaAdmin(RowAdmin):
    """Those of the workspace and the administrator's own; other people's private ones are theirs alone."""

    form = PersonaForm
    list_display = ("name", "visibility", "owner", "model", "budget_profile", "version", size, "updated")
    list_filter = ("visibility", "model", "budget_profile")
    list_select_related = ("owner", "model", "budget_profile")
    search_fields = ("name", "description")
    readonly_fields = ("owner", "version")
    fieldsets = (
        (None, {"fields": ("name", "description", "visibility", "owner", "version")}),
        ("Prompt", {"fields": ("instructions", "replaces_system_prompt", "date_awareness", "reminders")}),
        ("Answers with", {"fields": ("model", "budget_profile", "tools")}),
        ("Start", {"fields": ("starter_messages",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Persona]:
        rows: QuerySet[Persona] = super().get_queryset(request)
        return rows.filter(pk__in=Persona.objects.visible_to(acting(request)))

    def formfield_for_manytomany(self, db_field: ManyToManyField[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "reminders":
            kwargs["queryset"] = reminders_for(request)
            kwargs["widget"] = UnfoldAdminCheckboxSelectMultipleWidget()
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        fields = {name: value for name, value in form.cleaned_data.items() if name != "reminders"}
        if change:
            services.update_persona(user=person(request), persona=obj, fields=fields)
        else:
            obj.pk = services.create_persona(user=person(request), fields=fields).pk
            obj.refresh_from_db()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        services.set_reminders(
            user=person(request), persona=form.instance, reminders=form.cleaned_data.get("reminders", ())
        )

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_persona(user=person(request), persona=obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Persona]) -> None:
        for persona in queryset:
            services.delete_persona(user=person(request), persona=persona)


def reminders_for(request: HttpRequest) -> QuerySet[Reminder]:
    """All but those that only other people's private personas use."""
    hidden = ~Q(personas=None) & ~Q(personas__in=Persona.objects.visible_to(acting(request)))
    return Reminder.objects.exclude(hidden, scope=Reminder.Scope.PERSONA)


@admin.register(Reminder)
class ReminderAdmin(RowAdmin):
    list_display = ("text", "scope", "enabled", "used_by")
    list_filter = ("scope", "enabled")
    search_fields = ("text",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Reminder]:
        return reminders_for(request).annotate(number_of_personas=Count("personas"))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.save_reminder(user=person(request), reminder=obj)

    @display(description="Used by")
    def used_by(self, reminder: Reminder) -> str:
        if reminder.scope == Reminder.Scope.EVERYWHERE:
            return "every conversation"
        return f"{getattr(reminder, 'number_of_personas', 0)} personas"


class BudgetProfileAdmin(RowAdmin):
    """Registered by `config.admin`, which shows beside the fields what the engine makes of the numbers."""

    list_display = ("name", "is_default", "policy", "layout", "window", "reserved_output", "summaries")
    list_filter = ("policy", "layout")
    search_fields = ("name",)
    readonly_fields = ("is_default",)
    actions_detail = ("make_default",)
    fieldsets = (
        (None, {"fields": ("name", "is_default", "policy", "layout")}),
        (
            "Room for the prompt",
            {
                "fields": (
                    *("window", "reserved_output", "buffer", "message_overhead", "safety_margin", "catch_all_margin"),
                    "omission_note",
                )
            },
        ),
        ("Documents", {"fields": ("expected_user", "ui_share", "select_margin", "project_share")}),
        (
            "Summaries",
            {
                "fields": (
                    *("summaries", "ceiling", "floor", "ceiling_share", "floor_share", "keep_recent"),
                    "summary_model",
                )
            },
        ),
        ("Turn", {"fields": ("max_cycles",)}),
        ("Run through a checklist", {"fields": ("run_max_steps", "run_max_tokens", "run_max_minutes")}),
    )

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.save_profile(user=person(request), profile=obj)

    @display(description="Default", ordering="default", label={"default": "success"})
    def is_default(self, profile: BudgetProfile) -> str | None:
        return "default" if profile.default else None

    @confirmed(
        "Make default",
        icon="check_circle",
        ask="Make this the default profile?",
        explain="It holds for every conversation whose persona names no other.",
    )
    def make_default(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        profile = self.row(request, object_id)
        services.set_default_profile(user=person(request), profile=profile)
        self.message_user(request, f"{profile} is now the default profile.", messages.SUCCESS)
        return go(reverse("admin:personas_budgetprofile_change", args=[profile.pk]))
