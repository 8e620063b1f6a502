"""`/api/v1/prompts/`: saved prompts for programs."""

from typing import Any, ClassVar, NamedTuple, cast

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from accounts.access.api_views import ScopedView
from core.api.fields import StrictSerializer, VisibleField, validate
from core.api.pagination import ByName
from core.errors import ProductError
from core.sentences import Sentence
from personas.api import METHODS, require_admin_scope
from projects.models import Project
from projects.saved_prompts import services
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.variables import Variable, fill, variables

MAX_VALUE_LENGTH = 1_000_000  # characters, the same as for a message
MAX_VALUES = 1_000
HOLDERS = ("own", "project", "workspace")


class VariableSerializer(serializers.Serializer[Variable]):
    name = serializers.CharField()
    default = serializers.CharField(help_text="The default value; empty if a value is required.")
    choices = serializers.ListField(child=serializers.CharField(), help_text="The choices; empty: any text.")


class PromptSerializer(StrictSerializer, serializers.ModelSerializer[SavedPrompt]):
    text = serializers.CharField(
        max_length=SavedPrompt.MAX_TEXT,
        help_text="{{name}} is a field, {{name:text}} is a field with a default, {{name:one|two}} is a choice.",
    )
    project = VisibleField(
        Project,
        required=False,
        allow_null=True,
        help_text=("The project whose members see it. Members who may edit the project may change it."),
    )
    workspace = serializers.BooleanField(
        required=False,
        help_text=("Everyone sees it, and administrators with the right change it. False, without a project: yours."),
    )
    variables = serializers.SerializerMethodField()
    editable = serializers.SerializerMethodField(
        help_text=("Whether you may change it. You may use every prompt that you see.")
    )

    class Meta:
        model = SavedPrompt
        fields: ClassVar = ["id", "name", "text", "project", "workspace", "variables", "editable", "created"]
        read_only_fields: ClassVar = ["id", "created"]
        validators: ClassVar[list[Any]] = []  # the service raises errors with its own codes

    def to_representation(self, instance: SavedPrompt) -> Any:
        return {**super().to_representation(instance), "workspace": not (instance.owner_id or instance.project_id)}

    @extend_schema_field(VariableSerializer(many=True))
    def get_variables(self, prompt: SavedPrompt) -> Any:
        return [VariableSerializer(variable).data for variable in variables(prompt.text)]

    def get_editable(self, prompt: SavedPrompt) -> bool:
        return services.may_change(self.context["request"].user, prompt)


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": MAX_VALUE_LENGTH},
        "maxProperties": MAX_VALUES,
    }
)
class ValuesField(serializers.DictField):
    child = serializers.CharField(allow_blank=True, max_length=MAX_VALUE_LENGTH)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        if isinstance(data, dict) and len(data) > MAX_VALUES:
            sentence = Sentence("Send at most {most_values} values.", most_values=MAX_VALUES)
            raise serializers.ValidationError(str(sentence), code="max_length")
        values: dict[str, str] = super().to_internal_value(data)
        return values


class ValuesSerializer(StrictSerializer):
    values = ValuesField(source="chosen_values", default=dict, help_text="Values by the variables' names.")


class FilledPrompt(NamedTuple):
    text: str


class FilledSerializer(serializers.Serializer[FilledPrompt]):
    text = serializers.CharField()


@extend_schema_view(
    list=extend_schema(
        parameters=[OpenApiParameter("of", str, enum=HOLDERS, description="Your own, projects', or the workspace's.")]
    )
)
class PromptViewSet(ScopedView, viewsets.ModelViewSet[SavedPrompt]):
    """Saved prompts: your own, those of your projects and those of the workspace."""

    serializer_class = PromptSerializer
    pagination_class = ByName
    queryset = SavedPrompt.objects.none()
    http_method_names = METHODS

    def get_queryset(self) -> QuerySet[SavedPrompt]:
        rows = SavedPrompt.objects.visible_to(self.request.user).select_related("project")
        match self.request.query_params.get("of"):
            case "own":
                return rows.filter(owner=self.request.user.pk)
            case "project":
                return rows.exclude(project=None)
            case "workspace":
                return rows.filter(owner=None, project=None)
            case None:
                return rows
        raise ProductError("bad_filter", Sentence("“of” is one of these: {holders}.", holders=", ".join(HOLDERS)))

    def check_object_permissions(self, request: Request, obj: SavedPrompt) -> None:
        super().check_object_permissions(request, obj)
        changes = request.method not in SAFE_METHODS and self.action not in ("copy", "fill")
        if changes and not (obj.owner_id or obj.project_id):
            require_admin_scope(request)

    def perform_create(self, serializer: BaseSerializer[SavedPrompt]) -> None:
        self._require_scope(serializer)
        fields = cast("services.PromptFields", serializer.validated_data)
        serializer.instance = services.create_saved_prompt(
            user=self.person,
            name=fields["name"],
            text=fields["text"],
            project=fields.get("project"),
            workspace=fields.get("workspace", False),
        )

    def perform_update(self, serializer: BaseSerializer[SavedPrompt]) -> None:
        self._require_scope(serializer)
        fields = cast("services.PromptFields", serializer.validated_data)
        serializer.instance = services.update_saved_prompt(user=self.person, prompt=self.get_object(), fields=fields)

    def perform_destroy(self, instance: SavedPrompt) -> None:
        services.delete_saved_prompt(user=self.person, prompt=instance)

    def _require_scope(self, serializer: BaseSerializer[SavedPrompt]) -> None:
        """Require the scope of an administrator for a prompt of the workspace."""
        if serializer.validated_data.get("workspace"):
            require_admin_scope(self.request)

    @extend_schema(request=None, responses={201: PromptSerializer})
    @action(detail=True, methods=["post"])
    def copy(self, request: Request, pk: str) -> Response:
        """Copy the prompt to your own prompts."""
        copied = services.copy_saved_prompt(user=self.person, prompt=self.get_object())
        return Response(self.get_serializer(copied).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ValuesSerializer, responses=FilledSerializer)
    @action(detail=True, methods=["post"])
    def fill(self, request: Request, pk: str) -> Response:
        """Return the prompt's text with a value for each variable."""
        values = validate(ValuesSerializer, request)["chosen_values"]
        return Response({"text": fill(self.get_object().text, values)})
