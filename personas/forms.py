"""Forms for prompts and personas, on the pages of the admin and on the page of a persona."""

from copy import copy
from typing import Any, ClassVar, cast

from django import forms
from django.contrib.auth.models import AbstractUser
from django.db.models import Q
from django.http import QueryDict
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext as _
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldBooleanSwitchWidget

from accounts.access.offered_models import offered_models
from accounts.access.rights import models_of
from accounts.models import User
from core.errors import ProductError
from core.i18n import grouped
from core.rows import set_fields
from core.sentences import Sentence
from core.text import unix_lines
from llm.models import Effort, Model
from personas import tools
from personas.handing_over import require_hand_over
from personas.models import BudgetProfile, Persona, PromptVersion, Reminder, SystemPrompt
from personas.services import PersonaFields, default_profile, model_for
from personas.sharing.names import require_free_name
from personas.sharing.roles import is_owner
from personas.texts import TEXTS, check_text
from personas.variables import VARIABLES_HELP, check_variables
from workspace.models import DateAwareness


class LinesField(forms.CharField):
    """A text field for a list of texts, one per line. Blank lines are dropped."""

    def __init__(self, *, widget: forms.Widget | None = None, help_text: str = "") -> None:
        super().__init__(
            required=False, widget=widget or UnfoldAdminTextareaWidget(attrs={"rows": 4}), help_text=help_text
        )

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> Any:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]


class PromptTextField(forms.CharField):
    """A text for a model. Converts the CR LF that browsers send into LF."""

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        return unix_lines(text) if isinstance(text, str) else text


def validate_variables(text: str) -> str:
    """Return the text. Raises `ValidationError` for an unknown variable."""
    try:
        check_variables(text)
    except ProductError as error:
        raise forms.ValidationError(str(error.sentence), code=error.code) from error
    return text


def prompt_text_field(max_length: int | None = None, *, required: bool = True, help_text: str = "") -> PromptTextField:
    """Return an admin field, as wide as the page, for a text that a model gets. `max_length`: characters."""
    widget = UnfoldAdminTextareaWidget(attrs={"rows": 16, "style": "max-width: none"})
    return PromptTextField(max_length=max_length, widget=widget, required=required, help_text=help_text)


class PromptForm(forms.ModelForm[PromptVersion]):
    """A new version of a prompt. `based_on`: the version that was active when the form was opened; 0 if none was."""

    text = prompt_text_field()
    activate = forms.BooleanField(
        label="Make it active", required=False, initial=True, widget=UnfoldBooleanSwitchWidget()
    )
    based_on = forms.IntegerField(required=False, widget=forms.HiddenInput())

    class Meta:
        fields: ClassVar = ["text", "note"]

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"]
        return validate_variables(text) if isinstance(self.instance, SystemPrompt) else text

    def clean(self) -> None:
        """Refuse the form once if another version became active meanwhile. A second save replaces that version."""
        super().clean()
        active = self.instance.history().filter(active=True).select_related("author").first()
        based_on = self.cleaned_data.get("based_on")
        active_version = active.version if active is not None else 0
        if based_on is not None and based_on != active_version:
            data = cast("QueryDict", self.data).copy()
            data["based_on"] = str(active_version)
            self.data = data
            author = (active.author if active is not None else None) or _("the product")
            sentence = Sentence(
                "The built-in text became active while you were writing. Your text does not have its changes. "
                "Compare the versions, take over what you need, and save again."
            )
            if active is not None:
                sentence = Sentence(
                    "{active} by {who} became active while you were writing. Your text does not have its "
                    "changes. Compare the versions, take over what you need, and save again.",
                    active=str(active),
                    who=str(author),
                )
            raise forms.ValidationError(str(sentence))


class TextForm(PromptForm):
    """A new version of the text with this `name`."""

    name: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row: Any = self.instance
        row.name = self.name
        text = self.fields["text"]
        definition = TEXTS[self.name]
        text.required = not definition.may_be_empty
        text.help_text = _("At most %(number)s characters.") % {"number": grouped(definition.most)}
        if definition.may_be_empty:
            text.help_text += " " + _("Empty: no text is sent.")

    def clean_text(self) -> str:
        try:
            return check_text(self.name, self.cleaned_data["text"])
        except ProductError as error:
            raise forms.ValidationError(str(error.sentence), code=error.code) from error


class ReminderForm(forms.ModelForm[Reminder]):
    text = prompt_text_field(Reminder.MAX_TEXT)

    class Meta:
        model = Reminder
        fields: ClassVar = ["text", "scope", "enabled"]


class ToolNamesField(forms.MultipleChoiceField):
    """Names of tools. Any name is valid here, since only the tool servers know their tools."""

    def valid_value(self, value: Any) -> bool:
        return True


class BasePersonaForm(forms.ModelForm[Persona]):
    """Base of all forms for a persona. `tag`: its entity tag when the form was opened; empty for a new persona.

    `acting_user`: the user who fills in the form.
    """

    acting_user: AbstractUser
    tag = forms.CharField(required=False, widget=forms.HiddenInput())

    def clean(self) -> None:
        """Show next to the field that the name is already used. The service would refuse the whole form."""
        super().clean()
        candidate = copy(self.instance)
        names = ("name", "visibility", "owner")
        set_fields(candidate, {name: self.cleaned_data[name] for name in names if name in self.cleaned_data})
        try:
            require_free_name(candidate, None if candidate._state.adding else self.instance)
        except ProductError as error:
            self.add_error("name", str(error.sentence))

    def clean_instructions(self) -> str:
        return validate_variables(self.cleaned_data["instructions"])

    def clean_tools(self) -> list[str]:
        try:
            return tools.check_tools(self.cleaned_data["tools"], self.instance.tools, person=self.acting_user.pk)
        except tools.BadTools as error:
            raise forms.ValidationError(str(error.sentence)) from error

    def clean_starter_messages(self) -> list[str]:
        lines: list[str] = self.cleaned_data["starter_messages"]
        if len(lines) > Persona.MAX_STARTERS or any(len(line) > Persona.MAX_STARTER for line in lines):
            sentence = Sentence(
                "Write at most {max_starters} lines of at most {max_starter} characters.",
                max_starters=Persona.MAX_STARTERS,
                max_starter=Persona.MAX_STARTER,
            )
            raise forms.ValidationError(str(sentence))
        return lines


class ToolCheckboxes(forms.CheckboxSelectMultiple):
    """Checkboxes for tools. Once loaded, the page requests the tools of the tool servers."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        chosen = [str(each) for each in value or ()]
        without_description = [(each, "") for each in chosen if tools.OWN_TOOLS.get(each) == ""]
        servers = tools.server_names()
        context = {
            "chosen": chosen,
            "own_title": _("The product's"),
            "own": [*((each, words) for each, words in tools.OWN_TOOLS.items() if words), *without_description],
            "servers": tools.tool_choices(map(tools.ToolOffer, servers), chosen),
            "asking": bool(servers),
        }
        return render_to_string("admin/personas/persona/tools.html", context)


class PersonaForm(BasePersonaForm):
    """The form of the admin, which sets `acting_user` on the form class of each request."""

    instructions = prompt_text_field(Persona.MAX_INSTRUCTIONS, required=False, help_text=VARIABLES_HELP)
    tools = ToolNamesField(required=False, widget=ToolCheckboxes)
    starter_messages = LinesField(help_text=f"Suggested first messages, one per line, at most {Persona.MAX_STARTERS}.")

    class Meta:
        model = Persona
        fields: ClassVar = [
            *("name", "icon", "colour", "description", "owner", "instructions", "replaces_system_prompt", "model"),
            *("effort", "budget_profile", "tools", "reminders", "date_awareness", "memory", "starter_messages"),
            "visibility",
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "owner" in self.fields:  # administrators who may only view get no fields
            self.fields["owner"].required = self.instance.owner_id is not None or self.instance._state.adding
        if "tag" in self.fields and not self.instance._state.adding:
            self.initial["tag"] = self.instance.tag

    def clean_owner(self) -> User | None:
        """Show next to the field the reason against handing the persona over."""
        owner: User | None = self.cleaned_data["owner"]
        if owner is not None and owner.pk != self.instance.owner_id and not self.instance._state.adding:
            try:
                require_hand_over(self.acting_user, self.instance, owner)
            except ProductError as error:
                raise forms.ValidationError(str(error.sentence), code=error.code) from error
        return owner

    def clean(self) -> None:
        super().clean()
        if not self.instance._state.adding and self.cleaned_data.get("tag") not in ("", None, self.instance.tag):
            raise forms.ValidationError(
                gettext(
                    "Somebody else changed this persona while you were writing. Copy your text, open the persona "
                    "again, and put both together."
                )
            )


class ModelField(forms.ModelChoiceField[Model]):
    """A choice among the usable models and the persona's current model."""

    def label_from_instance(self, obj: Model) -> str:
        if not (obj.enabled and obj.provider.enabled):
            return _("%(name)s (switched off; the default model answers)") % {"name": obj.label}
        return obj.label


FINE_TUNING_FIELDS = {"replaces_system_prompt", "reminder", "budget_profile", "date_awareness"}


class PersonaPageForm(BasePersonaForm):
    """The form of the page on which owners and editors write a persona."""

    instructions = PromptTextField(required=False, strip=False, max_length=Persona.MAX_INSTRUCTIONS)
    tools = ToolNamesField(required=False)
    reminder = PromptTextField(required=False, max_length=Reminder.MAX_TEXT)
    starter_messages = LinesField(widget=forms.Textarea())

    class Meta:
        model = Persona
        fields: ClassVar = [
            *("name", "icon", "colour", "description", "instructions", "replaces_system_prompt", "model", "effort"),
            *("budget_profile", "tools", "date_awareness", "memory", "starter_messages", "visibility"),
        ]
        widgets: ClassVar = dict.fromkeys(("budget_profile", "date_awareness", "visibility"), forms.RadioSelect)

    def __init__(self, data: QueryDict | None = None, *, instance: Persona, user: User) -> None:
        """Offer the models that the `user` may use. Offer the visibility only to owners."""
        is_stored = not instance._state.adding
        initial = {"reminder": instance.own_reminder, "tag": instance.tag} if is_stored else {}
        super().__init__(data, instance=instance, initial=initial, auto_id="%s")
        self.acting_user = user
        if is_stored and not is_owner(user, instance):
            del self.fields["visibility"]
        offered_ids = offered_models(user).order_by().values("pk")
        models = Model.objects.filter(Q(pk__in=offered_ids) | Q(pk=self.instance.model_id)).order_by("order", "name")
        default = _("The workspace's default (%(name)s)")
        try:
            default_label = default % {"name": model_for(None, user).label}
        except ProductError:
            default_label = _("The workspace's default")
        self.fields["model"] = ModelField(models.select_related("provider"), required=False, empty_label=default_label)
        profiles = cast("forms.ModelChoiceField[BudgetProfile]", self.fields["budget_profile"])
        workspace_profile = default_profile()
        profiles.empty_label = default % {"name": workspace_profile.name}
        if self.instance.budget_profile_id != workspace_profile.pk:  # the empty choice stands for it
            profiles.queryset = BudgetProfile.objects.exclude(pk=workspace_profile.pk)
        efforts = cast("forms.TypedChoiceField", self.fields["effort"])
        efforts.choices = [("", _("As the model is set")), *Effort.choices]

    @property
    def fine_tuned(self) -> bool:
        """Return whether the folded part of the page has an error, or a value that a new persona does not have."""
        row = self.instance
        return bool(
            self.errors.keys() & FINE_TUNING_FIELDS
            or row.replaces_system_prompt
            or row.budget_profile_id
            or row.date_awareness != DateAwareness.DAY
            or self["reminder"].value()
        )

    @property
    def persona_fields(self) -> PersonaFields:
        """Return the valid fields for `services.create_persona` and `update_persona`."""
        fields = {name: self.cleaned_data[name] for name in self._meta.fields or () if name in self.fields}
        return cast("PersonaFields", fields)


class CountForm(forms.Form):
    """The instructions to count, and the model whose tokenizer counts them. Without one, the default model does."""

    instructions = forms.CharField(required=False, max_length=Persona.MAX_INSTRUCTIONS)
    model = forms.ModelChoiceField(Model.objects.none(), required=False)

    def __init__(self, user: User, data: QueryDict) -> None:
        super().__init__(data)
        self.fields["model"].queryset = models_of(user)  # type: ignore[attr-defined]  # a ModelChoiceField, see above
