"""The form of the workspace's settings."""

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from django import forms
from django.conf import settings
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldBooleanSwitchWidget,
)

from core.admin import CheckboxColumns
from core.errors import ProductError
from llm.models import Model
from personas.models import BudgetProfile
from personas.services import default_profile
from workspace.models import Workspace
from workspace.services import FIELDS, make_logo


class WorkspaceForm(forms.ModelForm[Workspace]):
    """The form of the settings. `changes` has only the changed fields, so that a save does not overwrite the others."""

    languages = forms.MultipleChoiceField(
        label="Languages offered",
        help_text=Workspace._meta.get_field("languages").help_text,
        choices=settings.LANGUAGES,
        widget=CheckboxColumns(),
    )
    picture = forms.FileField(
        label="Logo",
        required=False,
        widget=UnfoldAdminFileFieldWidget(),
        help_text=(
            "PNG, JPEG or WebP, at most 2 MB. It is stored as a PNG of at most 256 "
            "× 256 pixels. Pages show it beside the name and as their icon in the "
            "browser."
        ),
    )
    remove_logo = forms.BooleanField(label="Remove the logo", required=False, widget=UnfoldBooleanSwitchWidget())
    default_profile = forms.ModelChoiceField(
        BudgetProfile.objects.all(),
        label="Default budget profile",
        required=False,
        widget=UnfoldAdminSelectWidget(),
        help_text="For conversations without a persona, and for personas without a profile.",
    )
    layout = forms.ChoiceField(
        label="Default order of the prompt",
        choices=BudgetProfile.Layout.choices,
        widget=UnfoldAdminSelectWidget(),
        help_text="A field of the default budget profile, which also has it on its page.",
    )

    class Meta:
        model = Workspace
        fields: ClassVar = list(FIELDS)
        widgets: ClassVar = {
            "notice": UnfoldAdminTextareaWidget(attrs={"rows": 3}),
            "suggestions": UnfoldAdminTextareaWidget(attrs={"rows": 4}),
            "memory_answering": UnfoldAdminTextareaWidget(attrs={"rows": 4}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast("forms.ModelChoiceField[Model]", self.fields["page_reader"]).queryset = Model.objects.filter(vision=True)
        profile = default_profile()
        self.initial["layout"] = profile.layout
        self.initial["default_profile"] = None if profile._state.adding else profile.pk
        # A hidden copy of each initial value, so that a save does not undo another administrator's recent changes.
        for name, field in self.fields.items():
            field.show_hidden_initial = name not in ("picture", "remove_logo")
        if not self.instance.logo:
            self.fields.pop("remove_logo", None)

    def clean_picture(self) -> Any:
        picture = self.cleaned_data["picture"]
        if picture:
            try:
                make_logo(picture)
            except ProductError as error:
                raise forms.ValidationError(str(error.sentence), code=error.code) from error
            picture.seek(0)
        return picture

    @property
    def changes(self) -> Mapping[str, Any]:
        stored = {*FIELDS, "default_profile", "layout"}
        return {name: self.cleaned_data[name] for name in self.changed_data if name in stored}
