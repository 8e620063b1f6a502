"""How the API's description says who may call it."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter

from accounts import idempotency

IDEMPOTENCY_KEY = OpenApiParameter(
    idempotency.HEADER,
    str,
    OpenApiParameter.HEADER,
    description=f"At most {idempotency.LONGEST_KEY} characters. The same again within 24 hours gets the first answer.",
)


class Schema(AutoSchema):
    """Every write takes an `Idempotency-Key`, see `accounts.permissions.ScopedView`."""

    def get_override_parameters(self) -> list[Any]:
        return [IDEMPOTENCY_KEY] if self.method in idempotency.WRITES else []


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # the base is untyped
    target_class = "accounts.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        description = "An API token, made on the settings page or with `manage.py token USER`."
        return {"type": "http", "scheme": "bearer", "description": description}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # as above
    target_class = "accounts.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": "The browser's session."}


__all__ = ["Schema", "SessionScheme", "TokenScheme"]
