"""`/api/v1/projects/` and `/api/v1/invitations/`: projects, their files, members and search for programs."""

from typing import Any, ClassVar

from django.db.models import Prefetch, QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from accounts.access.api_views import ScopedView
from accounts.models import Role, strongest
from core.api.actions import post_action
from core.api.fields import StrictSerializer, VisibleField, validate
from core.api.pagination import ByUpdate, OldestFirst, pages
from core.audit.origin import current_origin
from files.index.finding import find_passages
from files.index.ledger import Payer
from files.index.search import MAX_LIMIT, MAX_QUERY, ChunkHit, SearchResult
from files.services import visible_file
from personas.models import Persona
from projects import invitations, members, services
from projects.models import Invitation, Membership, Project, ProjectFile, roles
from projects.models.invitation import MAX_USERNAME

FILE = OpenApiParameter("file", OpenApiTypes.UUID, OpenApiParameter.PATH)
MEMBER = OpenApiParameter("member", OpenApiTypes.UUID, OpenApiParameter.PATH, description="The id of the person.")
INVITATION = OpenApiParameter("invitation", OpenApiTypes.UUID, OpenApiParameter.PATH)
GROUP = OpenApiParameter("group", OpenApiTypes.UUID, OpenApiParameter.PATH)


class ProjectSerializer(StrictSerializer, serializers.ModelSerializer[Project]):
    persona = VisibleField(Persona, required=False, allow_null=True)
    instructions = serializers.CharField(
        required=False, allow_blank=True, max_length=services.MAX_INSTRUCTIONS, trim_whitespace=False
    )
    role = serializers.SerializerMethodField(help_text="Your role.")

    class Meta:
        model = Project
        fields: ClassVar = [
            *(
                "id",
                "name",
                "icon",
                "colour",
                "instructions",
                "persona",
                "web",
                "findable",
                "owner",
                "role",
                "version",
                "created",
                "updated",
            )
        ]
        read_only_fields: ClassVar = ["owner", "version", "created", "updated"]

    @extend_schema_field(serializers.ChoiceField(choices=Role.choices))
    def get_role(self, project: Project) -> str:
        user = self.context["request"].user
        mine = getattr(project, "mine", None)  # prefetched for lists, with one query for all
        if mine is None or project.owner_id == user.pk:
            return roles.get_role(user, project)
        return strongest(each.role for each in mine) or Role.READER


class EntrySerializer(serializers.ModelSerializer[ProjectFile]):
    """A file of a project; `file` is its id in `files/` and in the addresses here."""

    file = serializers.UUIDField(source="file_id")
    name = serializers.CharField(source="file.name", read_only=True)
    status = serializers.CharField(source="file.status", read_only=True)
    tokens = serializers.IntegerField(source="file.token_count", read_only=True, allow_null=True)

    class Meta:
        model = ProjectFile
        fields: ClassVar = ["file", "name", "status", "tokens", "pinned", "ordinal", "added_by", "created"]
        read_only_fields: ClassVar = ["ordinal", "added_by", "created"]


class AddFileSerializer(StrictSerializer):
    file = serializers.UUIDField()
    pinned = serializers.BooleanField(default=False)


class ChangeEntrySerializer(StrictSerializer):
    pinned = serializers.BooleanField(required=False)
    position = serializers.IntegerField(required=False, min_value=0, help_text="From 0. A larger number means the end.")


class MemberSerializer(serializers.ModelSerializer[Membership]):
    username = serializers.CharField(source="user.username", read_only=True)

    class Meta:
        model = Membership
        fields: ClassVar = ["user", "username", "role", "created"]
        read_only_fields: ClassVar = ["user", "created"]


class GroupMemberSerializer(serializers.ModelSerializer[Membership]):
    name = serializers.CharField(source="group.name", read_only=True)

    class Meta:
        model = Membership
        fields: ClassVar = ["group", "name", "role", "created"]
        read_only_fields: ClassVar = ["group", "created"]


class AddGroupSerializer(StrictSerializer):
    group = serializers.UUIDField(help_text="The id of a group that you are in or manage.")
    role = serializers.ChoiceField(choices=Role.choices, default=Role.READER)


class HandOverSerializer(StrictSerializer):
    member = serializers.UUIDField(help_text="The id of a person who is a direct member.")


class InviteSerializer(StrictSerializer):
    username = serializers.CharField(max_length=MAX_USERNAME)
    role = serializers.ChoiceField(choices=Role.choices, default=Role.READER)


class InvitationSerializer(serializers.ModelSerializer[Invitation]):
    """An invitation that is not accepted yet. `username` is as it was written, existing or not."""

    class Meta:
        model = Invitation
        fields: ClassVar = ["id", "username", "role", "created", "expires"]
        read_only_fields = fields


class ReceivedInvitationSerializer(serializers.ModelSerializer[Invitation]):
    project_name = serializers.CharField(source="project.name", read_only=True)
    invited_by = serializers.CharField(source="project.owner.username", read_only=True)

    class Meta:
        model = Invitation
        fields: ClassVar = ["id", "project", "project_name", "invited_by", "role", "created", "expires"]
        read_only_fields = fields


class ChangeMemberSerializer(StrictSerializer):
    role = serializers.ChoiceField(choices=Role.choices)


class QuerySerializer(StrictSerializer):
    query = serializers.CharField(max_length=MAX_QUERY)
    limit = serializers.IntegerField(default=10, min_value=1, max_value=MAX_LIMIT)


class HitSerializer(serializers.Serializer[ChunkHit]):
    file = serializers.UUIDField()
    title = serializers.CharField(source="name")
    page = serializers.IntegerField(help_text="From 1; 0 without pages.")
    start = serializers.IntegerField(help_text="Characters [start, end) of the file's text.")
    end = serializers.IntegerField()
    score = serializers.FloatField(help_text="From 0 to 1. Scores of different searches cannot be compared.")
    heading = serializers.CharField(help_text="The headings above it, outermost first; may be empty.")
    table_head = serializers.CharField(help_text="The header of its table, if the table began before it; may be empty.")
    text = serializers.CharField()


class HitsSerializer(serializers.Serializer[SearchResult]):
    results = HitSerializer(many=True, source="hits")
    notes = serializers.ListField(
        child=serializers.CharField(),
        help_text="Failures of an embedder or re-ranker, as sentences; empty without failures.",
    )


class ProjectViewSet(ScopedView, viewsets.ModelViewSet[Project]):
    scope = "projects"
    serializer_class = ProjectSerializer
    pagination_class = ByUpdate
    queryset = Project.objects.none()
    http_method_names = ("get", "post", "patch", "delete", "head", "options")

    def get_queryset(self) -> QuerySet[Project]:
        return Project.objects.visible_to(self.request.user).prefetch_related(
            Prefetch("memberships", Membership.objects.of(self.request.user), to_attr="mine")
        )

    def perform_create(self, serializer: BaseSerializer[Project]) -> None:
        serializer.instance = services.create_project(user=self.person, fields=serializer.validated_data)

    def perform_update(self, serializer: BaseSerializer[Project]) -> None:
        serializer.instance = services.update_project(
            user=self.person, project=self.get_object(), fields=serializer.validated_data
        )

    def perform_destroy(self, instance: Project) -> None:
        services.delete_project(user=self.person, project=instance)

    @extend_schema(responses=EntrySerializer(many=True), filters=True)
    @action(detail=True, pagination_class=pages("ordinal", "id"), filter_backends=[])
    def files(self, request: Request, pk: str) -> Response:
        """Return the project's files in their order."""
        rows = ProjectFile.objects.filter(project=self.get_object()).select_related("file")
        return self._page(rows, EntrySerializer)

    @extend_schema(request=AddFileSerializer, responses={201: EntrySerializer})
    @files.mapping.post
    def add_file(self, request: Request, pk: str) -> Response:
        """Add a file that you can see. A file that is already in the project keeps its place."""
        project = self.get_object()
        body = validate(AddFileSerializer, request)
        file = visible_file(self.person, body["file"])
        entry = services.add_file(user=self.person, project=project, file=file, pinned=body["pinned"])
        return Response(EntrySerializer(entry).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ChangeEntrySerializer, responses=EntrySerializer, parameters=[FILE])
    @action(detail=True, methods=["patch"], url_path="files/(?P<file>[^/.]+)")
    def file(self, request: Request, pk: str, file: str) -> Response:
        """Pin a file, or move it."""
        project = self.get_object()
        body = validate(ChangeEntrySerializer, request)
        entry = services.change_file(
            user=self.person, project=project, file=file, pinned=body.get("pinned"), position=body.get("position")
        )
        return Response(EntrySerializer(entry).data)

    @extend_schema(request=None, responses={204: None}, parameters=[FILE])
    @file.mapping.delete
    def remove_file(self, request: Request, pk: str, file: str) -> Response:
        """Remove the file from the project. The file itself stays."""
        services.remove_file(user=self.person, project=self.get_object(), file=file)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses=MemberSerializer(many=True), filters=True)
    @action(detail=True, pagination_class=OldestFirst, filter_backends=[])
    def members(self, request: Request, pk: str) -> Response:
        """Return the people who may read, edit or own the project, except the one whom it belongs to. `groups/` has
        the groups.
        """
        rows = members.list_members(self.get_object()).exclude(user=None)
        return self._page(rows, MemberSerializer)

    @extend_schema(request=InviteSerializer, responses={201: InvitationSerializer})
    @members.mapping.post
    def invite(self, request: Request, pk: str) -> Response:
        """Invite a user by name, for 30 days. They become a member when they accept. For the owner.

        The response is the same whether the user name exists or not. A second invitation changes the role.
        """
        project = self.get_object()
        body = validate(InviteSerializer, request)
        invitation = invitations.invite(user=self.person, project=project, username=body["username"], role=body["role"])
        return Response(InvitationSerializer(invitation).data, status=status.HTTP_201_CREATED)

    @extend_schema(responses=InvitationSerializer(many=True), filters=True)
    @action(detail=True, pagination_class=OldestFirst, filter_backends=[])
    def invitations(self, request: Request, pk: str) -> Response:
        """Return the invitations that are not accepted yet. For the owner."""
        project = self.get_object()
        roles.require_owner(user=self.person, project=project)
        return self._page(Invitation.objects.sent(project), InvitationSerializer)

    @extend_schema(request=None, responses={204: None}, parameters=[INVITATION])
    @action(detail=True, methods=["delete"], url_path="invitations/(?P<invitation>[^/.]+)")
    def withdraw(self, request: Request, pk: str, invitation: str) -> Response:
        """Withdraw an invitation. For the owner."""
        invitations.withdraw(user=self.person, project=self.get_object(), invitation=invitation)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=ChangeMemberSerializer, responses=MemberSerializer, parameters=[MEMBER])
    @action(detail=True, methods=["patch"], url_path="members/(?P<member>[^/.]+)")
    def member(self, request: Request, pk: str, member: str) -> Response:
        """Change the role of a member. For the owner."""
        project = self.get_object()
        role = validate(ChangeMemberSerializer, request)["role"]
        return Response(
            MemberSerializer(members.change_role(user=self.person, project=project, member=member, role=role)).data
        )

    @extend_schema(request=None, responses={204: None}, parameters=[MEMBER])
    @member.mapping.delete
    def remove_member(self, request: Request, pk: str, member: str) -> Response:
        """Remove a member (for the owner), or yourself."""
        members.remove_member(user=self.person, project=self.get_object(), member=member)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses=GroupMemberSerializer(many=True), filters=True)
    @action(detail=True, pagination_class=OldestFirst, filter_backends=[])
    def groups(self, request: Request, pk: str) -> Response:
        """Return the groups that the project is shared with. If a user has several roles, the strongest counts."""
        return self._page(members.list_members(self.get_object()).exclude(group=None), GroupMemberSerializer)

    @extend_schema(request=AddGroupSerializer, responses={201: GroupMemberSerializer})
    @groups.mapping.post
    def add_group(self, request: Request, pk: str) -> Response:
        """Share the project with a group. A group that has it already gets the new role. For the owner."""
        project = self.get_object()
        body = validate(AddGroupSerializer, request)
        row = members.add_group(user=self.person, project=project, group=body["group"], role=body["role"])
        return Response(GroupMemberSerializer(row).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ChangeMemberSerializer, responses=GroupMemberSerializer, parameters=[GROUP])
    @action(detail=True, methods=["patch"], url_path="groups/(?P<group>[^/.]+)")
    def group(self, request: Request, pk: str, group: str) -> Response:
        """Change the role of a group. For the owner."""
        project = self.get_object()
        role = validate(ChangeMemberSerializer, request)["role"]
        changed = members.change_role(user=self.person, project=project, member=group, role=role)
        return Response(GroupMemberSerializer(changed).data)

    @extend_schema(request=None, responses={204: None}, parameters=[GROUP])
    @group.mapping.delete
    def remove_group(self, request: Request, pk: str, group: str) -> Response:
        """End the share with the group. For the owner."""
        members.remove_member(user=self.person, project=self.get_object(), member=group)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @post_action(ProjectSerializer, HandOverSerializer)
    def hand_over(self, project: Project, member: Any) -> Project:
        """Give the project to a member, with those of your files that no other project of yours has. You stay in it as
        an owner. For the owner.
        """
        return members.hand_over(user=self.person, project=project, member=member)

    @extend_schema(request=QuerySerializer, responses=HitsSerializer)
    @action(detail=True, methods=["post"])
    def search(self, request: Request, pk: str) -> Response:
        """Return the passages of the project's files that match a query, best first."""
        project = self.get_object()
        body = validate(QuerySerializer, request)
        payer = Payer(self.person.pk, current_origin().token_id)
        result = find_passages(
            queries=[body["query"]], files=services.project_files(project), limit=body["limit"], payer=payer
        )
        return Response(HitsSerializer(result).data)

    def _page(self, rows: "QuerySet[Any]", kind: "type[BaseSerializer[Any]]") -> Response:
        page: Any = self.paginate_queryset(rows)
        return self.get_paginated_response(kind(page, many=True).data)


class InvitationViewSet(ScopedView, ListModelMixin, viewsets.GenericViewSet[Invitation]):
    """Invitations that the user has received and not answered."""

    scope = "projects"
    serializer_class = ReceivedInvitationSerializer
    pagination_class = OldestFirst
    queryset = Invitation.objects.none()

    def get_queryset(self) -> QuerySet[Invitation]:
        return Invitation.objects.visible_to(self.request.user).select_related("project__owner")

    @post_action(ProjectSerializer)
    def accept(self, invitation: Invitation) -> Project:
        """Accept the invitation. Returns the project."""
        return invitations.accept(user=self.person, invitation=invitation)

    @extend_schema(request=None, responses={204: None})
    @action(detail=True, methods=["post"])
    def decline(self, request: Request, pk: str) -> Response:
        """Decline the invitation. Nobody is notified."""
        invitations.decline(user=self.person, invitation=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)
