"""Links in mails and webhooks lead to the site, whatever port a request names."""

import pytest
from django.test import RequestFactory
from pytest_django.fixtures import Settings

from config import service_urls
from config.embedded.paths import StartError
from core.net.site import site_origin


def origin(host: str, *, served: str = "8000", secure: bool = False) -> str:
    return site_origin(RequestFactory().get("/", HTTP_HOST=host, SERVER_PORT=served, secure=secure))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("localhost:9999", "http://localhost"),
        ("localhost", "http://localhost"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("[::1]:9999", "http://[::1]"),
        ("chat.example:8443", "http://chat.example"),
    ],
)
def test_a_port_that_is_not_served_is_left_out(settings: Settings, host: str, expected: str) -> None:
    settings.ALLOWED_HOSTS = ["localhost", "[::1]", "chat.example"]
    assert origin(host) == expected


def test_behind_a_proxy_only_a_port_that_is_named_in_the_settings_counts(settings: Settings) -> None:
    settings.ALLOWED_HOSTS, settings.TRUSTED_PROXIES = ["chat.example"], 1
    assert origin("chat.example:8000") == "http://chat.example"
    settings.CSRF_TRUSTED_ORIGINS = ["https://chat.example:8443"]
    assert origin("chat.example:8443", secure=True) == "https://chat.example:8443"
    assert origin("chat.example:8444", secure=True) == "https://chat.example"


def test_the_configured_address_is_the_only_one(settings: Settings) -> None:
    settings.SITE_URL = "https://chat.example:8443"
    assert origin("localhost:9999") == "https://chat.example:8443"


@pytest.mark.parametrize(
    "url", ["chat.example", "ftp://chat.example", "https://", "https://a/b", "https://u@a", "https://a:x"]
)
def test_a_configured_address_that_is_none_ends_the_start(url: str) -> None:
    with pytest.raises(StartError):
        service_urls.site(url)


def test_a_configured_address_may_end_with_a_slash() -> None:
    assert service_urls.site("https://chat.example/") == "https://chat.example"
    assert service_urls.site("") == ""
