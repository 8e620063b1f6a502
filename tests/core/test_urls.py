"""Addresses that need a sign-in."""

import pytest
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import path

from accounts.models import User
from core.errors import ProductError
from core.permissions import require_sign_in


def view(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(f"for {name}")


def test_strangers_are_sent_to_sign_in_and_from_there_to_the_address() -> None:
    (pattern,) = require_sign_in([path("page/<str:name>/", view)])
    request = RequestFactory().get("/page/olga/")
    request.user = AnonymousUser()
    assert pattern.callback(request, name="olga").headers["Location"] == "/login/?next=/page/olga/"
    request.user = User(username="olga")
    assert pattern.callback(request, name="olga").content == b"for olga"


def test_a_script_is_told_that_nobody_is_signed_in_and_not_led_to_another_page() -> None:
    (pattern,) = require_sign_in([path("page/<str:name>/", view)])
    request = RequestFactory().post("/page/olga/", headers={"HX-Request": "true"})
    request.user = AnonymousUser()
    with pytest.raises(ProductError) as refused:
        pattern.callback(request, name="olga")
    assert (refused.value.code, refused.value.status) == ("not_authenticated", 401)
