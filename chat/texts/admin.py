"""Admin pages for the texts that the product sends to a model: a list of all texts, and the versions of each."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from chat.texts.examples import example
from core.errors import ProductError
from core.sentences import Sentence
from llm import tokens
from personas import services
from personas.admin import PromptAdmin, acting_person
from personas.forms import TextForm
from personas.models import PromptText
from personas.texts import GROUPS, TEXTS, TextDefinition, Texts, TextVersion, check_text


class ListedText(NamedTuple):
    """A text in the list. `active`: the version that is sent; None for the built-in text."""

    name: str
    about: TextDefinition
    active: PromptText | None
    tokens: int


@cache
def built_in_tokens(name: str) -> int:
    return tokens.count(TEXTS[name].built_in)


def size(prompt: PromptText) -> int:
    return (prompt.token_count or 0) if prompt.version else built_in_tokens(prompt.name)


@admin.register(PromptText)
class TextAdmin(PromptAdmin):
    """Lists all texts, also those without a version of their own. Each has a page with its history."""

    form = TextForm
    add_form_template = "admin/personas/text/add_form.html"
    change_form_template = "admin/personas/text/change_form.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[PromptText]:
        rows: QuerySet[PromptText] = super().get_queryset(request)
        return rows.filter(name__in=TEXTS)  # an earlier version of the product may have had other texts

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, obj, change, **kwargs)  # each request gets a new class
        form.name = (obj or self.blank_version(request)).name
        return form

    def blank_version(self, request: HttpRequest) -> PromptText:
        name = request.GET.get("name", "")
        if name not in TEXTS:
            raise Http404
        return PromptText(name=name, text=TEXTS[name].built_in)

    def page_url(self, page: str, prompt: Any, query: Mapping[str, object] = MappingProxyType({})) -> str:
        return super().page_url(page, prompt, {"name": prompt.name, **query})

    def history_url(self, prompt: Any) -> str:
        return reverse("admin:personas_prompttext_text", args=[prompt.name])

    def comparable_versions(self, request: HttpRequest) -> list[PromptText]:
        return versions_of(self.blank_version(request).name)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        fields = form.cleaned_data
        stored = services.save_text(
            user=acting_person(request),
            name=obj.name,
            text=fields["text"],
            note=fields["note"],
            activate=fields["activate"],
        )
        obj.pk = stored.pk
        obj.refresh_from_db()

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        title = TEXTS[obj.name].title
        message = (
            Sentence("{obj} of “{title}” is stored and active.", obj=obj, title=title)
            if obj.active
            else Sentence("{obj} of “{title}” is stored.", obj=obj, title=title)
        )
        self.message_user(request, message, messages.SUCCESS)
        return HttpResponseRedirect(self.history_url(obj))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> Any:
        if not self.has_add_permission(request):
            raise PermissionDenied
        if not request.GET.get("name"):
            return self.changelist_view(request)  # the user chooses a text from the list first
        text = self.blank_version(request)
        buttons = dict.fromkeys(("show_save_and_add_another", "show_save_and_continue"), False)
        context = {
            "about": TEXTS[text.name],
            "back": self.history_url(text),
            "preview_url": self.page_url("preview", text),
        }
        context |= buttons
        return super().add_view(request, form_url, {**context, **(extra_context or {})})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        text = self.get_object(request, object_id)
        context = {"about": TEXTS[text.name], "back": self.history_url(text)} if text is not None else {}
        return super().change_view(request, object_id, form_url, {**context, **(extra_context or {})})

    def get_custom_urls(self) -> Any:
        return (
            *super().get_custom_urls(),
            ("preview/", "personas_prompttext_preview", self.preview_view),
            ("text/<str:name>/", "personas_prompttext_text", self.text_view),
            ("text/<str:name>/use/", "personas_prompttext_use", require_POST(self.use_view)),
        )

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> TemplateResponse:
        """Show all texts, in the order in which a prompt has them."""
        self._require_view(request)
        active = {row.name: row for row in PromptText.objects.filter(active=True).select_related("author")}
        rows = [
            ListedText(name, about, active.get(name), size(active[name]) if name in active else built_in_tokens(name))
            for name, about in TEXTS.items()
        ]
        groups = [(group, [row for row in rows if row.about.group == group]) for group in GROUPS]
        return self._page(
            request,
            "overview",
            title=_("Texts that a model gets"),
            groups=groups,
            changed=len(active.keys() & TEXTS.keys()),
            all=len(TEXTS),
        )

    def text_view(self, request: HttpRequest, name: str, **kwargs: Any) -> HttpResponse:
        """Show one text: its purpose, an example of a prompt with it, and its history."""
        self._require_view(request)
        if name not in TEXTS:
            raise Http404
        versions = versions_of(name)
        active = next(version for version in versions if version.active)
        return self._page(
            request,
            "text",
            title=str(TEXTS[name].title),
            about=TEXTS[name],
            name=name,
            active=active,
            rows=[
                {
                    "version": version,
                    "tokens": size(version),
                    "edit": self.page_url("add", version, {"from": version.version}),
                    "compare": self.page_url("compare", version, {"old": version.version, "new": active.version}),
                }
                for version in versions
            ],
            shown=example(name, services.rules_at().texts),
            may_write=self.has_add_permission(request),
            may_use=self.has_activate_permission(request),
        )

    def use_view(self, request: HttpRequest, name: str, **kwargs: Any) -> HttpResponse:
        """Activate the posted version; 0 is the built-in text."""
        if not self.has_activate_permission(request):
            raise PermissionDenied
        versions = {str(version.version): version for version in versions_of(name)} if name in TEXTS else {}
        chosen = versions.get(request.POST.get("version", ""))
        if chosen is None:
            raise Http404
        if chosen.version:
            services.activate_prompt(user=acting_person(request), prompt=chosen)
        else:
            services.use_built_in_text(user=acting_person(request), name=name)
        message = (
            Sentence("{chosen} of “{title}” is active.", chosen=str(chosen), title=TEXTS[name].title)
            if chosen.version
            else Sentence("The built-in text is active.")
        )
        self.message_user(request, message, messages.SUCCESS)
        return HttpResponseRedirect(self.history_url(chosen))

    def preview_view(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Return a fragment with an example prompt that contains the edited text, or with the text's error."""
        self._require_view(request)
        name = self.blank_version(request).name
        try:
            text = check_text(name, request.POST.get("text", ""))
        except ProductError as error:
            return self._page(request, "preview", error=error.sentence)
        texts = services.rules_at().texts
        return self._page(request, "preview", shown=example(name, Texts({**texts.own, name: TextVersion(0, text)})))

    def _page(self, request: HttpRequest, template: str, **context: Any) -> TemplateResponse:
        context = {**self.admin_site.each_context(request), "opts": self.opts, **context}
        return TemplateResponse(request, f"admin/personas/text/{template}.html", context)

    def _require_view(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied


def versions_of(name: str) -> list[PromptText]:
    """Return all versions, newest first. The last one is the built-in text, as version 0."""
    rows = list(PromptText.objects.filter(name=name).select_related("author"))
    built_in = PromptText(name=name, version=0, text=TEXTS[name].built_in)
    built_in.active = not any(row.active for row in rows)
    return [*rows, built_in]
