"""Serialize models for the API: their abilities, never their address or key."""

from typing import ClassVar

from rest_framework import serializers

from llm.models import Effort, Model


class AbilitiesSerializer(serializers.ModelSerializer[Model]):
    efforts = serializers.ListField(
        source="offered_efforts",
        child=serializers.ChoiceField(Effort.choices),
        read_only=True,
        help_text="The efforts of reasoning that it accepts, lowest first.",
    )

    class Meta:
        model = Model
        fields: ClassVar = ["vision", "tools", "reasoning", "several_system_messages", "efforts"]
        read_only_fields = fields


class ModelSerializer(serializers.ModelSerializer[Model]):
    provider = serializers.CharField(source="provider.name", read_only=True)
    window = serializers.IntegerField(read_only=True, help_text="Tokens of prompt and answer together.")
    abilities = AbilitiesSerializer(source="*", read_only=True)
    fallback = serializers.PrimaryKeyRelatedField[Model](
        allow_null=True,
        read_only=True,
        help_text="The model that is used if this one's provider is not available.",
    )
    label = serializers.CharField(read_only=True, help_text="The name that people read.")  # type: ignore[assignment]  # DRF's own attribute is a text
    favourite = serializers.BooleanField(
        read_only=True, help_text="Whether it is one of your favourites, which are at the top of your list."
    )
    exact = serializers.SerializerMethodField(help_text="Whether its tokenizer is known, so that counts are exact.")

    class Meta:
        model = Model
        fields: ClassVar = [
            "id",
            "name",
            "label",
            "description",
            "icon",
            "colour",
            "order",
            "hidden",
            "favourite",
            "provider",
            "window",
            "max_output",
            "abilities",
            "exact",
            "fallback",
            "default",
            "retires_on",
        ]
        read_only_fields = fields
        extra_kwargs: ClassVar = {"retires_on": {"help_text": "The day on which its provider retires it, if known."}}

    def get_exact(self, model: Model) -> bool:
        return bool(model.tokenizer)
