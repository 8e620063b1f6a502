"""Admin of personas, reminders, budget profiles and versions of prompts, and the comparison of two versions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, ForeignKey, ManyToManyField, Q, QuerySet
from django.forms import modelform_factory
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from unfold.admin import TabularInline

from accounts.models import User
from core.admin import (
    CheckboxColumns,
    Confirmation,
    RowAdmin,
    acting_user,
    button,
    confirmation_button,
    display,
    htmx_redirect,
)
from core.admin_choices import RowSelectMixin
from core.permissions import has_right
from core.sentences import Sentence
from llm.models import Model
from personas import services, tools
from personas.forms import PersonaForm, PromptForm, ReminderForm
from personas.models import BudgetProfile, Persona, PersonaShare, PromptVersion, Reminder, SummaryPrompt, SystemPrompt
from personas.sharing import services as sharing

MAX_WORDS = 4_000  # in a line; a longer line is compared as a whole, since comparing its words takes seconds
WORDS = re.compile(r"\s+|\w+|[^\w\s]")


def acting_person(request: HttpRequest) -> User:
    return cast("User", acting_user(request))


@display(description="Tokens")
def size(row: PromptVersion | Persona) -> str:
    return "–" if row.token_count is None else f"{row.token_count:,}"


def _remove_row_links(field: Any) -> Any:
    """Remove the links to the form of the chosen row. Each link adds 3 kB to a large page."""
    widget = field.widget
    widget.can_add_related = False
    widget.can_change_related = False
    widget.can_view_related = False
    widget.can_delete_related = False
    return field


class ShareInline(RowSelectMixin, TabularInline):  # type: ignore[misc]  # Unfold's own bases differ in the same way
    """Shares of a persona. The right to change personas includes the right to change their shares."""

    model = PersonaShare
    fields = ("user", "group", "role")
    autocomplete_fields = ("user", "group")
    extra = 0
    hide_title = True
    verbose_name = "share"
    verbose_name_plural = "Shared with (in addition to the owner and the people who see it anyway)"

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field: Any = super().formfield_for_dbfield(db_field, request, **kwargs)
        field.widget.attrs["aria-label"] = str(field.label)
        return _remove_row_links(field)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(acting_user(request), "view", Persona)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(acting_user(request), "change", Persona)

    has_change_permission = has_delete_permission = has_add_permission


@admin.register(Persona)
class PersonaAdmin(RowAdmin):
    """Personas of all users. Opening another user's private persona is recorded in its history."""

    empty_words = "No personas yet."
    form = PersonaForm
    inlines = (ShareInline,)
    list_display = ("name", "visibility", "owner", "model", "budget_profile", "version", size, "updated")
    list_filter = ("visibility", "model", "budget_profile")
    list_select_related = ("owner", "model", "budget_profile")
    search_fields = ("name", "=id", "=owner__username")
    search_help_text = "A name, the id of a persona, or a user name"
    autocomplete_fields = ("owner",)
    readonly_fields = ("version",)
    actions_detail = ("see_prompt",)
    fieldsets = (
        (None, {"fields": ("name", "icon", "colour", "description", "visibility", "owner", "version", "tag")}),
        ("Prompt", {"fields": ("instructions", "replaces_system_prompt", "date_awareness", "memory", "reminders")}),
        ("Answers with", {"fields": ("model", "effort", "budget_profile", "tools")}),
        ("Start", {"fields": ("starter_messages",)}),
    )

    @button("See what a model gets", icon="visibility", permission="view")
    def see_prompt(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Open the page of the persona, on which a message shows its prompt."""
        row = self.row(request, object_id)
        if Persona.objects.visible_to(acting_user(request)).filter(pk=row.pk).exists():
            return HttpResponseRedirect(f"{reverse('personas:persona', args=[row.pk])}#try-title")
        sentence = Sentence("This persona is private to {owner}, so only they can try it.", owner=str(row.owner))
        self.message_user(request, sentence, messages.WARNING)
        return HttpResponseRedirect(reverse("admin:personas_persona_change", args=[row.pk]))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Leave out the hidden field for administrators with only the right to view, since they get no form."""
        if self.has_add_permission(request) if obj is None else self.has_change_permission(request, obj):
            return self.fieldsets
        return [
            (title, {"fields": [name for name in part["fields"] if name != "tag"]}) for title, part in self.fieldsets
        ]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.acting_user = acting_user(request)
        if obj is not None and "reminders" in form.base_fields:
            chosen = Reminder.objects.filter(personas=obj).values("pk")
            form.base_fields["reminders"].queryset = Reminder.objects.filter(
                Q(pk__in=administered_reminders(request).values("pk")) | Q(pk__in=chosen)
            )
        return form

    def get_changeform_initial_data(self, request: HttpRequest) -> Any:
        return {"owner": acting_user(request).pk, **super().get_changeform_initial_data(request)}

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:
        response = super().change_view(request, object_id, form_url, extra_context)
        persona = self.get_object(request, object_id) if request.method == "GET" else None
        if persona is not None and not Persona.objects.visible_to(acting_user(request)).filter(pk=persona.pk).exists():
            services.record_opening(user=acting_person(request), persona=persona)
        return response

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field: Any = super().formfield_for_dbfield(db_field, request, **kwargs)
        return _remove_row_links(field) if isinstance(db_field, ForeignKey) else field

    def formfield_for_manytomany(self, db_field: ManyToManyField[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "reminders":
            kwargs["queryset"] = administered_reminders(request)
            kwargs["widget"] = CheckboxColumns()
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        tag = form.cleaned_data["tag"]
        owner = form.cleaned_data["owner"]
        others = {name: value for name, value in form.cleaned_data.items() if name not in ("reminders", "tag", "owner")}
        fields = cast("services.PersonaFields", others)
        if change:
            if owner is not None:
                fields["owner"] = owner
            based_on = {tag} if tag else None
            services.update_persona(user=acting_person(request), persona=obj, fields=fields, based_on=based_on)
        else:
            obj.pk = services.create_persona(user=acting_person(request), fields=fields, owner=owner).pk
        obj.refresh_from_db()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        services.set_reminders(
            user=acting_person(request), persona=form.instance, reminders=form.cleaned_data.get("reminders", ())
        )
        for formset in formsets:
            self.save_formset(request, form, formset, change)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: Any) -> None:
        """Store the shares. A row with a changed user or group replaces its previous share."""
        user = acting_person(request)
        persona = form.instance
        formset.save(commit=False)
        previous_shares = {row.pk: row for row in PersonaShare.objects.filter(persona=persona)}
        for row in formset.deleted_objects:
            sharing.remove_share(user=user, persona=persona, share=row.pk)
        for row in [*formset.new_objects, *(changed for changed, _fields in formset.changed_objects)]:
            previous = previous_shares.get(row.pk)
            if previous is not None and (previous.user_id, previous.group_id) != (row.user_id, row.group_id):
                sharing.remove_share(user=user, persona=persona, share=row.pk)
            name = row.user.get_username() if row.user is not None else ""
            sharing.share(user=user, persona=persona, username=name, group=row.group_id, role=row.role)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_persona(user=acting_person(request), persona=obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Leave out the rows of the relation to reminders."""
        _listed, counts, needed, protected = super().get_deleted_objects(objs, request)
        counts.pop(str(Persona.reminders.through._meta.verbose_name_plural), None)
        return [str(persona) for persona in objs], counts, needed, protected

    def get_custom_urls(self) -> Any:
        return (("tools/", "personas_persona_tools", self.tools_view),)

    def tools_view(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Ask the tool servers, and return a fragment with their checkboxes. `tools` are the names ticked so far."""
        if not (self.has_change_permission(request) or self.has_add_permission(request)):
            raise PermissionDenied
        chosen = request.GET.getlist("tools")
        offers = tools.query_servers(person=acting_user(request).pk)
        model = Model.objects.usable().order_by("-default", "created").first()
        context = {
            "servers": tools.tool_choices(offers, chosen),
            "chosen": chosen,
            "too_many": tools.excess_warning(offers, chosen, model),
        }
        return TemplateResponse(request, "admin/personas/persona/servers.html", context)


def administered_reminders(request: HttpRequest) -> QuerySet[Reminder]:
    """Return all reminders, except those that only other users' private personas have."""
    hidden = ~Q(personas=None) & ~Q(personas__in=Persona.objects.visible_to(acting_user(request)))
    return Reminder.objects.exclude(hidden, scope=Reminder.Scope.PERSONA)


@admin.register(Reminder)
class ReminderAdmin(RowAdmin):
    empty_words = "No reminders yet."
    form = ReminderForm
    list_display = ("text", "scope", "enabled", "used_by")
    list_filter = ("scope", "enabled")
    search_fields = ("text",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Reminder]:
        return administered_reminders(request).annotate(number_of_personas=Count("personas"))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.save_reminder(user=acting_person(request), reminder=obj)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_reminder(user=acting_person(request), reminder=obj)

    @display(description="Used by")
    def used_by(self, reminder: Reminder) -> str:
        if reminder.scope == Reminder.Scope.EVERYWHERE:
            return _("every conversation")
        number = getattr(reminder, "number_of_personas", 0)
        return ngettext("%(count)d persona", "%(count)d personas", number) % {"count": number}


class BudgetProfileAdmin(RowAdmin):
    """Budget profiles. `config.admin` registers a subclass, which also shows examples of the numbers."""

    empty_words = "No budget profile yet: the documented numbers apply."
    list_display = ("name", "is_default", "policy_name", "layout_name", "window_limit", "output_reserve")
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
                    "tool_share",
                    "omission_note",
                    *("note_form", "reminder_place", "always_remind_citations"),
                )
            },
        ),
        ("Documents", {"fields": ("expected_user", "ui_share", "select_margin", "project_share")}),
        ("Memory", {"fields": ("memory_share", "memory_most")}),
        (
            "Summaries",
            {
                "fields": (
                    *("summaries", "ceiling", "floor", "ceiling_share", "floor_share", "keep_recent"),
                    "summary_model",
                )
            },
        ),
        ("Turn", {"fields": ("max_cycles", "effort")}),
        ("Run through a checklist", {"fields": ("run_max_steps", "run_max_tokens", "run_max_minutes")}),
    )

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.save_profile(user=acting_person(request), profile=obj)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_profile(user=acting_person(request), profile=obj)

    @display(description="Default", ordering="default", label={"default": "success"})
    def is_default(self, profile: BudgetProfile) -> str | None:
        return "default" if profile.default else None

    @display(description="Policy", ordering="policy")
    def policy_name(self, profile: BudgetProfile) -> str:
        return profile.get_policy_display().partition(":")[0]

    @display(description="Layout", ordering="layout")
    def layout_name(self, profile: BudgetProfile) -> str:
        return profile.get_layout_display().partition(" (")[0]

    @display(description="Window at most", ordering="window")
    def window_limit(self, profile: BudgetProfile) -> str:
        return _("the model's") if profile.window is None else f"{profile.window:,}"

    @display(description="For the answer", ordering="reserved_output")
    def output_reserve(self, profile: BudgetProfile) -> str:
        return f"{profile.reserved_output:,}"

    @confirmation_button(
        "Make default",
        icon="check_circle",
        ask="Make this the default profile?",
        explain="It applies to every conversation whose persona has no other profile.",
    )
    def make_default(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        profile = self.row(request, object_id)
        services.set_default_profile(user=acting_person(request), profile=profile)
        return self.back(request, profile, Sentence("{profile} is now the default profile.", profile=profile))


@admin.register(SystemPrompt, SummaryPrompt)
class PromptAdmin(RowAdmin):
    """Versions of a prompt. They are added and activated, never changed or removed."""

    form = PromptForm
    list_display = ("__str__", "is_active", size, "note", "author", "created")
    list_display_links = ("__str__",)
    list_select_related = ("author",)
    search_fields = ("text", "note")
    actions = ("compare_selected",)
    actions_detail = ("edit", "activate", "compare_with_active")
    add_form_template = "admin/personas/prompt/add_form.html"

    def blank_version(self, request: HttpRequest) -> PromptVersion:
        """Return an unsaved version of the prompt of this page, with the text that a new form starts with."""
        return cast("PromptVersion", self.model())

    def page_url(self, page: str, prompt: PromptVersion, query: Mapping[str, object] = MappingProxyType({})) -> str:
        """Return the address of a page about the history of a prompt."""
        return reverse(f"admin:personas_{self.opts.model_name}_{page}", query=query or None)

    def history_url(self, prompt: PromptVersion) -> str:
        """Return the address of the page with all versions of a prompt."""
        return self.page_url("changelist", prompt)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        styled: Any = partial(self.formfield_for_dbfield, request=request)
        return modelform_factory(self.model, self.form, fields=("text", "note"), formfield_callback=styled)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_edit_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_add_permission(request)

    def has_activate_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return acting_user(request).has_perm(f"personas.change_{self.opts.model_name}")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            return ("text", "note", "activate", "based_on")
        return ("is_active", "note", "author", "created", size, "whole_text")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.get_fields(request, obj) if obj else ()

    def get_changeform_initial_data(self, request: HttpRequest) -> Any:
        """Start with the text of the version `?from=`, by default of the active one."""
        blank_version = self.blank_version(request)
        active = blank_version.history().filter(active=True).first()
        number = request.GET.get("from", "")
        is_number = number.isdecimal() and len(number) < 10
        start = blank_version.history().filter(version=number).first() if is_number else active
        return {"text": (start or blank_version).text, "based_on": active.version if active else 0}

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> Any:
        context = {"count_url": self.page_url("count", self.blank_version(request)), **(extra_context or {})}
        return super().add_view(request, form_url, context)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        fields = form.cleaned_data
        stored = services.save_prompt(
            user=acting_person(request),
            kind=self.model,
            text=fields["text"],
            note=fields["note"],
            activate=fields["activate"],
        )
        obj.pk = stored.pk
        obj.refresh_from_db()

    @display(description="Active", ordering="active", label={"active": "success"})
    def is_active(self, prompt: PromptVersion) -> str | None:
        return "active" if prompt.active else None

    @display(description="Text")
    def whole_text(self, prompt: PromptVersion) -> SafeString:
        return format_html('<div style="white-space: pre-wrap">{}</div>', prompt.text)

    @admin.action(description="Compare two versions", permissions=["view"])
    def compare_selected(self, request: HttpRequest, prompts: QuerySet[PromptVersion]) -> HttpResponse | None:
        versions = sorted(prompts.values_list("version", flat=True))
        if len(versions) != 2:
            self.message_user(request, Sentence("Select exactly two versions to compare."), messages.WARNING)
            return None
        query = {"old": versions[0], "new": versions[1]}
        return HttpResponseRedirect(self.page_url("compare", self.blank_version(request), query))

    @button("Edit", icon="edit", permission="edit")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Open the form for a new version with the text of this one, since versions never change."""
        prompt: PromptVersion = self.row(request, object_id)
        return HttpResponseRedirect(self.page_url("add", prompt, {"from": prompt.version}))

    @button("Compare with the active one", icon="compare_arrows", permission="view")
    def compare_with_active(self, request: HttpRequest, object_id: str) -> HttpResponse:
        prompt: PromptVersion = self.row(request, object_id)
        active = prompt.history().filter(active=True).first()
        old, new = sorted((prompt.version, active.version if active else 0))
        return HttpResponseRedirect(self.page_url("compare", prompt, {"old": old, "new": new}))

    @confirmation_button(
        "Make active",
        icon="history",
        ask="Make this version active?",
        explain="The next answers use it. You can activate an earlier version in the same way. No version is lost.",
        permission="activate",
    )
    def activate(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        prompt = self.row(request, object_id)
        services.activate_prompt(user=acting_person(request), prompt=prompt)
        self.message_user(request, Sentence("{prompt} is active.", prompt=prompt), messages.SUCCESS)
        return htmx_redirect(self.history_url(prompt))

    def get_custom_urls(self) -> Any:
        name = f"personas_{self.opts.model_name}"
        return (
            ("compare/", f"{name}_compare", self.compare_view),
            ("count/", f"{name}_count", self.count_view),
        )

    def count_view(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Return a fragment with the tokens of a text that is being written, as the default model counts them."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        count = services.measure_text(request.POST.get("text", ""))
        return TemplateResponse(request, "personas/_count.html", {"count": count})

    def compare_view(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Compare the versions `?old=` and `?new=`. An unknown version means the newest one."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        prompts = {str(prompt.version): prompt for prompt in self.comparable_versions(request)}
        newest = next(iter(prompts.values()), self.model(version=0))
        old, new = (prompts.get(request.GET.get(name, ""), newest) for name in ("old", "new"))
        context = {
            **self.admin_site.each_context(request),
            "title": _("Compare %(old)s with %(new)s") % {"old": old, "new": new},
            "opts": self.opts,
            "prompts": prompts.values(),
            "text_name": getattr(old, "name", ""),
            "old": old,
            "new": new,
            "rows": compare_texts(old.text, new.text),
        }
        return TemplateResponse(request, "admin/personas/prompt/compare.html", context)

    def comparable_versions(self, request: HttpRequest) -> Sequence[PromptVersion]:
        """Return the versions that can be compared, newest first."""
        return list(self.blank_version(request).history().select_related("author"))


@dataclass(frozen=True, slots=True)
class DiffSpan:
    text: str
    changed: bool


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A line of the old text and its line in the new text. One is None if only the other text has the line."""

    old: list[DiffSpan] | None
    new: list[DiffSpan] | None

    @property
    def kind(self) -> str:
        """Return “same”, “changed”, “removed” or “added”."""
        if self.old is None:
            return "added"
        if self.new is None:
            return "removed"
        return "changed" if any(span.changed for span in (*self.old, *self.new)) else "same"


def compare_texts(old: str, new: str) -> list[DiffRow]:
    """Return the differences of two texts by lines, and by words inside a changed line."""
    return [row for block in _changed_blocks(old.splitlines(), new.splitlines()) for row in _diff_rows(*block)]


def _changed_blocks(before: list[str], after: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    for _tag, low, high, new_low, new_high in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        yield before[low:high], after[new_low:new_high]


def _diff_rows(before: list[str], after: list[str]) -> Iterator[DiffRow]:
    for old, new in zip_longest(before, after):
        if old is None:
            yield DiffRow(None, [DiffSpan(new, True)])
        elif new is None:
            yield DiffRow([DiffSpan(old, True)], None)
        else:
            yield DiffRow(*_diff_spans(old, new))


def _diff_spans(old: str, new: str) -> tuple[list[DiffSpan], list[DiffSpan]]:
    before = WORDS.findall(old)
    after = WORDS.findall(new)
    if max(len(before), len(after)) > MAX_WORDS:
        return [DiffSpan(old, old != new)], [DiffSpan(new, old != new)]
    old_spans = []
    new_spans = []
    for tag, low, high, new_low, new_high in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        old_spans.append(DiffSpan("".join(before[low:high]), tag != "equal"))
        new_spans.append(DiffSpan("".join(after[new_low:new_high]), tag != "equal"))
    return [span for span in old_spans if span.text], [span for span in new_spans if span.text]
