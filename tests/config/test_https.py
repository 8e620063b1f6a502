"""Effects of `HTTPS_ONLY=true` behind a proxy that ends TLS."""

import os
import subprocess
import sys

import pytest
from django.conf import settings as django_settings
from django.test import Client
from pytest_django.fixtures import Settings


@pytest.fixture
def https_only(settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SECURE_HSTS_SECONDS = 31_536_000


@pytest.mark.process
def test_django_finds_nothing_to_warn_of() -> None:
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    environment = {**os.environ, "HTTPS_ONLY": "true"}
    done = subprocess.run(command, cwd=django_settings.BASE_DIR, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.django_db
def test_who_comes_without_tls_is_sent_there_and_load_balancers_are_not(client: Client, https_only: None) -> None:
    sent = client.get("/login/?next=/")
    assert (sent.status_code, sent["Location"]) == (301, "https://testserver/login/?next=/")
    assert client.get("/livez").status_code == 200
    page = client.get("/login/", headers={"X-Forwarded-Proto": "https"})
    assert (page.status_code, page["Strict-Transport-Security"]) == (200, "max-age=31536000")
    assert page.cookies["csrftoken"]["secure"]
