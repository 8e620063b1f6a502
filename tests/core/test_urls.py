"""Addresses that only people who are signed in can open."""

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import path

from accounts.models import User
from core.permissions import signed_in


def view(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(f"for {name}")


def test_strangers_are_sent_to_sign_in_and_from_there_to_the_address() -> None:
    (pattern,) = signed_in([path("page/<str:name>/", view)])
    request = RequestFactory().get("/page/olga/")
    request.user = AnonymousUser()
    assert pattern.callback(request, name="olga").headers["Location"] == "/login/?next=/page/olga/"
    request.user = User(username="olga")
    assert pattern.callback(request, name="olga").content == b"for olga"
