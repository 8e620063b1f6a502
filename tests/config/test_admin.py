"""Common parts of the admin's pages: their look, the way back, and the answer to a wrong address."""

import re
from collections.abc import Callable

import pytest
from django.contrib import admin
from django.db import models
from django.test import Client
from django.urls import reverse

from tests.product import ROOT

pytestmark = pytest.mark.django_db


def test_it_has_the_colours_icon_and_type_of_the_workspace_and_a_way_back(admin_client: Client) -> None:
    page = admin_client.get("/admin/").content.decode()
    accent = re.findall(r"--accent: light-dark\(#(\w+)", (ROOT / "static/css/tokens.css").read_text())
    red, green, blue = bytes.fromhex(accent[0])
    assert re.search(rf"--color-primary-600:\s*(rgb\()?{red},? {green},? {blue}", page), accent
    assert 'rel="icon"' in page and re.search(r'href="/static/icon[.\w]*\.svg"', page)
    assert re.search(r'href="/static/css/admin[.\w]*\.css"', page)
    back = re.search(r'<a[^>]+href="/"[^>]*>(.*?)</a>', page, re.DOTALL)
    assert back and "Back to the workspace" in back[1]


def absent_key(model: type[models.Model]) -> str:
    """Return a key that no row has: a UUID, or a number that is too large for the column."""
    return "0190e5d8-0000-7000-8000-000000000000" if isinstance(model._meta.pk, models.UUIDField) else "9" * 40


@pytest.mark.parametrize("key", [absent_key, lambda model: "%00"], ids=["absent", "impossible"])
def test_a_row_that_is_not_there_is_said_to_be_so(
    admin_client: Client, key: Callable[[type[models.Model]], str]
) -> None:
    """Django redirects to the list, which says that the row is missing. A server error would be wrong."""
    wrong = {}
    for model in admin.site._registry:
        names = (model._meta.app_label, model._meta.model_name)
        for action in ("change", "delete", "history"):
            address = reverse("admin:{}_{}_{}".format(*names, action), args=["KEY"]).replace("KEY", key(model))
            status = admin_client.get(address).status_code
            if status not in (302, 403, 404):
                wrong[address] = status
    assert wrong == {}


NAMES = re.compile(r'<(?:input|select|textarea)[^>]*? name="([^"]+)"')


def forms() -> list[str]:
    """Return the addresses of all forms of the admin that add a row."""
    return [reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_add") for model in admin.site._registry]


def test_a_form_with_keys_of_no_row_is_an_answer(admin_client: Client) -> None:
    filled = 0
    for url in forms():
        names = set(NAMES.findall(admin_client.get(url).content.decode()))
        if not names:
            continue  # nobody may add such a row
        sent = {name: "no-key" for name in names if "_FORMS" not in name and name[0] != "_"}
        counts = {name: "1" if name.endswith("TOTAL_FORMS") else "0" for name in names if "_FORMS" in name}
        rows = {name.replace("__prefix__", "0"): value for name, value in sent.items()}
        answer = admin_client.post(url, rows | counts)
        assert answer.status_code in (200, 302), url
        filled += 1
    assert filled > 10
