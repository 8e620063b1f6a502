"""Prompt versions as administrators see them: a history that is added to, compared, and gone back in."""

from typing import Any, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.forms import modelform_factory
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from accounts.models import User
from llm.administration import Confirmation, RowAdmin, acting, button, confirmed, go
from llm.tokens import CATCH_ALL
from personas import services
from personas.diff import compare
from personas.forms import PromptForm
from personas.models import Persona, PromptVersion, SummaryPrompt, SystemPrompt


def person(request: HttpRequest) -> User:
    return cast("User", acting(request))


@display(description="Tokens")
def size(row: PromptVersion | Persona) -> str:
    counted = row.tokens.get(CATCH_ALL)
    return "–" if counted is None else f"{counted:,}"


@admin.register(SystemPrompt, SummaryPrompt)
class PromptAdmin(RowAdmin):
    """A history: versions are added and activated, never changed or removed."""

    form = PromptForm
    list_display = ("__str__", "is_active", size, "note", "author", "created")
    list_display_links = ("__str__",)
    list_select_related = ("author",)
    search_fields = ("text", "note")
    actions = ("compare_selected",)
    actions_detail = ("activate", "compare_with_active")

    @property
    def rows(self) -> "QuerySet[PromptVersion]":
        return cast("QuerySet[PromptVersion]", self.model._default_manager.all())

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        return modelform_factory(self.model, PromptForm, fields=("text", "note"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_activate_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return acting(request).has_perm(f"personas.change_{self.opts.model_name}")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            return ("text", "note", "activate", "based_on")
        return ("is_active", "note", "author", "created", size, "whole_text")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.get_fields(request, obj) if obj else ()

    def get_changeform_initial_data(self, request: HttpRequest) -> Any:
        active = self.rows.filter(active=True).first()
        start = {"text": active.text, "based_on": active.version} if active else {"based_on": 0}
        return start | super().get_changeform_initial_data(request)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        given = form.cleaned_data
        stored = services.save_prompt(
            user=person(request), kind=self.model, text=given["text"], note=given["note"], activate=given["activate"]
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
            self.message_user(request, "Select exactly two versions to compare.", messages.WARNING)
            return None
        return HttpResponseRedirect(self.comparison_url(*versions))

    @button("Compare with the active one", icon="compare_arrows", permission="view")
    def compare_with_active(self, request: HttpRequest, object_id: str) -> HttpResponse:
        prompt: PromptVersion = self.row(request, object_id)
        active = self.rows.filter(active=True).first() or prompt
        return HttpResponseRedirect(self.comparison_url(*sorted((prompt.version, active.version))))

    @confirmed(
        "Make active",
        icon="history",
        ask="Make this version active?",
        explain="The next answers are written under it. An earlier version comes back this way; no version is lost.",
        permission="activate",
    )
    def activate(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        prompt = self.row(request, object_id)
        services.activate_prompt(user=person(request), prompt=prompt)
        self.log_change(request, prompt, "Made active.")
        self.message_user(request, f"{prompt} is active.", messages.SUCCESS)
        return go(reverse(f"admin:personas_{self.opts.model_name}_changelist"))

    def get_custom_urls(self) -> Any:
        return (("compare/", f"personas_{self.opts.model_name}_compare", self.compare_view),)

    def compare_view(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """`?old=` and `?new=` are versions; whatever is no version is the newest."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        prompts = {str(prompt.version): prompt for prompt in self.rows.select_related("author")}
        newest = next(iter(prompts.values()), self.model(version=0))
        old, new = (prompts.get(request.GET.get(name, ""), newest) for name in ("old", "new"))
        context = {
            **self.admin_site.each_context(request),
            "title": f"Compare {old} with {new}",
            "opts": self.opts,
            "prompts": prompts.values(),
            "old": old,
            "new": new,
            "rows": compare(old.text, new.text),
        }
        return TemplateResponse(request, "admin/personas/prompt/compare.html", context)

    def comparison_url(self, old: int, new: int) -> str:
        return reverse(f"admin:personas_{self.opts.model_name}_compare") + f"?old={old}&new={new}"
