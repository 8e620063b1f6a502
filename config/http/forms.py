"""Answer forms that a page's script submits, so that the text stays on the page if the server refuses it.

1. `static/js/drafts.js` posts the form as the browser would, with the header `Form-Submission: script`.
2. The response to a refused form is a fragment with a sentence, as for htmx. The page stays open and shows it.
3. A redirect becomes 204 with the address in `Form-Location`. The script goes there.
4. If the response is a page, the script cannot insert it, since the scripts of that page have another nonce. The page
   is stored for a minute, encrypted, for one request of the same user. `Form-Location` is its address.

`Form-Stored: no` says that the server has not stored the form, so that the browser keeps its draft.
"""

import json
import secrets
from collections.abc import Callable

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.http.response import HttpResponseRedirectBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from config.http.problems import MiddlewareRequest, page_problem
from core.crypto import decrypt, encrypt, is_lost
from core.errors import ProductError
from core.permissions import signed_out_error
from core.requests import FORM_SUBMISSION

LOCATION_HEADER = "Form-Location"
STORED_HEADER = "Form-Stored"
PAGE_PARAMETER = "form-answer"  # the URL parameter that names a stored page
PAGE_LIFETIME = 60  # seconds; the script asks for the page at once
MAX_SIZE = 4 * 1024 * 1024  # bytes of the largest page that is stored
STORED_HEADERS = ("Content-Type", "Content-Security-Policy", "Cache-Control", "Retry-After")
# Statuses of pages that show the form again, because its row has changed, a field is invalid, or it was sent too often.
# For all other refusals, the script shows the sentence.
FORM_STATUSES = (409, 412, 422, 429)


class ScriptedFormMiddleware:
    """Answers forms that scripts submit.

    It runs outside `ContentSecurityPolicyMiddleware`, so that a stored page keeps its policy.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: MiddlewareRequest) -> HttpResponse:
        response = self.get_response(request)
        if FORM_SUBMISSION not in request.headers or response.streaming:
            return response
        if isinstance(response, HttpResponseRedirectBase):
            return _answer_with_location(response, response.url, stored=not response.url.startswith(_sign_in_pages()))
        if response.status_code == 200 or _is_page_of_errors(response):
            address = _store_page(request, response)
            return _answer_with_location(response, address, stored=not _is_invalid(response))
        return response

    def process_view(self, request: MiddlewareRequest, view: object, *arguments: object) -> HttpResponseBase | None:
        if FORM_SUBMISSION in request.headers and not request.user.is_authenticated:
            return page_problem(request, signed_out_error())
        if request.method == "GET" and PAGE_PARAMETER in request.GET and request.user.is_authenticated:
            return _load_page(request, request.GET[PAGE_PARAMETER])
        return None


def _sign_in_pages() -> tuple[str, str]:
    return reverse("login"), reverse("admin:login")


def _is_page_of_errors(response: HttpResponse) -> bool:
    return response.status_code in FORM_STATUSES and "HX-Retarget" not in response


def _is_invalid(response: HttpResponse) -> bool:
    """Return whether the page shows a form with invalid fields. Django's admin answers such a form with 200."""
    context = response.context_data or {} if isinstance(response, TemplateResponse) else {}
    return response.status_code in FORM_STATUSES or bool(context.get("errors"))


def _answer_with_location(response: HttpResponse, address: str, *, stored: bool) -> HttpResponse:
    """Return an answer that names the address, with the cookies of the response."""
    answer = HttpResponse(status=204)
    answer.cookies = response.cookies
    answer[LOCATION_HEADER] = address
    answer[STORED_HEADER] = "yes" if stored else "no"
    return answer


def _store_page(request: MiddlewareRequest, response: HttpResponse) -> str:
    """Return the address of the stored page. Raises `too_large` (413) for a page that is longer than `MAX_SIZE`."""
    if len(response.content) > MAX_SIZE:
        raise ProductError("too_large", "The page is too large to be shown here. Reload this page.", status=413)
    name = secrets.token_urlsafe(16)
    stored_page = {
        "status": response.status_code,
        "headers": {header: response[header] for header in STORED_HEADERS if header in response},
        "body": response.content.decode(response.charset),
    }
    cache.set(_key(request, name), encrypt(json.dumps(stored_page)), PAGE_LIFETIME)
    parameters = request.GET.copy()
    parameters[PAGE_PARAMETER] = name
    return f"{request.path}?{parameters.urlencode()}"


def _load_page(request: MiddlewareRequest, name: str) -> HttpResponse:
    """Return the stored page once. Later requests are redirected to the address without the parameter."""
    key = _key(request, name)
    text = decrypt(cache.get(key, ""))
    cache.delete(key)
    if is_lost(text):
        parameters = request.GET.copy()
        del parameters[PAGE_PARAMETER]
        return redirect(f"{request.path}?{parameters.urlencode()}" if parameters else request.path)
    page = json.loads(text)
    return HttpResponse(page["body"], status=page["status"], headers=page["headers"])


def _key(request: MiddlewareRequest, name: str) -> str:
    return f"form-answer:{request.user.pk}:{name}"
