"""`/api/v1/connected-tools/`: the tool servers to which the person signs in."""

from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from accounts.connected_tools import services
from accounts.connected_tools.services import ConnectionState, ToolConnection
from accounts.connected_tools.views import granted, offered
from core.net.site import site_origin
from core.requests import identifier
from llm.models import ToolServer


class ConnectedToolSerializer(serializers.Serializer[ToolConnection]):
    id = serializers.UUIDField(source="server.id")
    name = serializers.CharField(source="server.name")
    host = serializers.CharField()
    state = serializers.ChoiceField(
        choices=[each.value for each in ConnectionState],
        help_text=(
            "`none`: not signed in. `connected`. `more`: signed in, and the server wants a further permission. "
            "`ended`: sign in again."
        ),
    )
    offered = serializers.BooleanField(help_text="Whether the person may sign in to it now.")
    scope = serializers.CharField(source="grant.scope", default="", help_text="The permissions that were given.")
    connected = serializers.DateTimeField(source="grant.created", default=None, allow_null=True)
    last_used = serializers.DateTimeField(source="grant.last_used", default=None, allow_null=True)


class BegunSignInSerializer(serializers.Serializer[dict[str, str]]):
    url = serializers.CharField(help_text="Where the person signs in.")


class ConnectedToolViewSet(ScopedView, viewsets.GenericViewSet[Any]):
    serializer_class = ConnectedToolSerializer
    scope = "admin"
    pagination_class = None
    queryset = ToolServer.objects.none()

    @extend_schema(responses=ConnectedToolSerializer(many=True))
    def list(self, request: Request) -> Response:
        """List the tool servers to which the person may sign in, and those to which a sign-in is left."""
        rows = [ConnectedToolSerializer(row).data for row in services.connections(self.person)]
        return Response(rows)

    @extend_schema(responses={204: OpenApiResponse(description="Disconnected.")})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete the sign-in, and ask the server to end its tokens."""
        services.disconnect(user=self.person, grant=granted(self.person, identifier(pk, "tool server")))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses=BegunSignInSerializer)
    @action(detail=True, methods=["post"], url_path="sign-in")
    def sign_in(self, request: Request, pk: str) -> Response:
        """Begin a sign-in. Open the `url` in a browser in which the person is signed in here, within ten minutes."""
        server = offered(self.person, identifier(pk, "tool server"))
        pending = services.begin_sign_in(user=self.person, server=server, site=site_origin(request))
        return Response(BegunSignInSerializer({"url": pending.address}).data)
