"""The page “All” of the admin: every page by its group, and a search over their settings."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import FieldDoesNotExist
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from config.admin import NavigationGroup, all_groups
from workspace.models import Workspace

MAX_QUERY_LENGTH = 100  # characters
MAX_SETTINGS = 50  # settings that a search shows


@dataclass(frozen=True, slots=True)
class FoundSetting:
    """A field of a form of the admin. `page`: the title of the page that has the form, with its `link`."""

    label: str
    help_text: str
    page: str
    link: str


def _settings(request: HttpRequest) -> Iterator[FoundSetting]:
    """Yield the fields of all forms that the administrator may change, page by page."""
    for group in all_groups(request):
        for item in group["items"]:
            model_admin = admin.site.get_model_admin(apps.get_model(item["label"]))
            if model_admin.has_change_permission(request):
                yield from _fields(request, model_admin, item["title"], item["link"])


def _fields(request: HttpRequest, model_admin: Any, title: str, link: str) -> Iterator[FoundSetting]:
    for name in flatten_fieldsets(model_admin.get_fieldsets(request)):
        try:
            field: Any = model_admin.model._meta.get_field(name)
        except FieldDoesNotExist:  # a field of the form alone
            continue
        anchor = f"#id_{name}" if model_admin.model is Workspace else ""
        yield FoundSetting(
            label=capfirst(str(field.verbose_name)),
            help_text=str(field.help_text),
            page=str(title),
            link=f"{link}{anchor}",
        )


def all_pages(request: HttpRequest) -> HttpResponse:
    """Show all pages, or those and the settings that have every word of `?q=`."""
    query = request.GET.get("q", "")[:MAX_QUERY_LENGTH].strip()
    words = query.casefold().split()

    def matches(*texts: object) -> bool:
        text = " ".join(map(str, texts)).casefold()
        return all(word in text for word in words)

    groups: list[NavigationGroup] = []
    for group in all_groups(request):
        items = [item for item in group["items"] if matches(group.get("title", ""), item["title"])]
        if items:
            groups.append({**group, "items": items})
    settings: list[FoundSetting] = []
    if words:
        matching = (each for each in _settings(request) if matches(each.page, each.label, each.help_text))
        settings = [each for each, _place in zip(matching, range(MAX_SETTINGS), strict=False)]
    context = {
        **admin.site.each_context(request),
        "title": _("All pages and settings"),
        "query": query,
        "groups": groups,
        "settings": settings,
    }
    return TemplateResponse(request, "admin/all_pages.html", context)


all_page = admin.site.admin_view(all_pages)
