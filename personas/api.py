"""API of personas, reminders, budget profiles, system prompts and usable models, below `/api/v1/`."""

from copy import copy
from typing import Any, ClassVar, NamedTuple, TypedDict, cast

from django.db import models
from django.db.models import Prefetch, Q, QuerySet
from django.utils.translation import gettext
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.filters import SearchFilter
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from accounts.access.api_views import ScopedView
from accounts.access.offered_models import set_favourite, with_favourites
from accounts.access.rights import models_of
from accounts.models import EDITING, ApiToken, Role
from core.api.entity_tags import ETAG, IF_MATCH, expected_tags, set_entity_tag
from core.api.fields import StrictSerializer, VisibleField
from core.api.pagination import ByName, ByUpdate, OldestFirst, pages
from core.errors import ProductError
from core.permissions import require_right
from core.requests import or_404
from core.rows import set_fields
from core.sentences import Sentence
from llm.models import Model
from llm.serializers import ModelSerializer
from personas import services, tools
from personas.models import BudgetProfile, Persona, PersonaShare, Reminder, SystemPrompt
from personas.sharing.api import SharedPersonas
from personas.sharing.roles import is_editor, require_editor, require_owner, strongest_role

METHODS = ("get", "post", "patch", "delete", "head", "options")


class UsableModelField(serializers.PrimaryKeyRelatedField[Model]):
    """Accepts a model that the user may use, or the present model of the persona."""

    def get_queryset(self) -> QuerySet[Model]:
        chosen = self.root.instance.model_id if isinstance(self.root.instance, Persona) else None
        usable = models_of(self.context["request"].user).values("pk")
        return Model.objects.filter(Q(pk__in=usable) | Q(pk=chosen))


MAX_NAMED_TOOLS = 1_000  # a request may repeat names; the most that a persona has is `personas.tools.MAX_TOOLS`


class PersonaSerializer(StrictSerializer, serializers.ModelSerializer[Persona]):
    instructions = serializers.CharField(allow_blank=True, max_length=Persona.MAX_INSTRUCTIONS, trim_whitespace=False)
    model = UsableModelField(required=False, allow_null=True, help_text="Null: the workspace's default.")
    tools = serializers.ListField(
        child=serializers.CharField(max_length=100),
        max_length=MAX_NAMED_TOOLS,
        required=False,
        help_text="web_search, open_url, tasks, or a tool of a server as server__tool; server__* for all its tools.",
    )
    reminder = serializers.CharField(
        source="own_reminder",
        required=False,
        allow_blank=True,
        max_length=Reminder.MAX_TEXT,
        help_text="The persona's own reminder, in addition to the reminders of all conversations. It ends the prompt.",
    )
    starter_messages = serializers.ListField(
        child=serializers.CharField(max_length=Persona.MAX_STARTER), required=False, max_length=Persona.MAX_STARTERS
    )
    tokens = serializers.IntegerField(
        source="token_count",
        read_only=True,
        allow_null=True,
        help_text="Tokens of the instructions, counted with the catch-all tokenizer.",
    )
    role = serializers.SerializerMethodField(help_text="Your role: readers use it, editors also change it.")
    editable = serializers.SerializerMethodField(
        help_text=("Whether you may change it. You may use everything that you see.")
    )

    class Meta:
        model = Persona
        fields: ClassVar = [
            "id", "name", "icon", "colour", "description", "instructions", "replaces_system_prompt",
            "model", "effort", "budget_profile",
            "tools", "reminder", "date_awareness", "memory", "starter_messages", "visibility", "owner", "role",
            "editable", "version", "tokens", "created", "updated",
        ]  # fmt: skip
        read_only_fields: ClassVar = ["owner", "version", "created", "updated"]

    @extend_schema_field(serializers.ChoiceField(choices=Role.choices))
    def get_role(self, persona: Persona) -> str:
        return strongest_role(self.context["request"].user, persona) or Role.READER

    def get_editable(self, persona: Persona) -> bool:
        return is_editor(self.context["request"].user, persona)

    def validate_tools(self, names: list[str]) -> list[str]:
        try:
            already = self.instance.tools if self.instance else ()
            return tools.check_tools(names, already, person=self.context["request"].user.pk)
        except tools.BadTools as error:
            raise serializers.ValidationError(str(error.sentence)) from error


class ReminderFields(TypedDict, total=False):
    """Validated body of a request for a reminder. `persona` is only allowed for a new one."""

    text: str
    scope: str
    enabled: bool
    persona: Persona


class ReminderSerializer(StrictSerializer, serializers.ModelSerializer[Reminder]):
    text = serializers.CharField(max_length=Reminder.MAX_TEXT)
    scope = serializers.ChoiceField(
        choices=Reminder.Scope.choices,
        required=False,
        help_text=("`persona` if a persona is named, otherwise `everywhere`."),
    )
    persona = VisibleField(
        Persona,
        required=False,
        write_only=True,
        help_text=("The persona that it belongs to. This cannot change: delete it and create another one."),
    )
    personas = serializers.SerializerMethodField(
        help_text="The personas that use it, without those that you cannot see."
    )

    class Meta:
        model = Reminder
        fields: ClassVar = ["id", "text", "scope", "persona", "personas", "enabled", "created"]
        read_only_fields: ClassVar = ["created"]

    def get_personas(self, reminder: Reminder) -> list[str]:
        visible = getattr(reminder, "visible", None)  # prefetched for lists, with one query for all
        if visible is None:
            visible = reminder.personas.visible_to(self.context["request"].user)
        return [str(persona.pk) for persona in visible]

    def validate(self, attrs: ReminderFields) -> ReminderFields:
        if self.instance is not None:
            unchangeable = [name for name in ("scope", "persona") if name in attrs]
            if unchangeable:
                sentence = gettext("This field cannot be changed.")
                raise serializers.ValidationError({name: [sentence] for name in unchangeable})
            return attrs
        persona = attrs.get("persona")
        attrs.setdefault("scope", Reminder.Scope.PERSONA if persona else Reminder.Scope.EVERYWHERE)
        if (attrs["scope"] == Reminder.Scope.PERSONA) != (persona is not None):
            sentence = gettext("Name a persona with the scope “persona”, and no persona with the scope “everywhere”.")
            raise serializers.ValidationError({"persona": [sentence]})
        return attrs


class BudgetProfileSerializer(StrictSerializer, serializers.ModelSerializer[BudgetProfile]):
    """A budget profile. Numbers are tokens, or shares from 0 to 1 as strings with three decimals."""

    # Declared here, since the generated field refuses `true` while another profile is the default.
    default = serializers.BooleanField(required=False)

    class Meta:
        model = BudgetProfile
        fields = "__all__"

    def validate_default(self, default: bool) -> bool:
        if self.instance is not None and self.instance.default and not default:
            raise serializers.ValidationError(gettext("Make another profile the default instead."))
        return default

    def validate(self, attrs: Any) -> Any:
        candidate = copy(self.instance) if self.instance is not None else BudgetProfile()
        set_fields(candidate, attrs)
        candidate.clean()
        return attrs


class SystemPromptSerializer(StrictSerializer, serializers.ModelSerializer[SystemPrompt]):
    text = serializers.CharField(max_length=Persona.MAX_INSTRUCTIONS, trim_whitespace=False)
    activate = serializers.BooleanField(default=True, write_only=True)
    tokens = serializers.IntegerField(
        source="token_count", read_only=True, allow_null=True, help_text="Counted with the catch-all tokenizer."
    )

    class Meta:
        model = SystemPrompt
        fields: ClassVar = ["id", "version", "text", "note", "tokens", "author", "active", "activate", "created"]
        read_only_fields: ClassVar = ["version", "author", "active", "created"]


class AdminView(ScopedView):
    """A view for administrators. With `reading`, a token of the scope `chat` may read."""

    reading = False
    administers: type[models.Model]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self.scope = "chat" if self.reading and request.method in SAFE_METHODS else "admin"
        super().initial(request, *args, **kwargs)
        if self.scope == "admin":
            require_right(self.person, "view", self.administers)


def require_admin_scope(request: Request) -> None:
    """Raise `missing_scope` (403) for an API token without the scope of administrators.

    For views that also serve users' own rows, where the right alone is not enough for a token.
    """
    if isinstance(request.auth, ApiToken) and "admin" not in request.auth.scopes:
        detail = Sentence("This token lacks the scope “admin”. Create one that has it on the settings page.")
        raise ProductError("missing_scope", detail, status=403)


class PersonaViewSet(SharedPersonas, mixins.RetrieveModelMixin, mixins.ListModelMixin):
    serializer_class = PersonaSerializer
    pagination_class = ByUpdate
    filter_backends = (SearchFilter,)
    search_fields = ("name", "description")
    queryset = Persona.objects.none()
    http_method_names = METHODS

    def get_queryset(self) -> QuerySet[Persona]:
        own_shares = Prefetch("shares", PersonaShare.objects.of(self.request.user), to_attr="mine")
        return Persona.objects.visible_to(self.request.user).prefetch_related("reminders", own_shares)

    def check_object_permissions(self, request: Request, obj: Persona) -> None:
        super().check_object_permissions(request, obj)
        if request.method in SAFE_METHODS:
            return
        role = strongest_role(self.person, obj)
        if self.action == "remove_share" and any(share.user_id == self.person.pk for share in obj.shares.all()):
            return  # every user may remove their own share
        editing = self.action == "partial_update"
        check = require_editor if editing else require_owner
        check(user=self.person, persona=obj)
        if role not in (EDITING if editing else [Role.OWNER]):
            require_admin_scope(request)

    @extend_schema(parameters=[ETAG])
    def create(self, request: Request) -> Response:
        serializer = self.get_serializer(data=request.data)
        body = _validated_body(serializer)
        persona = services.create_persona(user=self.person, fields=body.fields, reminder=body.reminder or "")
        return self._respond(persona, 201)

    @extend_schema(parameters=[ETAG])
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self._respond(self.get_object())

    @extend_schema(parameters=[IF_MATCH, ETAG])
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the fields of the request, which adds a version."""
        persona = self.get_object()
        body = _validated_body(self.get_serializer(persona, data=request.data, partial=True))
        changed = services.update_persona(
            user=self.person,
            persona=persona,
            fields=body.fields,
            reminder=body.reminder,
            based_on=expected_tags(request),
        )
        return self._respond(changed)

    @extend_schema(parameters=[IF_MATCH])
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete the persona. Its conversations and projects continue without it."""
        services.delete_persona(user=self.person, persona=self.get_object(), based_on=expected_tags(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _respond(self, persona: Persona, code: int = 200) -> Response:
        return set_entity_tag(Response(self.get_serializer(persona).data, status=code), persona.tag)


class PersonaBody(NamedTuple):
    """Validated body of a request for a persona. `reminder` is the persona's own; None if none was sent."""

    fields: services.PersonaFields
    reminder: str | None


def _validated_body(serializer: BaseSerializer[Persona]) -> PersonaBody:
    serializer.is_valid(raise_exception=True)
    fields = dict(serializer.validated_data)
    reminder = fields.pop("own_reminder", None)
    return PersonaBody(cast("services.PersonaFields", fields), reminder)


class ReminderViewSet(ScopedView, viewsets.ModelViewSet[Reminder]):
    """Reminders. Administrators change the reminders of all conversations. A persona's reminders are changed by users
    who may change the persona.
    """

    serializer_class = ReminderSerializer
    pagination_class = OldestFirst
    queryset = Reminder.objects.none()
    http_method_names = METHODS

    def get_queryset(self) -> QuerySet[Reminder]:
        personas = Persona.objects.visible_to(self.request.user).only("pk", "name")
        return Reminder.objects.visible_to(self.request.user).prefetch_related(
            Prefetch("personas", personas, to_attr="visible")  # not the relation itself, which decides who may change
        )

    def check_object_permissions(self, request: Request, obj: Reminder) -> None:
        super().check_object_permissions(request, obj)
        if request.method in SAFE_METHODS:
            return
        services.require_reminder_right(user=self.person, reminder=obj)
        if obj.personas.exclude(pk__in=Persona.objects.editable_by(self.person)).exists() or not obj.personas.exists():
            require_admin_scope(request)

    def perform_create(self, serializer: BaseSerializer[Reminder]) -> None:
        fields = dict(serializer.validated_data)
        persona = fields.pop("persona", None)
        if persona is None or strongest_role(self.person, persona) not in EDITING:
            require_admin_scope(self.request)
        reminder = Reminder()
        set_fields(reminder, fields)
        services.save_reminder(user=self.person, reminder=reminder, persona=persona)
        serializer.instance = reminder

    def perform_update(self, serializer: BaseSerializer[Reminder]) -> None:
        reminder = self.get_object()
        set_fields(reminder, serializer.validated_data)
        services.save_reminder(user=self.person, reminder=reminder)
        serializer.instance = reminder

    def perform_destroy(self, instance: Reminder) -> None:
        services.delete_reminder(user=self.person, reminder=instance)


class BudgetProfileViewSet(AdminView, viewsets.ModelViewSet[BudgetProfile]):
    administers = BudgetProfile
    reading = True
    serializer_class = BudgetProfileSerializer
    pagination_class = ByName
    queryset = BudgetProfile.objects.all()
    http_method_names = METHODS

    def perform_create(self, serializer: BaseSerializer[BudgetProfile]) -> None:
        self._store(serializer, BudgetProfile())

    def perform_update(self, serializer: BaseSerializer[BudgetProfile]) -> None:
        self._store(serializer, self.get_object())

    def _store(self, serializer: BaseSerializer[BudgetProfile], profile: BudgetProfile) -> None:
        fields = dict(serializer.validated_data)
        default = fields.pop("default", False)
        set_fields(profile, fields)
        services.save_profile(user=self.person, profile=profile, default=default)
        serializer.instance = profile

    def perform_destroy(self, instance: BudgetProfile) -> None:
        services.delete_profile(user=self.person, profile=instance)


class SystemPromptViewSet(
    AdminView, mixins.RetrieveModelMixin, mixins.ListModelMixin, viewsets.GenericViewSet[SystemPrompt]
):
    """Versions of the system prompt. They are added and activated, never changed or removed. The ETag is that of the
    active version.
    """

    administers = SystemPrompt
    serializer_class = SystemPromptSerializer
    pagination_class = pages("-version")
    queryset = SystemPrompt.objects.all()
    http_method_names = ("get", "post", "head", "options")

    @extend_schema(parameters=[IF_MATCH, ETAG])
    def create(self, request: Request) -> Response:
        """Add a version. It becomes active unless `activate` is false."""
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        body = serializer.validated_data
        prompt = services.save_prompt(
            user=self.person,
            kind=SystemPrompt,
            text=body["text"],
            note=body.get("note", ""),
            activate=body["activate"],
            based_on=expected_tags(request),
        )
        return self._respond(prompt, 201)

    @extend_schema(parameters=[ETAG])
    @action(detail=False)
    def active(self, request: Request) -> Response:
        """Return the version that the next answers use."""
        return self._respond(or_404(SystemPrompt.objects.filter(active=True).first(), "active system prompt"))

    @extend_schema(request=None, responses=SystemPromptSerializer, parameters=[IF_MATCH, ETAG])
    @action(detail=True, methods=["post"])
    def activate(self, request: Request, pk: str) -> Response:
        """Activate a version, which may be an earlier one."""
        prompt = self.get_object()
        services.activate_prompt(user=self.person, prompt=prompt, based_on=expected_tags(request))
        return self._respond(prompt)

    def _respond(self, prompt: SystemPrompt, code: int = 200) -> Response:
        response = Response(self.get_serializer(prompt).data, status=code)
        return set_entity_tag(response, prompt.tag) if prompt.active else response


class ModelViewSet(ScopedView, viewsets.ReadOnlyModelViewSet[Model]):
    serializer_class = ModelSerializer
    pagination_class = OldestFirst
    queryset = Model.objects.none()

    def get_queryset(self) -> QuerySet[Model]:
        return with_favourites(models_of(self.person), self.person)

    @extend_schema(request=None, responses=ModelSerializer)
    @action(detail=True, methods=["post"])
    def favourite(self, request: Request, pk: str) -> Response:
        """Put the model at the top of your list of choices."""
        model = set_favourite(user=self.person, model=pk, favourite=True)
        return Response(self.get_serializer(model).data)

    @extend_schema(request=None, responses={204: None})
    @favourite.mapping.delete
    def remove_favourite(self, request: Request, pk: str) -> Response:
        """Remove the model from the top of your list of choices."""
        set_favourite(user=self.person, model=pk, favourite=False)
        return Response(status=status.HTTP_204_NO_CONTENT)
