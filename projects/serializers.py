"""Projects as programs see them."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.rest import VisibleField
from files.index.search import MAX_LIMIT, MAX_QUERY
from personas.models import Persona
from projects.models import Membership, Project, ProjectFile
from projects.services import MAX_INSTRUCTIONS, OWNER

ROLES = [OWNER, *Membership.Role.values]


class ProjectSerializer(serializers.ModelSerializer[Project]):
    persona = VisibleField(Persona, required=False, allow_null=True)
    instructions = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_INSTRUCTIONS, trim_whitespace=False
    )
    role = serializers.SerializerMethodField(help_text="What you may do here.")

    class Meta:
        model = Project
        fields: ClassVar = ["id", "name", "instructions", "persona", "owner", "role", "version", "created", "updated"]
        read_only_fields: ClassVar = ["owner", "version", "created", "updated"]

    @extend_schema_field(serializers.ChoiceField(choices=ROLES))
    def get_role(self, project: Project) -> str:
        user = self.context["request"].user
        if project.owner_id == user.pk:
            return OWNER
        # Memberships are prefetched with a list of projects, so this is no query a row.
        mine = (each.role for each in project.memberships.all() if each.user_id == user.pk)
        return next(mine, Membership.Role.READER)


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


class AddFileSerializer(serializers.Serializer[dict[str, Any]]):
    file = serializers.UUIDField()
    pinned = serializers.BooleanField(default=False)


class ChangeEntrySerializer(serializers.Serializer[dict[str, Any]]):
    pinned = serializers.BooleanField(required=False)
    position = serializers.IntegerField(required=False, min_value=0, help_text="From 0; beyond the end is the end.")


class MemberSerializer(serializers.ModelSerializer[Membership]):
    username = serializers.CharField(source="user.username", read_only=True)

    class Meta:
        model = Membership
        fields: ClassVar = ["user", "username", "role", "created"]
        read_only_fields: ClassVar = ["user", "created"]


class AddMemberSerializer(serializers.Serializer[dict[str, Any]]):
    username = serializers.CharField()
    role = serializers.ChoiceField(choices=Membership.Role.choices, default=Membership.Role.READER)


class ChangeMemberSerializer(serializers.Serializer[dict[str, Any]]):
    role = serializers.ChoiceField(choices=Membership.Role.choices)


class QuerySerializer(serializers.Serializer[dict[str, Any]]):
    query = serializers.CharField(max_length=MAX_QUERY)
    limit = serializers.IntegerField(default=10, min_value=1, max_value=MAX_LIMIT)


class HitSerializer(serializers.Serializer[Any]):
    file = serializers.UUIDField()
    title = serializers.CharField(source="name")
    page = serializers.IntegerField(help_text="From 1; 0 where there are none.")
    start = serializers.IntegerField(help_text="Characters [start, end) of the file's text.")
    end = serializers.IntegerField()
    score = serializers.FloatField(help_text="From 0 to 1; compares results of this search only.")
    text = serializers.CharField()


class HitsSerializer(serializers.Serializer[dict[str, Any]]):
    results = HitSerializer(many=True)
