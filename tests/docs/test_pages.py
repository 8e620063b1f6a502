"""Every page of the product is named in docs/use/pages.md, and “?” leads from it into the guide."""

import re
from collections.abc import Iterator

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.models import User
from config.help import guide

NOBODY = "00000000-0000-0000-0000-000000000000"
EXAMPLES = {
    "uuid": NOBODY,
    "chat_day": "2026-11-21",
    "iso_day": "2026-11-21",
    "iso_month": "2026-11",
    "iso_year": "2026",
    "int": "1",
}
PARAMETER = re.compile(r"<(?:(\w+):)?\w+>")
OTHERS = re.compile(r"^(admin|api|v1)/")  # pages of the admin are its models; endpoints have a list of their own
# Pieces of pages, files, and addresses that lead on.
NO_PAGES = {
    *("conversations/", "palette/", "diagram/", "models/", "starters/", "offered-prompts/", "mentions/", "usage.csv"),
    *("c/<>/prompts/", "c/<>/next/", "c/<>/export.<>", "export/", "export/for-others/", "daily/", "tasks/code/<>/"),
    "turns/<>/approvals/",
    *("messages/<>/", "messages/<>/text/", "messages/<>/sources/<>/", "projects/<>/meter/", "projects/<>/files/"),
    *("projects/<>/conversations/", "projects/invitations/", "projects/invitations/count/", "personas/tools/"),
    *("files/<>/content/", "files/<>/shown/", "files/<>/chip/", "files/<>/pages/<>/picture/", "logo/<>.png"),
    *("help/pictures/<>", "preview/frame/"),
    *("login/passkey/", "login/openid/<>/", "login/openid/<>/done/", "manifest.webmanifest", "service-worker.js"),
    *("livez", "metrics", "readyz", "mcp/", "oauth/client.json", "settings/tools/return/"),
}


def routes(patterns: list[URLPattern | URLResolver], before: str = "") -> Iterator[str]:
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        else:
            yield route


def example(route: str) -> str:
    return "/" + PARAMETER.sub(lambda parameter: EXAMPLES.get(parameter[1] or "", "x"), route)


def plain(route: str) -> str:
    return PARAMETER.sub("<>", route)


def rows() -> set[str]:
    table = guide.page(guide.PAGES_OF_PRODUCT, "en")
    assert table is not None
    return {re.sub(r"<[^>]*>", "<>", address) for address, _ in guide.ROW.findall(table.text)}


@pytest.mark.django_db
def test_every_page_of_the_workspace_is_in_the_table() -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("reader", password="of the pages"))
    shown = {
        plain(route)
        for route in routes(get_resolver().url_patterns)
        if not OTHERS.match(route) and client.get(example(route)).status_code != 405  # which only acts
    }
    in_table = {row for row in rows() if not OTHERS.match(row)}
    assert (shown - NO_PAGES - in_table, in_table - shown) == (set(), set())
    assert shown >= NO_PAGES


def test_every_page_of_the_admin_is_in_the_table() -> None:
    registered = {f"admin/{model._meta.app_label}/{model._meta.model_name}/" for model in admin.site._registry}
    own = {"admin/", "admin/all/", "admin/doctor/", "admin/people-who-used-most/"}
    assert {row for row in rows() if row.startswith("admin/")} == registered | own


@pytest.mark.parametrize(
    ("route", "place"),
    [
        ("c/<uuid:pk>/", guide.GuidePlace("use/context-panel", "")),
        ("c/<uuid:pk>/share/", guide.GuidePlace("use/sharing", "share-by-a-link")),
        ("admin/llm/provider/<path:object_id>/change/", guide.GuidePlace("admin/models", "")),
        ("settings/", guide.GuidePlace("use/settings", "preferences")),
        ("", guide.GuidePlace("use/conversations", "")),
        ("unknown/", guide.GuidePlace("use/conversations", "")),
    ],
)
def test_the_longest_row_decides(route: str, place: guide.GuidePlace) -> None:
    assert guide.place_of_page(route) == place
