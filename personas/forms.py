"""The admin's forms for system prompts and personas."""

from typing import Any, ClassVar, cast

from django import forms
from django.http import QueryDict
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldBooleanSwitchWidget

from personas.models import Persona, SystemPrompt


class Lines(forms.CharField):
    """A list of texts, one a line."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}), required=False, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> Any:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]


class SystemPromptForm(forms.ModelForm[SystemPrompt]):
    """A new version. `based_on` is the version that was active when the form was opened, 0 for none."""

    activate = forms.BooleanField(
        label="Make it active", required=False, initial=True, widget=UnfoldBooleanSwitchWidget()
    )
    based_on = forms.IntegerField(required=False, widget=forms.HiddenInput())

    class Meta:
        model = SystemPrompt
        fields: ClassVar = ["text", "note"]

    def clean(self) -> dict[str, Any]:
        """Stops once when somebody else has changed the prompt meanwhile; saving again goes on from theirs."""
        cleaned = super().clean() or self.cleaned_data
        active = SystemPrompt.objects.filter(active=True).select_related("author").first()
        based_on = cleaned.get("based_on")
        if active is not None and based_on is not None and based_on != active.version:
            data = cast("QueryDict", self.data).copy()
            data["based_on"] = str(active.version)
            self.data = data
            raise forms.ValidationError(
                f"{active} by {active.author or 'the product'} became active while you were writing, and your text "
                "does not have its changes. Compare the versions, take over what you need, and save again."
            )
        return cleaned


class PersonaForm(forms.ModelForm[Persona]):
    tools = Lines(help_text="Names of the tools it may call, one a line.")
    starter_messages = Lines(help_text="Shown for a start, one a line.")

    class Meta:
        model = Persona
        fields: ClassVar = [
            *("name", "description", "instructions", "replaces_system_prompt", "model", "budget_profile", "tools"),
            *("reminders", "date_awareness", "starter_messages", "visibility"),
        ]
