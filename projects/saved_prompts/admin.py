"""Admin of the workspace's saved prompts. Administrators do not see the saved prompts of users and projects."""

from typing import Any, ClassVar, cast

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext

from accounts.models import User
from core.admin import RowAdmin, acting_user, display
from core.errors import ProductError
from personas.forms import prompt_text_field
from projects.saved_prompts import services
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.variables import check_variable_count, variables


class SavedPromptForm(forms.ModelForm[SavedPrompt]):
    text = prompt_text_field(
        SavedPrompt.MAX_TEXT,
        help_text="{{name}} is a field, {{name:text}} is a field with a default, {{name:one|two}} is a choice.",
    )

    class Meta:
        model = SavedPrompt
        fields: ClassVar = ["name", "text"]

    def clean_name(self) -> str:
        name = " ".join(self.cleaned_data["name"].split())
        if SavedPrompt.objects.filter(owner=None, project=None, name=name).exclude(pk=self.instance.pk).exists():
            raise forms.ValidationError(gettext("The workspace already has a prompt with this name."))
        return name

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"]
        try:
            check_variable_count(text)
        except ProductError as error:
            raise forms.ValidationError(str(error.sentence), code=error.code) from error
        return text


@admin.register(SavedPrompt)
class SavedPromptAdmin(RowAdmin):
    empty_words = "No saved prompts yet. They are put into messages with a /."
    form = SavedPromptForm
    list_display = ("name", "asks_for", "created")
    search_fields = ("name", "text")
    search_help_text = "A name, or words of the text"

    def get_queryset(self, request: HttpRequest) -> QuerySet[SavedPrompt]:
        return SavedPrompt.objects.filter(owner=None, project=None)

    @display(description="Asks for")
    def asks_for(self, prompt: SavedPrompt) -> str:
        return ", ".join(each.name for each in variables(prompt.text)) or "–"

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        user = cast("User", acting_user(request))
        name = form.cleaned_data["name"]
        text = form.cleaned_data["text"]
        if change:
            services.update_saved_prompt(user=user, prompt=obj, fields={"name": name, "text": text})
        else:
            obj.pk = services.create_saved_prompt(user=user, workspace=True, name=name, text=text).pk
            obj.refresh_from_db()

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_saved_prompt(user=cast("User", acting_user(request)), prompt=obj)
