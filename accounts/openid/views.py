"""Views that send the browser to an OpenID provider, receive it back, and accept the provider's sign-out requests."""

from uuid import UUID

from django.contrib import auth
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from accounts.access.login import OpenIDSession, local_address, proceed
from accounts.access.sign_ins import sign_in_refused
from accounts.models import OpenIDProvider, User
from accounts.openid import services, sign_in, tokens
from core.errors import NotFound, ProductError
from core.requests import with_headers


@never_cache
@require_GET
def begin(request: HttpRequest, pk: UUID) -> HttpResponseBase:
    """Redirect to the provider. A user who must sign in again here must also sign in again at the provider."""
    provider = _provider(pk)
    try:
        return redirect(
            sign_in.begin(
                request,
                provider,
                redirect=_here(request, pk),
                then=local_address(request, request.GET.get("next", "")),
                again=request.user.is_authenticated,
            )
        )
    except ProductError as error:
        return _refused(request, error)


@never_cache
@require_GET
def done(request: HttpRequest, pk: UUID) -> HttpResponseBase:
    """Sign in the user whom the provider sent back."""
    provider = _provider(pk)
    try:
        provider_sign_in = sign_in.take_pending(request, pk)
        claims = sign_in.claims_of(request, provider, provider_sign_in, redirect=_here(request, pk))
        person = services.get_or_create_user(provider=provider, claims=claims)
    except ProductError as error:
        sign_in_refused("")
        return _refused(request, error)
    if isinstance(request.user, User) and request.user.pk != person.pk:
        auth.logout(request)
    through: OpenIDSession = {"issuer": provider.issuer, "sid": str(claims.get("sid", ""))}
    return redirect(proceed(request, person, provider_sign_in.then, through=through))


@csrf_exempt
@never_cache
@require_POST
def sign_out(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Sign out a user who signed out at the provider (OpenID Connect Back-Channel Logout 1.0)."""
    try:
        provider = _provider(pk)
        claims = tokens.logout_token(provider, request.POST.get("logout_token", ""))
    except ProductError as error:
        status = 400 if error.status == 403 else error.status
        return JsonResponse({"error": "invalid_request", "error_description": error.detail}, status=status)
    services.sign_out(provider=provider, claims=claims)
    return HttpResponse(status=200)


def _provider(pk: UUID) -> OpenIDProvider:
    row = OpenIDProvider.objects.filter(pk=pk, enabled=True).first()
    if row is None:
        raise NotFound("provider")
    return row


def _here(request: HttpRequest, pk: UUID) -> str:
    return request.build_absolute_uri(reverse("login-openid-done", args=[pk]))


def _refused(request: HttpRequest, error: ProductError) -> HttpResponse:
    page = render(request, "registration/refused.html", {"problem": error.sentence}, status=error.status)
    return with_headers(page, error)
