"""A password validator with the minimum length of the workspace's settings."""

from typing import Any

from django.contrib.auth.password_validation import MinimumLengthValidator

from workspace.models.settings import workspace_at


class LengthValidator:
    """Requires the length of the workspace's settings. `AUTH_PASSWORD_VALIDATORS` names this class."""

    def validate(self, password: str, user: Any = None) -> None:
        self._django().validate(password, user)

    def get_help_text(self) -> str:
        return self._django().get_help_text()

    def _django(self) -> MinimumLengthValidator:
        return MinimumLengthValidator(workspace_at().password_length)
