"""`/api/v1/…/shares/`: links to conversations, for programs."""

from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.permissions import ScopedView
from chat.conversations.sharing import services as sharing
from chat.models import Conversation, Share
from core.lookups import get_or_404
from core.rest import pages


class ShareSerializer(serializers.ModelSerializer[Share]):
    url = serializers.SerializerMethodField()

    class Meta:
        model = Share
        fields = ("id", "conversation", "leaf", "title", "url", "created")
        read_only_fields = fields

    @extend_schema_field(serializers.URLField())
    def get_url(self, share: Share) -> str:
        path = reverse("chat:shared", args=[share.token])
        return str(self.context["request"].build_absolute_uri(path))


class ConversationSharesView(ScopedView):
    @extend_schema(responses=ShareSerializer(many=True))
    def get(self, request: Request, pk: UUID) -> Response:
        """The links of a conversation, newest first, at most 50."""
        rows = sharing.shares_of(self.person).filter(conversation=self._conversation(pk))
        return Response(ShareSerializer(rows, many=True, context={"request": request}).data)

    @extend_schema(request=None, responses={201: ShareSerializer})
    def post(self, request: Request, pk: UUID) -> Response:
        """Makes a link to the branch on show as it is now: whoever has it may read that, without signing in."""
        made = sharing.share(user=self.person, conversation=self._conversation(pk))
        return Response(ShareSerializer(made, context={"request": request}).data, status=status.HTTP_201_CREATED)

    def _conversation(self, pk: UUID) -> Conversation:
        return get_or_404(Conversation.objects.visible_to(self.person), pk, "conversation")


class ShareViewSet(
    ScopedView,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet[Share],
):
    """All links of a person; deleting one ends it."""

    serializer_class = ShareSerializer
    pagination_class = pages("-id", at_most=None)
    queryset = Share.objects.none()

    def get_queryset(self) -> QuerySet[Share]:
        return sharing.shares_of(self.person)

    def perform_destroy(self, instance: Share) -> None:
        sharing.end_share(user=self.person, share=instance)
