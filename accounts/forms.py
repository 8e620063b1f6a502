"""The forms of the settings pages. What they refuse, services refuse too; here it is said beside the field."""

from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.models import User
from accounts.pages import SCOPES

DAYS = {"30": _("after 30 days"), "90": _("after 90 days"), "365": _("after a year"), "": _("never")}


class PreferencesForm(forms.ModelForm[User]):
    class Meta:
        model = User
        fields: ClassVar = ["language", "timezone", "theme"]


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100)
    scopes = forms.MultipleChoiceField(
        choices=list(SCOPES.items()), error_messages={"required": _("Choose at least one thing that it may do.")}
    )
    days = forms.ChoiceField(choices=list(DAYS.items()), required=False, initial="90")

    def token(self) -> dict[str, Any]:
        """The fields of `create_token`."""
        days = self.cleaned_data["days"]
        expires = timezone.now() + timedelta(days=int(days)) if days else None
        return {"name": self.cleaned_data["name"], "scopes": self.cleaned_data["scopes"], "expires": expires}
