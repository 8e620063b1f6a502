"""`/api/v1/personas/<id>/shares/`: list and change the shares of a persona. For programs of its owners."""

from typing import Any, ClassVar, TypedDict
from uuid import UUID

from django.utils.translation import gettext
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from accounts.models import Role
from core.api.fields import StrictSerializer, validate
from core.api.pagination import OldestFirst
from personas.models import Persona, PersonaShare
from personas.sharing import services

SHARE = OpenApiParameter("share", OpenApiTypes.UUID, OpenApiParameter.PATH)


class PersonaShareSerializer(serializers.ModelSerializer[PersonaShare]):
    """A share with a user, by the user name as it was written, existing or not, or with a group."""

    username = serializers.CharField(read_only=True, help_text="Empty for a group.")
    group_name = serializers.CharField(source="group.name", read_only=True, default=None, allow_null=True)

    class Meta:
        model = PersonaShare
        fields: ClassVar = ["id", "username", "group", "group_name", "role", "created"]
        read_only_fields: ClassVar = ["group", "created"]


class NewShare(TypedDict, total=False):
    """Body of a request for a share; exactly one of `username` and `group` is sent."""

    username: str
    group: UUID
    role: str


class ShareWithSerializer(StrictSerializer):
    username = serializers.CharField(required=False, max_length=PersonaShare.MAX_USERNAME)
    group = serializers.UUIDField(required=False, help_text="The id of a group that you are in or manage.")
    role = serializers.ChoiceField(choices=Role.choices, default=Role.READER)

    def validate(self, attrs: NewShare) -> NewShare:
        if ("username" in attrs) == ("group" in attrs):
            raise serializers.ValidationError({"username": [gettext("Name a person or a group.")]})
        return attrs


class ChangeShareSerializer(StrictSerializer):
    role = serializers.ChoiceField(choices=Role.choices)


class SharedPersonas(ScopedView, viewsets.GenericViewSet[Persona]):
    """Personas and their shares."""

    @extend_schema(responses=PersonaShareSerializer(many=True), filters=True)
    @action(detail=True, pagination_class=OldestFirst, filter_backends=[])
    def shares(self, request: Request, pk: str) -> Response:
        """Return the shares of the persona. For its owners. `visibility` says whether the whole workspace has it."""
        rows: Any = services.list_shares(self.person, self.get_object())
        page: Any = self.paginate_queryset(rows)
        return self.get_paginated_response(PersonaShareSerializer(page, many=True).data)

    @extend_schema(request=ShareWithSerializer, responses={201: PersonaShareSerializer})
    @shares.mapping.post
    def add_share(self, request: Request, pk: str) -> Response:
        """Share the persona with a user or a group, who can use it at once. An existing share gets the new role.

        The response is the same whether the user name exists or not. If a user has several roles, the strongest
        counts.
        """
        persona = self.get_object()
        body = validate(ShareWithSerializer, request)
        row = services.share(
            user=self.person,
            persona=persona,
            username=body.get("username", ""),
            group=body.get("group"),
            role=body["role"],
        )
        return Response(PersonaShareSerializer(row).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ChangeShareSerializer, responses=PersonaShareSerializer, parameters=[SHARE])
    @action(detail=True, methods=["patch"], url_path="shares/(?P<share>[^/.]+)")
    def share(self, request: Request, pk: str, share: str) -> Response:
        """Change the role of a share. For the owners."""
        persona = self.get_object()
        role = validate(ChangeShareSerializer, request)["role"]
        changed = services.change_share(user=self.person, persona=persona, share=share, role=role)
        return Response(PersonaShareSerializer(changed).data)

    @extend_schema(request=None, responses={204: None}, parameters=[SHARE])
    @share.mapping.delete
    def remove_share(self, request: Request, pk: str, share: str) -> Response:
        """End a share. For the owners and for the user of the share."""
        services.remove_share(user=self.person, persona=self.get_object(), share=share)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses={204: None}, parameters=[SHARE])
    @action(detail=True, methods=["post"], url_path="shares/(?P<share>[^/.]+)/hand_over")
    def hand_over(self, request: Request, pk: str, share: str) -> Response:
        """Give the persona to the user of this share. You stay one of its owners."""
        services.hand_over(user=self.person, persona=self.get_object(), share=share)
        return Response(status=status.HTTP_204_NO_CONTENT)
