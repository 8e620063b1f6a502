"""People and tokens as programs see them; a token itself only in the answer that makes it."""

from typing import ClassVar

from rest_framework import serializers

from accounts.models import ApiToken, User


class MeSerializer(serializers.ModelSerializer[User]):
    email = serializers.CharField(read_only=True, help_text="May be empty.")

    class Meta:
        model = User
        fields: ClassVar = ["id", "username", "email", "is_staff", "language", "timezone", "theme"]
        read_only_fields: ClassVar = ["id", "username", "email", "is_staff"]
        extra_kwargs: ClassVar = {
            "language": {"help_text": "Empty: as the browser asks."},
            "timezone": {"help_text": "An IANA name such as Europe/Paris."},
            "theme": {"help_text": "Empty: as the system is set."},
        }


class TokenSerializer(serializers.ModelSerializer[ApiToken]):
    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=ApiToken.SCOPES), required=False, help_text="Without: all but admin."
    )

    class Meta:
        model = ApiToken
        fields: ClassVar = ["id", "name", "scopes", "created", "expires", "last_used"]
        read_only_fields: ClassVar = ["id", "created", "last_used"]


class NewTokenSerializer(TokenSerializer):
    token = serializers.CharField(read_only=True, help_text="Shown this once.")

    class Meta(TokenSerializer.Meta):
        fields: ClassVar = [*TokenSerializer.Meta.fields, "token"]
