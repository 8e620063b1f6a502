"""`/api/v1/me/` and `/api/v1/tokens/`: a person's settings and tokens for programs."""

from typing import ClassVar, cast

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import services
from accounts.access.api_views import ScopedView
from accounts.access.login import needs_fresh, require_fresh
from accounts.access.login_throttle import confirm_password
from accounts.access.rights import rights_of
from accounts.models import ApiToken, PeopleGroup, User
from core.api.fields import StrictSerializer, validate
from core.api.idempotency import ShownOnce
from core.api.pagination import NewestFirst


class MeSerializer(StrictSerializer, serializers.ModelSerializer[User]):
    email = serializers.CharField(read_only=True, help_text="May be empty.")

    rights = serializers.SerializerMethodField(help_text="The rights that the person has through groups.")
    groups = serializers.SerializerMethodField(help_text="The names of the person's groups, including “Everyone”.")

    class Meta:
        model = User
        fields: ClassVar = [
            *("id", "username", "email", "is_staff", "icon", "colour", "language", "timezone", "theme"),
            *("accepts_model_tasks", "asks_before_search", "tasks_in_prompts", "rights", "groups"),
        ]
        read_only_fields: ClassVar = ["id", "username", "email", "is_staff"]
        extra_kwargs: ClassVar = {
            "language": {"help_text": "Empty: the browser's language."},
            "timezone": {"help_text": "An IANA name such as Europe/Paris."},
            "theme": {"help_text": "Empty: the theme of the system."},
            "accepts_model_tasks": {
                "help_text": "True: tasks of a model count at once. False: they are proposals until they are accepted."
            },
            "asks_before_search": {
                "help_text": "Web searches of models wait for permission. The workspace can require this for everyone."
            },
            "tasks_in_prompts": {
                "help_text": "Prompts contain today's tasks and mentioned tasks. Runs do not depend on this."
            },
        }

    def get_rights(self, person: User) -> list[str]:
        return sorted(rights_of(person).may)

    def get_groups(self, person: User) -> list[str]:
        return list(PeopleGroup.objects.of(person).values_list("name", flat=True))


MAX_PASSWORD_LENGTH = 4_096  # characters; far longer than any typed password


class TokenSerializer(serializers.ModelSerializer[ApiToken]):
    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=ApiToken.SCOPES),
        max_length=len(ApiToken.SCOPES),
        required=False,
        help_text="Default: all scopes except system and admin.",
    )

    class Meta:
        model = ApiToken
        fields: ClassVar = ["id", "name", "scopes", "created", "expires", "last_used"]
        read_only_fields: ClassVar = ["id", "created", "last_used"]
        extra_kwargs: ClassVar = {
            "expires": {"help_text": f"Default: after {services.TOKEN_LIFE.days} days. Null: never."},
        }


class AskForTokenSerializer(StrictSerializer, TokenSerializer):
    password = serializers.CharField(
        max_length=MAX_PASSWORD_LENGTH,
        required=False,
        default="",
        write_only=True,
        help_text="Required for a session; not for a token.",
    )

    class Meta(TokenSerializer.Meta):
        fields: ClassVar = [*TokenSerializer.Meta.fields, "password"]


class RevokedSerializer(serializers.Serializer[dict[str, int]]):
    revoked = serializers.IntegerField(help_text="Number of tokens that were revoked.")


class NewTokenSerializer(TokenSerializer):
    token = serializers.CharField(
        read_only=True,
        allow_null=True,
        help_text=("Shown only in this response; null in a repeat with the same Idempotency-Key."),
    )
    left_out = serializers.CharField(read_only=True, help_text="Why `token` is null; empty otherwise.")

    class Meta(TokenSerializer.Meta):
        fields: ClassVar = [*TokenSerializer.Meta.fields, "token", "left_out"]


class MeView(ScopedView):
    """The user of the token or session. `serializer_class`: the serializer of a person."""

    scope = "admin"
    serializer_class: type[MeSerializer] = MeSerializer

    def required_scope(self) -> str | None:
        """Return the scope that a change needs. Every token may read its person."""
        return None if self.request.method in SAFE_METHODS else self.scope

    @extend_schema(responses=MeSerializer)
    def get(self, request: Request) -> Response:
        """Return the user of the token or session, with their settings."""
        return Response(self.serializer_class(self.person, context={"request": request}).data)

    @extend_schema(request=MeSerializer, responses=MeSerializer)
    def patch(self, request: Request) -> Response:
        """Change the face, language, time zone, theme and what models may see and do without asking. Scope `admin`."""
        body = MeSerializer(self.person, data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        fields = cast("services.PreferenceFields", body.validated_data)
        person = services.change_preferences(user=self.person, fields=fields)
        return Response(self.serializer_class(person, context={"request": request}).data)


class TokenViewSet(ScopedView, mixins.RetrieveModelMixin, mixins.ListModelMixin, viewsets.GenericViewSet[ApiToken]):
    scope = "admin"
    serializer_class = TokenSerializer
    pagination_class = NewestFirst
    queryset = ApiToken.objects.none()

    def get_queryset(self) -> QuerySet[ApiToken]:
        return ApiToken.objects.visible_to(self.person).defer("digest")

    @extend_schema(request=AskForTokenSerializer, responses={201: NewTokenSerializer})
    def create(self, request: Request) -> Response:
        """Create a token. A token that another token creates cannot have more scopes or a later end than its creator.

        A session sends the user's password too. A session of a user with a second factor or without a password must be
        fresh. The response shows `token` once. A repeat with the same `Idempotency-Key` has null instead, and names it
        in `left_out`.
        """
        asking = request.auth if isinstance(request.auth, ApiToken) else None
        fields = validate(AskForTokenSerializer, request)
        if asking is None:
            if self.person.has_usable_password():
                confirm_password(request, self.person, fields["password"])
            if needs_fresh(self.person):
                require_fresh(request)
        row, token = services.create_token(
            user=self.person,
            name=fields["name"],
            scopes=fields.get("scopes"),
            expires=fields.get("expires", services.default_expiry(asking)),
            asking=asking,
        )
        shown = {**TokenSerializer(row).data, "token": token}
        return ShownOnce(shown, "token", what="token")

    @extend_schema(request=None, responses=RevokedSerializer)
    @action(detail=False, methods=["post"], url_path="revoke-all")
    def revoke_all(self, request: Request) -> Response:
        """Revoke all tokens of the user at once, including the token of this request."""
        return Response({"revoked": services.revoke_tokens(user=self.person)})

    @extend_schema(request=None, responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Revoke a token at once. It stays in the list as an ended token."""
        services.revoke_token(user=self.person, token=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)
