"""The forms for prompts and personas: the admin's, and that of the persona's own page."""

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

from accounts.access.rights import models_of
from accounts.models import User
from core.errors import ProductError
from core.i18n import grouped
from core.sentences import Sentence
from core.text import unix_lines
from llm.models import Model
from personas import tools
from personas.handing_over import require_hand_over
from personas.models import BudgetProfile, Persona, PromptVersion, Reminder, SystemPrompt
from personas.services import default_profile, model_for
from personas.sharing.names import require_free_name
from personas.sharing.roles import may_own
from personas.texts import TEXTS, checked
from personas.variables import check_variables


class Lines(forms.CharField):
    """A list of texts, one a line."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("widget", UnfoldAdminTextareaWidget(attrs={"rows": 4}))
        super().__init__(required=False, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> Any:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]


class PromptText(forms.CharField):
    """A text for a model. Browsers send its line ends as CR LF, which no model needs to read."""

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        return unix_lines(text) if isinstance(text, str) else text


def text_with_variables(text: str) -> str:
    """Return the text. Raise `ValidationError` if it has a variable that does not exist."""
    try:
        check_variables(text)
    except ProductError as error:
        raise forms.ValidationError(str(error.sentence), code=error.code) from error
    return text


def prompt_text(most: int | None = None, **options: Any) -> PromptText:
    """The admin's field for one, as wide as the page."""
    widget = UnfoldAdminTextareaWidget(attrs={"rows": 16, "style": "max-width: none"})
    return PromptText(max_length=most, widget=widget, **options)


class PromptForm(forms.ModelForm[PromptVersion]):
    """A new version. `based_on` is the version that was active when the form was opened, 0 for none."""

    text = prompt_text()
    activate = forms.BooleanField(
        label="Make it active", required=False, initial=True, widget=UnfoldBooleanSwitchWidget()
    )
    based_on = forms.IntegerField(required=False, widget=forms.HiddenInput())

    class Meta:
        fields: ClassVar = ["text", "note"]

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"]
        return text_with_variables(text) if isinstance(self.instance, SystemPrompt) else text

    def clean(self) -> dict[str, Any]:
        """Stops once when somebody else has changed the prompt meanwhile; saving again goes on from theirs."""
        cleaned = super().clean() or self.cleaned_data
        active = self.instance.history().filter(active=True).select_related("author").first()
        based_on, now = cleaned.get("based_on"), active.version if active is not None else 0
        if based_on is not None and based_on != now:
            data = cast("QueryDict", self.data).copy()
            data["based_on"] = str(now)
            self.data = data
            who = (active.author if active is not None else None) or _("the product")
            sentence = Sentence(
                "The built-in text became active while you were writing, and your text does not have its changes. "
                "Compare the versions, take over what you need, and save again."
            )
            if active is not None:
                sentence = Sentence(
                    "{active} by {who} became active while you were writing, and your text does not have its "
                    "changes. Compare the versions, take over what you need, and save again.",
                    active=str(active),
                    who=str(who),
                )
            raise forms.ValidationError(str(sentence))
        return cleaned


class TextForm(PromptForm):
    """A new version of the text of this `name`."""

    name: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row: Any = self.instance
        row.name = self.name
        text, about = self.fields["text"], TEXTS[self.name]
        text.required = not about.may_be_empty
        text.help_text = _("At most %(number)s characters.") % {"number": grouped(about.most)}
        if about.may_be_empty:
            text.help_text += " " + _("Empty: nothing is sent in its place.")

    def clean_text(self) -> str:
        try:
            return checked(self.name, self.cleaned_data["text"])
        except ProductError as error:
            raise forms.ValidationError(str(error.sentence), code=error.code) from error


class ReminderForm(forms.ModelForm[Reminder]):
    text = prompt_text(Reminder.MAX_TEXT)

    class Meta:
        model = Reminder
        fields: ClassVar = ["text", "scope", "enabled"]


class ToolNames(forms.MultipleChoiceField):
    """Names of tools; which there are is known only when the servers are asked."""

    def valid_value(self, value: Any) -> bool:
        return True


class PersonaRules(forms.ModelForm[Persona]):
    """What holds of a persona wherever it is written. `tag`: the state that the form was opened with; empty for a new
    one."""

    tag = forms.CharField(required=False, widget=forms.HiddenInput())

    def clean(self) -> dict[str, Any]:
        """Says beside the name that it is taken; the service would refuse all that was written."""
        cleaned = super().clean() or self.cleaned_data
        wanted = copy(self.instance)
        for name in ("name", "visibility", "owner"):
            if name in cleaned:
                setattr(wanted, name, cleaned[name])
        try:
            require_free_name(wanted, None if wanted._state.adding else self.instance)
        except ProductError as error:
            self.add_error("name", str(error.sentence))
        return cleaned

    def clean_instructions(self) -> str:
        return text_with_variables(self.cleaned_data["instructions"])

    def clean_tools(self) -> list[str]:
        try:
            return tools.checked(self.cleaned_data["tools"], already=self.instance.tools)
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


class ToolBoxes(forms.CheckboxSelectMultiple):
    """The tools to choose from; the page asks the servers for theirs once it is there."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        chosen = [str(each) for each in value or ()]
        unnamed = [(each, "") for each in chosen if tools.OWN.get(each) == ""]
        servers = tools.server_names()
        context = {
            "chosen": chosen,
            "own_title": _("The product's"),
            "own": [*((each, words) for each, words in tools.OWN.items() if words), *unnamed],
            "servers": tools.tickable(map(tools.Offer, servers), chosen),
            "asking": bool(servers),
        }
        return render_to_string("admin/personas/persona/tools.html", context)


class PersonaForm(PersonaRules):
    """The admin's. `acting` is who fills it in; the admin says so."""

    acting: ClassVar[AbstractUser]

    instructions = prompt_text(Persona.MAX_INSTRUCTIONS, required=False)
    tools = ToolNames(required=False, widget=ToolBoxes)
    starter_messages = Lines(help_text=f"Shown for a start, one a line, at most {Persona.MAX_STARTERS}.")

    class Meta:
        model = Persona
        fields: ClassVar = [
            *("name", "description", "owner", "instructions", "replaces_system_prompt", "model", "effort"),
            *("budget_profile", "tools", "reminders", "date_awareness", "starter_messages", "visibility"),
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "owner" in self.fields:  # whoever may only look sees no fields
            self.fields["owner"].required = self.instance.owner_id is not None or self.instance._state.adding
        if "tag" in self.fields and not self.instance._state.adding:
            self.initial["tag"] = self.instance.tag

    def clean_owner(self) -> User | None:
        """That it cannot be handed over is said beside the field."""
        owner: User | None = self.cleaned_data["owner"]
        if owner is not None and owner.pk != self.instance.owner_id and not self.instance._state.adding:
            try:
                require_hand_over(self.acting, self.instance, owner)
            except ProductError as error:
                raise forms.ValidationError(str(error.sentence), code=error.code) from error
        return owner

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if not self.instance._state.adding and cleaned.get("tag") not in ("", None, self.instance.tag):
            raise forms.ValidationError(
                gettext(
                    "Somebody else changed this persona while you were writing. Copy your text, open the persona "
                    "again, and put both together."
                )
            )
        return cleaned


class ModelField(forms.ModelChoiceField[Model]):
    """The models that can answer, and the one that is chosen already."""

    def label_from_instance(self, obj: Model) -> str:
        if not (obj.enabled and obj.provider.enabled):
            return _("%(name)s (switched off; the default answers)") % {"name": obj.name}
        return obj.name


class PersonaPageForm(PersonaRules):
    """A persona as its owners and editors write it."""

    instructions = PromptText(required=False, strip=False, max_length=Persona.MAX_INSTRUCTIONS)
    tools = ToolNames(required=False)
    reminder = PromptText(required=False, max_length=Reminder.MAX_TEXT)
    starter_messages = Lines(widget=forms.Textarea())

    class Meta:
        model = Persona
        fields: ClassVar = [
            *("name", "description", "instructions", "replaces_system_prompt", "model", "effort", "budget_profile"),
            *("tools", "date_awareness", "starter_messages", "visibility"),
        ]
        widgets: ClassVar = dict.fromkeys(("budget_profile", "date_awareness", "visibility"), forms.RadioSelect)

    def __init__(self, data: QueryDict | None = None, *, instance: Persona, user: User) -> None:
        """`user`: who writes it, and chooses among what they may use; only owners say who sees it."""
        stored = not instance._state.adding
        initial = {"reminder": instance.own_reminder, "tag": instance.tag} if stored else {}
        super().__init__(data, instance=instance, initial=initial, auto_id="%s")
        if stored and not may_own(user, instance):
            del self.fields["visibility"]
        models = Model.objects.filter(Q(pk__in=models_of(user).values("pk")) | Q(pk=self.instance.model_id))
        default = _("The workspace's default (%(name)s)")
        try:
            named = default % {"name": model_for(None, user).name}
        except ProductError:
            named = _("The workspace's default")
        self.fields["model"] = ModelField(models.select_related("provider"), required=False, empty_label=named)
        profiles = cast("forms.ModelChoiceField[BudgetProfile]", self.fields["budget_profile"])
        profiles.empty_label = default % {"name": default_profile().name}

    @property
    def persona_fields(self) -> dict[str, Any]:
        """What was written, as `services.create_persona` and `update_persona` take it."""
        return {name: self.cleaned_data[name] for name in self._meta.fields or () if name in self.fields}


class CountForm(forms.Form):
    """Instructions as they are being written, and the model whose tokenizer counts them; none: the default one."""

    instructions = forms.CharField(required=False, max_length=Persona.MAX_INSTRUCTIONS)
    model = forms.ModelChoiceField(Model.objects.none(), required=False)

    def __init__(self, user: User, data: QueryDict) -> None:
        super().__init__(data)
        self.fields["model"].queryset = models_of(user)  # type: ignore[attr-defined]  # of the field above
