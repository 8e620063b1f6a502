"""The fragment of a preview, and the policies of the frames. `tests/e2e/test_previews.py` has the frames at work."""

from typing import Any

import pytest
from django.test import Client

from accounts.models import User

pytestmark = pytest.mark.django_db


@pytest.fixture
def browser() -> Client:
    client = Client()
    client.force_login(User.objects.create_user("looks-at-previews"))
    return client


def preview(browser: Client, **form: Any) -> str:
    response = browser.post("/preview/", form)
    assert response.status_code == 200
    return response.text


@pytest.mark.parametrize(("kind", "address"), [("html", "/preview/frame/"), ("mermaid", "/diagram/")])
def test_a_block_gets_the_frame_of_its_kind(browser: Client, kind: str, address: str) -> None:
    page = preview(browser, kind=kind, version="2", versions="3", text="<b>not shown</b>")
    assert f'data-src="{address}"' in page and 'sandbox="allow-scripts"' in page
    assert "Version 2 of 3" in page
    assert "not shown" not in page


def test_markdown_is_rendered_as_answers_are(browser: Client) -> None:
    page = preview(browser, kind="markdown", text="# Plan\n\n**bold** <script>alert(1)</script>")
    assert "<strong>bold</strong>" in page
    assert "<script" not in page and "Version" not in page


def test_a_kind_or_a_number_that_there_is_not(browser: Client) -> None:
    assert browser.post("/preview/", {"kind": "exe"}).status_code == 404
    assert browser.get("/preview/").status_code == 405
    assert "Version" not in preview(browser, kind="csv", version="x", versions="9999999")


def test_the_frames_ask_for_nothing_and_have_no_origin(browser: Client) -> None:
    for client, address in ((browser, "/preview/frame/"), (Client(), "/diagram/")):
        response = client.get(address)
        policy = response["Content-Security-Policy"]
        assert response.status_code == 200
        assert policy.startswith("default-src 'none'; script-src 'nonce-") and policy.endswith("sandbox allow-scripts")
        assert "connect-src" not in policy and "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
        assert response["X-Frame-Options"] == "SAMEORIGIN"
    assert Client().get("/preview/frame/").status_code == 302
