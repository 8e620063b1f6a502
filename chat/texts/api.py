"""`/api/v1/prompt-texts/`: the texts that the product sends to a model, and their versions."""

from typing import Any, ClassVar, TypedDict

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from core.api.entity_tags import ETAG, IF_MATCH, expected_tags, set_entity_tag
from core.api.fields import StrictSerializer, validate
from core.api.pagination import pages
from core.errors import NotFound
from core.requests import or_404
from core.sentences import Sentence
from llm import tokens
from personas import services
from personas.api import AdminView
from personas.models import Persona, PromptText
from personas.texts import TEXTS

NAME = OpenApiParameter("name", str, OpenApiParameter.PATH, enum=list(TEXTS))


class ShownPlaceholder(TypedDict):
    name: str
    meaning: Sentence
    needed: bool


class ShownText(TypedDict):
    """Text with its definition and the version that is sent, as `PromptTextSerializer` shows it."""

    name: str
    group: Sentence
    title: Sentence
    purpose: Sentence
    placeholders: list[ShownPlaceholder]
    may_be_empty: bool
    most: int
    built_in: str
    version: int | None
    text: str
    tokens: int | None


class PlaceholderSerializer(serializers.Serializer[ShownPlaceholder]):
    name = serializers.CharField()
    meaning = serializers.CharField()
    needed = serializers.BooleanField()


class PromptTextSerializer(serializers.Serializer[Any]):
    """A text that the product sends to models, with the version that it sends now."""

    name = serializers.CharField()
    group = serializers.CharField(help_text="Its place in the prompt.")
    title = serializers.CharField()
    purpose = serializers.CharField()
    placeholders = PlaceholderSerializer(many=True)
    may_be_empty = serializers.BooleanField(help_text="Nothing is sent if it is empty.")
    most = serializers.IntegerField(help_text="Characters.")
    built_in = serializers.CharField()
    version = serializers.IntegerField(
        allow_null=True, help_text=("The active version; null: the built-in text is sent.")
    )
    text = serializers.CharField(help_text="The text that is sent.")
    tokens = serializers.IntegerField(
        help_text=("Tokens of the text that is sent, counted with the catch-all tokenizer.")
    )


class PromptTextVersionSerializer(StrictSerializer, serializers.ModelSerializer[PromptText]):
    text = serializers.CharField(allow_blank=True, max_length=Persona.MAX_INSTRUCTIONS, trim_whitespace=False)
    activate = serializers.BooleanField(default=True, write_only=True)
    tokens = serializers.IntegerField(
        source="token_count", read_only=True, help_text=("Counted with the catch-all tokenizer.")
    )

    class Meta:
        model = PromptText
        fields: ClassVar = [
            *("id", "name", "version", "text", "note", "tokens", "author", "active", "activate", "created")
        ]
        read_only_fields: ClassVar = ["name", "version", "author", "active", "created"]


class ActiveVersionSerializer(StrictSerializer):
    version = serializers.IntegerField(allow_null=True, min_value=1, help_text="Null: the built-in text.")


class PromptTextViewSet(AdminView, viewsets.GenericViewSet[PromptText]):
    """Texts that the product sends to models. Each has a built-in version. Versions are added and activated, never
    changed or removed. Without an active version the built-in text is sent. The ETag is that of the version that is
    sent.
    """

    administers = PromptText
    queryset = PromptText.objects.none()
    serializer_class = PromptTextSerializer
    pagination_class = pages("-version")
    lookup_field = "name"

    def list(self, request: Request) -> Response:
        """Return all texts in their order in a prompt, on one page."""
        active = {row.name: row for row in PromptText.objects.filter(active=True)}
        rows = [_shown_text(name, active.get(name)) for name in TEXTS]
        return Response({"next": None, "previous": None, "results": PromptTextSerializer(rows, many=True).data})

    @extend_schema(parameters=[NAME, ETAG])
    def retrieve(self, request: Request, name: str) -> Response:
        return _respond(name)

    @extend_schema(responses=PromptTextVersionSerializer(many=True), parameters=[NAME], filters=True)
    @action(detail=True)
    def versions(self, request: Request, name: str) -> Response:
        """Return the versions, newest first."""
        require_text(name)
        page = self.paginate_queryset(PromptText.objects.filter(name=name)) or ()
        return self.get_paginated_response(PromptTextVersionSerializer(page, many=True).data)

    @extend_schema(
        request=PromptTextVersionSerializer,
        responses={201: PromptTextVersionSerializer},
        parameters=[NAME, IF_MATCH, ETAG],
    )
    @versions.mapping.post
    def save_version(self, request: Request, name: str) -> Response:
        """Add a version. It becomes active unless `activate` is false."""
        require_text(name)
        body = validate(PromptTextVersionSerializer, request)
        stored = services.save_text(
            user=self.person,
            name=name,
            text=body["text"],
            note=body.get("note", ""),
            activate=body["activate"],
            based_on=expected_tags(request),
        )
        response = Response(PromptTextVersionSerializer(stored).data, status=201)
        return set_entity_tag(response, stored.tag) if stored.active else response

    @extend_schema(request=ActiveVersionSerializer, responses=PromptTextSerializer, parameters=[NAME, IF_MATCH, ETAG])
    @action(detail=True, methods=["post"])
    def activate(self, request: Request, name: str) -> Response:
        """Activate an earlier version, or the built-in text with null."""
        require_text(name)
        number = validate(ActiveVersionSerializer, request)["version"]
        if number is None:
            services.use_built_in_text(user=self.person, name=name, based_on=expected_tags(request))
        else:
            row = or_404(PromptText.objects.filter(name=name, version=number).first(), "version of this text")
            services.activate_prompt(user=self.person, prompt=row, based_on=expected_tags(request))
        return _respond(name)


def require_text(name: str) -> None:
    """Raise `NotFound` if no text has this name."""
    if name not in TEXTS:
        raise NotFound("text")


def _respond(name: str) -> Response:
    require_text(name)
    active = PromptText.objects.filter(name=name, active=True).first()
    return set_entity_tag(
        Response(PromptTextSerializer(_shown_text(name, active)).data), active.tag if active else services.NO_VERSION
    )


def _shown_text(name: str, active: PromptText | None) -> ShownText:
    about = TEXTS[name]
    return {
        "name": name,
        "group": about.group,
        "title": about.title,
        "purpose": about.purpose,
        "may_be_empty": about.may_be_empty,
        "most": about.most,
        "built_in": about.built_in,
        "placeholders": [
            {"name": each, "meaning": meaning, "needed": each in about.needs}
            for each, meaning in about.placeholders.items()
        ],
        "version": active.version if active else None,
        "text": active.text if active else about.built_in,
        "tokens": active.token_count if active else tokens.count(about.built_in),
    }
