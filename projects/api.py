"""`/api/v1/projects/`: projects, their files, members and search for programs."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from accounts.access.permissions import ScopedView
from core.rest import ByUpdate, OldestFirst, Pages, pages, valid
from files.index.search import search
from files.services import visible_file
from projects import services
from projects.models import Membership, Project, ProjectFile
from projects.serializers import (
    AddFileSerializer,
    AddMemberSerializer,
    ChangeEntrySerializer,
    ChangeMemberSerializer,
    EntrySerializer,
    HitsSerializer,
    MemberSerializer,
    ProjectSerializer,
    QuerySerializer,
)

FILE = OpenApiParameter("file", OpenApiTypes.UUID, OpenApiParameter.PATH)
MEMBER = OpenApiParameter("member", OpenApiTypes.UUID, OpenApiParameter.PATH, description="The id of the person.")


InOrder = pages("ordinal", "id")


class ProjectViewSet(ScopedView, viewsets.ModelViewSet[Project]):
    scope = "projects"
    serializer_class = ProjectSerializer
    pagination_class = ByUpdate
    queryset = Project.objects.none()
    http_method_names = ("get", "post", "patch", "delete", "head", "options")

    def get_queryset(self) -> QuerySet[Project]:
        return Project.objects.visible_to(self.request.user).prefetch_related("memberships")

    def perform_create(self, serializer: BaseSerializer[Project]) -> None:
        serializer.instance = services.create_project(user=self.person, fields=serializer.validated_data)

    def perform_update(self, serializer: BaseSerializer[Project]) -> None:
        serializer.instance = services.update_project(
            user=self.person, project=self.get_object(), fields=serializer.validated_data
        )

    def perform_destroy(self, instance: Project) -> None:
        services.delete_project(user=self.person, project=instance)

    @extend_schema(responses=EntrySerializer(many=True), filters=True)
    @action(detail=True, pagination_class=InOrder, filter_backends=[])
    def files(self, request: Request, pk: str) -> Response:
        """The project's files in their order."""
        rows = ProjectFile.objects.filter(project=self.get_object()).select_related("file")
        return self._page(rows, InOrder(), EntrySerializer)

    @extend_schema(request=AddFileSerializer, responses={201: EntrySerializer})
    @files.mapping.post
    def add_file(self, request: Request, pk: str) -> Response:
        """Adds a file that you can see; one that is there already stays in its place."""
        project = self.get_object()
        body = valid(AddFileSerializer, request)
        file = visible_file(self.person, body["file"])
        entry = services.add_file(user=self.person, project=project, file=file, pinned=body["pinned"])
        return Response(EntrySerializer(entry).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ChangeEntrySerializer, responses=EntrySerializer, parameters=[FILE])
    @action(detail=True, methods=["patch"], url_path="files/(?P<file>[^/.]+)")
    def file(self, request: Request, pk: str, file: str) -> Response:
        """Pins a file or moves it."""
        project = self.get_object()
        body = valid(ChangeEntrySerializer, request)
        entry = services.change_file(user=self.person, project=project, file=file, **body)
        return Response(EntrySerializer(entry).data)

    @extend_schema(request=None, responses={204: None}, parameters=[FILE])
    @file.mapping.delete
    def remove_file(self, request: Request, pk: str, file: str) -> Response:
        """Takes the file out of the project; the file itself stays."""
        services.remove_file(user=self.person, project=self.get_object(), file=file)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses=MemberSerializer(many=True), filters=True)
    @action(detail=True, pagination_class=OldestFirst, filter_backends=[])
    def members(self, request: Request, pk: str) -> Response:
        """Who else may read or edit the project; its owner is not among them."""
        rows = Membership.objects.filter(project=self.get_object()).select_related("user")
        return self._page(rows, OldestFirst(), MemberSerializer)

    @extend_schema(request=AddMemberSerializer, responses={201: MemberSerializer})
    @members.mapping.post
    def add_member(self, request: Request, pk: str) -> Response:
        """Adds somebody by their user name, or gives them another role. For the owner."""
        project = self.get_object()
        member = services.add_member(user=self.person, project=project, **valid(AddMemberSerializer, request))
        return Response(MemberSerializer(member).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ChangeMemberSerializer, responses=MemberSerializer, parameters=[MEMBER])
    @action(detail=True, methods=["patch"], url_path="members/(?P<member>[^/.]+)")
    def member(self, request: Request, pk: str, member: str) -> Response:
        """Gives a member another role. For the owner."""
        project = self.get_object()
        role = valid(ChangeMemberSerializer, request)["role"]
        return Response(
            MemberSerializer(services.change_role(user=self.person, project=project, member=member, role=role)).data
        )

    @extend_schema(request=None, responses={204: None}, parameters=[MEMBER])
    @member.mapping.delete
    def remove_member(self, request: Request, pk: str, member: str) -> Response:
        """Removes a member (for the owner), or oneself."""
        services.remove_member(user=self.person, project=self.get_object(), member=member)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=QuerySerializer, responses=HitsSerializer)
    @action(detail=True, methods=["post"])
    def search(self, request: Request, pk: str) -> Response:
        """The passages of the project's files that answer a query best, best first."""
        project = self.get_object()
        body = valid(QuerySerializer, request)
        hits = search(query=body["query"], files=services.files_of(project), limit=body["limit"])
        return Response(HitsSerializer({"results": hits}).data)

    def _page(self, rows: "QuerySet[Any]", paginator: Pages, shown: "type[BaseSerializer[Any]]") -> Response:
        page = paginator.paginate_queryset(rows, self.request, self)
        return paginator.get_paginated_response(shown(page or [], many=True).data)
