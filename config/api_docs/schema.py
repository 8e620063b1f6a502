"""The API's description: who may call it, and what is the same for all of it."""

from copy import deepcopy
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter

from accounts.access import permissions
from config.api_docs import schema_parts as parts

IDEMPOTENCY_KEY = OpenApiParameter(
    permissions.KEY_HEADER,
    str,
    OpenApiParameter.HEADER,
    description=f"At most {permissions.LONGEST_KEY} characters. The same again within 24 hours gets the first answer.",
)


class Schema(AutoSchema):
    """Every write takes an `Idempotency-Key`, see `accounts.access.permissions.ScopedView`."""

    def get_override_parameters(self) -> list[Any]:
        return [IDEMPOTENCY_KEY] if self.method in permissions.WRITES else []


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # the base is untyped
    target_class = "accounts.access.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        description = "An API token, made on the settings page or with `manage.py token USER`."
        return {"type": "http", "scheme": "bearer", "description": description}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # as above
    target_class = "accounts.access.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": "The browser's session."}


def complete(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """drf-spectacular's last step: errors, what views that are not Django REST framework's answer, and examples."""
    result["paths"] = dict(sorted({**result["paths"], **deepcopy(parts.PATHS)}.items()))
    components = result["components"]
    components["schemas"] |= {"Problem": parts.PROBLEM, "TurnEvent": parts.turn_event()}
    components["responses"] = {"Refused": parts.REFUSED, "Failed": parts.FAILED}
    for path in result["paths"].values():
        for operation in path.values():
            _complete(operation)
    return result


def _complete(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    responses["4XX"] = {"$ref": "#/components/responses/Refused"}
    responses["502"] = {"$ref": "#/components/responses/Failed"}
    if operation["operationId"] not in parts.EXAMPLES:
        return
    asked, status, answered = parts.EXAMPLES[operation["operationId"]]
    operation["requestBody"]["content"]["application/json"]["example"] = asked
    if status:
        responses[status]["content"]["application/json"]["example"] = answered


__all__ = ["Schema", "SessionScheme", "TokenScheme", "complete"]
