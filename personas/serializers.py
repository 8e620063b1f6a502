"""Personas, reminders, budget profiles and system prompts as programs see them."""

from copy import copy
from typing import Any, ClassVar

from django.db.models import Q, QuerySet
from rest_framework import serializers

from core.rest import Strict, VisibleField
from llm.models import Model
from personas import tools
from personas.models import BudgetProfile, Persona, Reminder, SystemPrompt
from personas.services import may_change


class UsableModelField(serializers.PrimaryKeyRelatedField[Model]):
    """A model that can answer, or the one that is chosen already."""

    def get_queryset(self) -> QuerySet[Model]:
        chosen = self.root.instance.model_id if isinstance(self.root.instance, Persona) else None
        return Model.objects.filter(Q(enabled=True, provider__enabled=True) | Q(pk=chosen))


class PersonaSerializer(Strict, serializers.ModelSerializer[Persona]):
    instructions = serializers.CharField(allow_blank=True, max_length=Persona.MAX_INSTRUCTIONS, trim_whitespace=False)
    model = UsableModelField(required=False, allow_null=True, help_text="Null: the workspace's default.")
    tools = serializers.ListField(
        child=serializers.CharField(max_length=100),
        required=False,
        help_text="web_search, open_url, tasks, or a tool server's as server__tool; server__* for all of them.",
    )
    reminder = serializers.CharField(
        source="own_reminder",
        required=False,
        allow_blank=True,
        max_length=Reminder.MAX_TEXT,
        help_text="Its own, beside those that stand everywhere; the last words of the prompt.",
    )
    starter_messages = serializers.ListField(
        child=serializers.CharField(max_length=Persona.MAX_STARTER), required=False, max_length=Persona.MAX_STARTERS
    )
    tokens = serializers.IntegerField(
        source="token_count",
        read_only=True,
        allow_null=True,
        help_text="Of the instructions, counted with the catch-all.",
    )
    editable = serializers.SerializerMethodField(help_text="Whether you may change it; what you see you may use.")

    class Meta:
        model = Persona
        fields: ClassVar = [
            "id", "name", "description", "instructions", "replaces_system_prompt", "model", "budget_profile", "tools",
            "reminder", "date_awareness", "starter_messages", "visibility", "owner", "editable", "version", "tokens",
            "created", "updated",
        ]  # fmt: skip
        read_only_fields: ClassVar = ["owner", "version", "created", "updated"]

    def get_editable(self, persona: Persona) -> bool:
        return may_change(self.context["request"].user, persona)

    def validate_tools(self, names: list[str]) -> list[str]:
        try:
            return tools.checked(names, already=self.instance.tools if self.instance else ())
        except tools.BadTools as error:
            raise serializers.ValidationError(str(error)) from error


class ReminderSerializer(Strict, serializers.ModelSerializer[Reminder]):
    text = serializers.CharField(max_length=Reminder.MAX_TEXT)
    scope = serializers.ChoiceField(
        choices=Reminder.Scope.choices, required=False, help_text="persona when a persona is named, else everywhere."
    )
    persona = VisibleField(
        Persona, required=False, write_only=True, help_text="Whose it is. It stays so: delete it and make another one."
    )
    personas = serializers.SerializerMethodField(help_text="Those that you see of the personas that use it.")

    class Meta:
        model = Reminder
        fields: ClassVar = ["id", "text", "scope", "persona", "personas", "enabled", "created"]
        read_only_fields: ClassVar = ["created"]

    def get_personas(self, reminder: Reminder) -> list[str]:
        seen = getattr(reminder, "seen", None)  # of a list, with one query for all
        if seen is None:
            seen = reminder.personas.visible_to(self.context["request"].user)
        return [str(persona.pk) for persona in seen]

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if self.instance is not None:
            fixed: dict[str, Any] = {
                name: ["This field cannot be changed."] for name in ("scope", "persona") if name in attrs
            }
            if fixed:
                raise serializers.ValidationError(fixed)
            return attrs
        persona = attrs.get("persona")
        attrs.setdefault("scope", Reminder.Scope.PERSONA if persona else Reminder.Scope.EVERYWHERE)
        if (attrs["scope"] == Reminder.Scope.PERSONA) != (persona is not None):
            sentence = "Name the persona with scope “persona”, and none with scope “everywhere”."
            raise serializers.ValidationError({"persona": [sentence]})
        return attrs


class BudgetProfileSerializer(Strict, serializers.ModelSerializer[BudgetProfile]):
    """Every number in tokens unless it is a share (0 to 1, as a string with three decimals)."""

    # Declared, since the generated field would refuse `true` while another profile is the default.
    default = serializers.BooleanField(required=False)

    class Meta:
        model = BudgetProfile
        fields = "__all__"

    def validate_default(self, default: bool) -> bool:
        if self.instance is not None and self.instance.default and not default:
            raise serializers.ValidationError("Make another profile the default instead.")
        return default

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        candidate = copy(self.instance) if self.instance is not None else BudgetProfile()
        for name, value in attrs.items():
            setattr(candidate, name, value)
        candidate.clean()
        return attrs


class SystemPromptSerializer(Strict, serializers.ModelSerializer[SystemPrompt]):
    text = serializers.CharField(max_length=Persona.MAX_INSTRUCTIONS, trim_whitespace=False)
    activate = serializers.BooleanField(default=True, write_only=True)
    tokens = serializers.IntegerField(
        source="token_count", read_only=True, allow_null=True, help_text="Counted with the catch-all."
    )

    class Meta:
        model = SystemPrompt
        fields: ClassVar = ["id", "version", "text", "note", "tokens", "author", "active", "activate", "created"]
        read_only_fields: ClassVar = ["version", "author", "active", "created"]
