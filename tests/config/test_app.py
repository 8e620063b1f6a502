"""The pages as an app on a device: the manifest to install it, and the files for a time without network."""

import re

import pytest
from django.test import Client

from workspace.models import Workspace

pytestmark = pytest.mark.django_db  # pages look for a session


def test_the_manifest_names_icons_of_the_sizes_that_browsers_ask_for() -> None:
    response = Client().get("/manifest.webmanifest")
    assert response["Content-Type"] == "application/manifest+json"
    manifest = response.json()
    assert (manifest["start_url"], manifest["scope"], manifest["display"]) == ("/", "/", "standalone")
    assert manifest["name"] == "Glasshouse"
    assert {icon["sizes"] for icon in manifest["icons"]} == {"any", "192x192", "512x512"}


def test_the_worker_stands_for_all_pages_and_keeps_nothing_that_is_anybodys() -> None:
    response = Client().get("/service-worker.js")
    assert response["Content-Type"] == "text/javascript" and response["Cache-Control"] == "no-cache"
    shell = re.search(r"SHELL = \[(.*)\]", response.content.decode())
    assert shell
    assert all(name == "OFFLINE" or "/static/" in name for name in shell[1].split(", "))
    assert "Your text is stored on this device" in Client().get("/offline/").content.decode()


def test_the_app_has_the_name_of_the_workspace() -> None:
    Workspace.objects.create(pk=Workspace.ONLY, name="Acme")
    assert Client().get("/manifest.webmanifest").json()["short_name"] == "Acme"
    assert "No network · Acme" in " ".join(Client().get("/offline/").content.decode().split())
