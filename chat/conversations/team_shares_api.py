"""`/api/v1/`: share conversations in the workspace, and read and copy those that others share, for programs."""

from typing import Any, ClassVar, TypedDict
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from chat.conversations import copying, team_shares
from chat.conversations.api import ConversationSerializer
from chat.conversations.attaching import shared_source
from chat.conversations.attaching_api import AttachedConversationSerializer, AttachSerializer, attached_response
from chat.conversations.sharing import SharedMessage, shared_page
from chat.models import Message, TeamShare
from chat.models.conversation_state import visible_conversation
from core.api.fields import StrictSerializer, validate
from core.api.pagination import pages

TERMS = ("may_copy", "shows_context", "names_sources")


class TeamShareSerializer(serializers.ModelSerializer[TeamShare]):
    """A share with a user, by the user name as it was written, existing or not, with a group, or with a project."""

    class Meta:
        model = TeamShare
        fields: ClassVar = [
            *("id", "conversation", "leaf", "title", "username", "group", "project", "recipient"),
            *(*TERMS, "created", "updated"),
        ]
        read_only_fields = fields


class NewTeamShare(TypedDict, total=False):
    """Body of a request for a share; exactly one of `username`, `group` and `project` is sent."""

    username: str
    group: UUID
    project: UUID
    may_copy: bool
    shows_context: bool
    names_sources: bool


class NewTeamShareSerializer(StrictSerializer):
    username = serializers.CharField(required=False, max_length=TeamShare.MAX_USERNAME)
    group = serializers.UUIDField(required=False, help_text="The id of a group that you are in or manage.")
    project = serializers.UUIDField(required=False, help_text="The id of a project that you may change.")
    may_copy = serializers.BooleanField(default=False, help_text="Readers may continue in their own copy.")
    shows_context = serializers.BooleanField(
        default=False, help_text="Readers see how many tokens of each kind the model saw, as numbers only."
    )
    names_sources = serializers.BooleanField(
        default=False, help_text="With `shows_context`: also the names of files and the arguments of tools."
    )

    def validate(self, attrs: NewTeamShare) -> NewTeamShare:
        if sum(name in attrs for name in ("username", "group", "project")) != 1:
            raise serializers.ValidationError({"username": [gettext("Send one user name, one group or one project.")]})
        return attrs


class ConversationTeamSharesView(ScopedView):
    @extend_schema(responses=TeamShareSerializer(many=True))
    def get(self, request: Request, pk: UUID) -> Response:
        """Return with whom a conversation is shared in the workspace, at most 50."""
        rows = team_shares.list_shares(self.person).filter(conversation=visible_conversation(self.person, pk))
        return Response(TeamShareSerializer(rows, many=True).data)

    @extend_schema(request=NewTeamShareSerializer, responses={201: TeamShareSerializer})
    def post(self, request: Request, pk: UUID) -> Response:
        """Share the current branch as it is now with one user, group or project.

        Later messages are not in it: share again to renew it. The response is the same whether the user name exists or
        not. Files, results of tools and reasoning are not shared, only texts and names.
        """
        conversation = visible_conversation(self.person, pk)
        body = validate(NewTeamShareSerializer, request)
        row = team_shares.share_conversation(
            user=self.person,
            conversation=conversation,
            recipient=team_shares.Recipient(body.get("username", ""), body.get("group"), body.get("project")),
            terms=team_shares.TeamTerms(body["may_copy"], body["shows_context"], body["names_sources"]),
        )
        return Response(TeamShareSerializer(row).data, status=status.HTTP_201_CREATED)


class TeamShareViewSet(
    ScopedView,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet[TeamShare],
):
    """All shares of the user's conversations with people, groups and projects. Deleting one withdraws it."""

    serializer_class = TeamShareSerializer
    pagination_class = pages("-id", at_most=None)
    queryset = TeamShare.objects.none()

    def get_queryset(self) -> QuerySet[TeamShare]:
        return team_shares.list_shares(self.person)

    def perform_destroy(self, instance: TeamShare) -> None:
        team_shares.end_team_share(user=self.person, share=instance)


class ReceivedShareSerializer(serializers.ModelSerializer[TeamShare]):
    """A conversation that somebody shares with the user. `group` and `project`: through which it came."""

    owner = serializers.CharField(source="owner_name", help_text="The user name of the person who shares it.")

    class Meta:
        model = TeamShare
        fields: ClassVar = ["id", "title", "owner", "group", "project", *TERMS, "created", "updated"]
        read_only_fields = fields


class ReceivedMessageSerializer(serializers.Serializer[SharedMessage]):
    role = serializers.ChoiceField(source="row.role", choices=Message.Role.choices)
    created = serializers.DateTimeField(source="row.created")
    status = serializers.CharField(source="row.status", help_text="done, stopped, failed or interrupted.")
    model = serializers.CharField(source="row.model.name", allow_null=True, default=None)
    text = serializers.CharField(source="row.text")
    files = serializers.SerializerMethodField(help_text="Names of attached files. The files are not shared.")

    def get_files(self, message: SharedMessage) -> list[str]:
        return [attached.name for attached in message.row.attachments.all()]


class ReceivedMessagesSerializer(serializers.Serializer[Any]):
    results = ReceivedMessageSerializer(many=True)
    after = serializers.IntegerField(allow_null=True, help_text="Send it as `after` for more; null at the end.")


class AfterSerializer(StrictSerializer):
    after = serializers.IntegerField(default=-1, min_value=-1, max_value=10**8)


class ReceivedShareViewSet(
    ScopedView,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet[TeamShare],
):
    """Conversations that others share with the user.

    Deleting one removes it if only the user has received it, or if they own the project that has. Otherwise 404.
    """

    serializer_class = ReceivedShareSerializer
    pagination_class = pages("-updated", "-id", at_most=None)
    queryset = TeamShare.objects.none()

    def get_queryset(self) -> QuerySet[TeamShare]:
        return team_shares.list_received(self.person)

    def perform_destroy(self, instance: TeamShare) -> None:
        team_shares.end_team_share(user=self.person, share=instance)

    @extend_schema(request=AttachSerializer, responses={201: AttachedConversationSerializer})
    @action(detail=True, methods=["post"], url_path="as-file")
    def as_file(self, request: Request, pk: str) -> Response:
        """Make a file of the shared conversation, to send along with a message, if readers may copy it."""
        return attached_response(self.person, shared_source(self.person, pk), validate(AttachSerializer, request))

    @extend_schema(
        responses=ReceivedMessagesSerializer, parameters=[OpenApiParameter("after", int, description="From `after`.")]
    )
    @action(detail=True)
    def messages(self, request: Request, pk: str) -> Response:
        """Return the messages that are shared, oldest first: texts, names of models and of files."""
        share = self.get_object()
        query = AfterSerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        page = shared_page(share, query.validated_data["after"])
        return Response(ReceivedMessagesSerializer({"results": page.messages, "after": page.after}).data)

    @extend_schema(request=None, responses={201: ConversationSerializer})
    @action(detail=True, methods=["post"])
    def copy(self, request: Request, pk: str) -> Response:
        """Copy the messages into a new conversation of the user, if the share allows it. Returns the conversation."""
        copied = copying.copy_shared(user=self.person, share=self.get_object())
        return Response(
            ConversationSerializer(copied, context={"request": request}).data, status=status.HTTP_201_CREATED
        )
