"""`/api/v1/memories/` and `/api/v1/profile/`: what is remembered about a person, for their programs."""

from typing import Any, ClassVar, cast

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field, extend_schema_view
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from chat.memory import services
from chat.memory.listing import ShownSource, list_facts, with_sources
from chat.memory.models import Fact, Profile
from chat.memory.services import FactScope, ProfileFields
from chat.models import Conversation
from core.api.fields import StrictSerializer, VisibleField, validate
from core.api.pagination import NewestFirst
from core.errors import ProductError
from core.sentences import Sentence
from personas.models import Persona
from projects.models import Project


class FactSourceSerializer(serializers.Serializer[ShownSource]):
    quote = serializers.CharField(help_text="The person's words.")
    message = serializers.UUIDField(allow_null=True, help_text="Null once the message is deleted.")
    conversation = serializers.UUIDField(allow_null=True)


class FactSerializer(StrictSerializer, serializers.ModelSerializer[Fact]):
    text = serializers.CharField(max_length=Fact.MAX_TEXT, help_text="Empty once the fact is forgotten.")
    project = VisibleField(Project, required=False, allow_null=True, help_text="The project in which alone it applies.")
    persona = VisibleField(
        Persona, required=False, allow_null=True, help_text="The persona with which alone it applies."
    )
    sources = serializers.SerializerMethodField(help_text="The newest words of the person on which it rests.")

    class Meta:
        model = Fact
        fields: ClassVar = [
            *("id", "text", "status", "scope", "project", "persona", "pinned", "proposed_by", "sources"),
            *("confirmed", "outdated_by", "forgotten", "last_used", "created"),
        ]
        read_only_fields: ClassVar = [
            *("id", "status", "scope", "proposed_by", "confirmed", "outdated_by", "forgotten", "last_used", "created")
        ]

    @extend_schema_field(FactSourceSerializer(many=True))
    def get_sources(self, fact: Fact) -> Any:
        [shown] = with_sources([fact])
        return [FactSourceSerializer(source).data for source in shown.sources]

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("project") and attrs.get("persona"):
            sentence = Sentence("A fact applies in one project or with one persona. Name one of them.")
            raise serializers.ValidationError(str(sentence))
        return attrs


class KeepFactSerializer(StrictSerializer):
    text = serializers.CharField(max_length=Fact.MAX_TEXT, required=False, help_text="Other words for it.")
    keep_older = serializers.BooleanField(default=False, help_text="Outdate no facts that it contradicts.")


class LeaveOutSerializer(StrictSerializer):
    conversation = VisibleField(Conversation)
    left_out = serializers.BooleanField(default=True)


class ForgottenSerializer(serializers.Serializer[dict[str, int]]):
    forgotten = serializers.IntegerField(help_text="The number of facts.")


@extend_schema_view(
    list=extend_schema(
        parameters=[
            OpenApiParameter("status", str, enum=Fact.Status.values, description="Default: all but forgotten ones."),
            OpenApiParameter("q", OpenApiTypes.STR, description="Words of the text."),
        ]
    ),
    destroy=extend_schema(description="Forget the fact: its text, its search terms and its sources are deleted."),
    partial_update=extend_schema(description="Pin the fact, or correct its text. A correction is a new fact."),
)
class FactViewSet(
    ScopedView,
    mixins.CreateModelMixin,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    mixins.UpdateModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet[Fact],
):
    """Facts about you: proposed, remembered, outdated and forgotten ones."""

    serializer_class = FactSerializer
    pagination_class = NewestFirst
    queryset = Fact.objects.none()
    http_method_names = ("get", "post", "patch", "delete", "head", "options")

    def get_queryset(self) -> QuerySet[Fact]:
        if self.action != "list":
            return Fact.objects.visible_to(self.request.user).select_related("owner", "project", "persona")
        status_code = self.request.query_params.get("status", "")
        if status_code and status_code not in Fact.Status.values:
            sentence = Sentence("“status” is one of these: {statuses}.", statuses=", ".join(Fact.Status.values))
            raise ProductError("bad_filter", sentence)
        return list_facts(self.person, status=status_code, query=self.request.query_params.get("q", ""))

    def perform_create(self, serializer: serializers.BaseSerializer[Fact]) -> None:
        fields = serializer.validated_data
        serializer.instance = services.add_fact(
            user=self.person,
            text=fields["text"],
            scope=FactScope(fields.get("project"), fields.get("persona")),
            pinned=fields.get("pinned", False),
        )

    def perform_update(self, serializer: serializers.BaseSerializer[Fact]) -> None:
        fields = serializer.validated_data
        fact = self.get_object()
        if {"project", "persona"} & set(fields):
            raise ProductError("scope_fixed", "The scope of a fact cannot change. Forget the fact, and add it again.")
        if "text" in fields:
            fact = services.correct_fact(user=self.person, fact=fact, text=fields["text"])
        if "pinned" in fields:
            fact = services.pin_fact(user=self.person, fact=fact, pinned=fields["pinned"])
        serializer.instance = fact

    def perform_destroy(self, instance: Fact) -> None:
        services.forget_fact(user=self.person, fact=instance)

    @extend_schema(request=KeepFactSerializer, responses=FactSerializer)
    @action(detail=True, methods=["post"])
    def keep(self, request: Request, pk: str) -> Response:
        """Keep a proposed fact. It outdates facts that it contradicts."""
        fields = validate(KeepFactSerializer, request)
        fact = services.keep_fact(
            user=self.person, fact=self.get_object(), text=fields.get("text"), keep_older=fields["keep_older"]
        )
        return Response(self.get_serializer(fact).data)

    @extend_schema(request=None, responses=FactSerializer)
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: str) -> Response:
        """Remember an outdated fact again."""
        fact = services.restore_fact(user=self.person, fact=self.get_object())
        return Response(self.get_serializer(fact).data)

    @extend_schema(request=LeaveOutSerializer, responses={204: None})
    @action(detail=True, methods=["post"], url_path="leave-out")
    def leave_out(self, request: Request, pk: str) -> Response:
        """Leave the fact out of one conversation, or send it there again when it matches."""
        fields = validate(LeaveOutSerializer, request)
        services.leave_out(
            user=self.person,
            conversation=fields["conversation"],
            fact=self.get_object(),
            left_out=fields["left_out"],
        )
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses=ForgottenSerializer)
    @action(detail=False, methods=["post"])
    def forget(self, request: Request) -> Response:
        """Forget all facts. The profile stays."""
        return Response({"forgotten": services.forget_all(user=self.person)})


class ProfileSerializer(StrictSerializer, serializers.ModelSerializer[Profile]):
    about = serializers.CharField(
        required=False, allow_blank=True, max_length=Profile.MAX_TEXT, help_text="Who you are, for models."
    )
    answering = serializers.CharField(
        required=False, allow_blank=True, max_length=Profile.MAX_TEXT, help_text="How models should answer you."
    )
    updated = serializers.DateTimeField(read_only=True, allow_null=True, help_text="Null while nothing is stored.")

    class Meta:
        model = Profile
        fields: ClassVar = ["about", "answering", "in_prompts", "proposals", "search_conversations", "updated"]
        extra_kwargs: ClassVar = {
            "proposals": {"help_text": "Whether models may propose facts, and whether these wait for you."},
            "search_conversations": {"help_text": "Whether models may search your other conversations."},
        }


class ProfileView(ScopedView):
    """Your profile for models, and your choices about memory."""

    @extend_schema(responses=ProfileSerializer)
    def get(self, request: Request) -> Response:
        """Return your profile."""
        return Response(ProfileSerializer(services.profile_for(self.person)).data)

    @extend_schema(request=ProfileSerializer, responses=ProfileSerializer)
    def patch(self, request: Request) -> Response:
        """Change the fields in the request."""
        body = ProfileSerializer(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        profile = services.save_profile(user=self.person, fields=cast("ProfileFields", body.validated_data))
        return Response(ProfileSerializer(profile).data)
