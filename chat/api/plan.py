"""Describe the plan of a draft and the report of a turn for programs, and serve the document budget (`/api/v1/`).

Docstrings of views and serializers are part of the API's documentation.
"""

from dataclasses import replace
from uuid import UUID

from django.utils.translation import gettext
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from chat.context.build import SourceEntry
from chat.context.cache import CacheEntry
from chat.context.types import DocumentBudget
from chat.conversations.services import visible_model, visible_persona
from chat.ledger.api import LimitStateSerializer
from chat.memory.models import Fact
from chat.models.conversation import NamedRow, TurnScope
from chat.models.conversation_state import ChatScope, scope_of, visible_conversation
from chat.prompts.document_budget import budget
from chat.prompts.preview import PlanCost
from chat.prompts.report import CoveredEntry, MessageEntry, Outgoing, ShortCall, ToolsOnDemandEntry
from chat.prompts.turn_context import base_context
from chat.prompts.wording import CACHE_REASONS
from chat.sending.offers import RoomOffer
from chat.turns.submit import MAX_EFFORT_LENGTH
from core.api.fields import MoneyField, SentenceField, StrictSerializer
from core.json_types import JsonObject
from llm.learning import Evidence
from llm.models import Effort
from personas.services import model_for
from projects.models.roles import visible_project


class ErrorSerializer(serializers.Serializer[dict[str, str]]):
    code = serializers.CharField()
    detail = serializers.CharField()


class ChosenModelsSerializer(StrictSerializer):
    """The models that answer: several as `models`, one as `model` or `models`. `validated_data` has `models`."""

    model = serializers.UUIDField(
        required=False, allow_null=True, default=None, help_text="The same as `models` with only this model."
    )
    models = serializers.ListField(child=serializers.UUIDField(), max_length=3, default=list)

    def validate(self, attrs: JsonObject) -> JsonObject:
        model = attrs.pop("model")
        if model is None:
            return attrs
        if attrs["models"]:
            raise serializers.ValidationError({"model": [gettext("Send either “model” or “models”, not both.")]})
        return {**attrs, "models": [model]}


class EffortField(serializers.CharField):
    """The effort of reasoning, None if the request does not have it."""

    def __init__(self) -> None:
        super().__init__(
            max_length=MAX_EFFORT_LENGTH, required=False, allow_blank=True, allow_null=True, default=None,
            help_text=f"Effort of reasoning: {', '.join(Effort.values)}. The conversation keeps it; empty removes it.",
        )  # fmt: skip


@extend_schema_serializer(component_name="Draft")
class TurnDraftSerializer(ChosenModelsSerializer):
    text = serializers.CharField(max_length=1_000_000, trim_whitespace=False, allow_blank=True, default="")
    files = serializers.ListField(child=serializers.UUIDField(), max_length=50, default=list)
    effort = serializers.CharField(
        max_length=MAX_EFFORT_LENGTH, required=False, allow_blank=True, allow_null=True, default=None
    )
    count = serializers.BooleanField(
        default=False,
        help_text=(
            "Near the limit, let the provider count the prompt, as before sending. "
            "Otherwise only its earlier counts are used."
        ),
    )

    def validate_models(self, models: list[UUID]) -> list[UUID]:
        if len(models) > 1:
            raise serializers.ValidationError(gettext("A plan is for one model. Send a request for each model."))
        return models


class ProposedFactSerializer(serializers.Serializer[Fact]):
    id = serializers.UUIDField()
    text = serializers.CharField(help_text="Empty once the fact is forgotten.")
    status = serializers.ChoiceField(choices=Fact.Status.choices)


class SourceSerializer(serializers.Serializer[SourceEntry]):
    kind = serializers.CharField(
        help_text="message, file, project_file, image, task, fact, profile, a section's name, or what is gone"
    )
    id = serializers.CharField(allow_null=True)
    title = serializers.CharField()
    tokens = serializers.IntegerField(required=False)
    state = serializers.ChoiceField(choices=["full", "shortened", "stubbed", "by_search", "left_out"])
    reason = serializers.CharField(allow_null=True)
    cut_from = serializers.IntegerField(required=False)
    mark = serializers.CharField(
        required=False, help_text="`pinned` for a message that is always sent but did not fit."
    )
    role = serializers.ChoiceField(
        required=False, choices=["question", "answer", "call", "result"], help_text="Only for a message."
    )
    used = serializers.BooleanField(
        required=False, help_text="For a file that is searched: whether the prompt has a passage of it."
    )
    exact = serializers.BooleanField()


class PromptMessageSerializer(serializers.Serializer[MessageEntry]):
    section = serializers.CharField()
    # DRF removes declared fields from the class, so this one does not replace the attribute `source` of fields.
    source = serializers.CharField(allow_null=True)  # type: ignore[assignment]  # hides `Field.source`
    role = serializers.CharField()
    tokens = serializers.IntegerField()
    state = serializers.CharField()
    text = serializers.CharField(allow_null=True)


class CallSerializer(serializers.Serializer[ShortCall]):
    cycle = serializers.IntegerField()
    model = serializers.CharField()
    limit = serializers.IntegerField()
    used = serializers.IntegerField()
    refused = SentenceField(help_text="The provider's error for a longer prompt that was sent before this one.")


class CoveredSerializer(serializers.Serializer[CoveredEntry]):
    """The summary in a prompt, and the messages that it covers."""

    id = serializers.UUIDField()
    messages = serializers.IntegerField(help_text="Number of messages that it covers.")
    first = serializers.UUIDField()
    last = serializers.UUIDField()
    span_start = serializers.DateTimeField()
    span_end = serializers.DateTimeField()
    tokens_before = serializers.IntegerField(help_text="Tokens of these messages.")


class NamedRowSerializer(serializers.Serializer[NamedRow]):
    id = serializers.UUIDField()
    name = serializers.CharField()


class TurnScopeSerializer(serializers.Serializer[TurnScope]):
    """The persona, the project and the model of a call, with their names at that time."""

    persona = NamedRowSerializer(required=False)
    project = NamedRowSerializer(required=False)
    model = NamedRowSerializer(required=False)


class CacheSerializer(serializers.Serializer[CacheEntry]):
    """The tokens of the prompt that the provider's cache should serve, by our count, and the tokens that it served, by
    the provider's count.

    A plan has only the expected tokens. So has a call if the provider does not report its cache.
    """

    expected = serializers.IntegerField()
    read = serializers.IntegerField(allow_null=True)
    written = serializers.IntegerField(allow_null=True)
    uncached = serializers.IntegerField(allow_null=True)
    missed_section = serializers.CharField(
        allow_null=True, help_text="`tools` or the first section that is read again; null if none is."
    )
    reason = serializers.ChoiceField(choices=list(CACHE_REASONS), allow_null=True)
    again = serializers.IntegerField(
        required=False, help_text="Tokens from that section on that were sent before, by our count."
    )


class OutgoingSerializer(serializers.Serializer[Outgoing]):
    """Exact data that a tool of the turn sent out of the workspace."""

    tool = serializers.CharField()
    host = serializers.CharField()
    what = serializers.CharField(help_text="The address, query or arguments.")


class EvidenceSerializer(serializers.Serializer[Evidence]):
    """The evidence of a learnt limit."""

    kind = serializers.ChoiceField(choices=["refused", "served", "counted"], required=False)
    limit = serializers.IntegerField(required=False, help_text="The limit that the provider named or reported.")
    sent = serializers.ListField(
        child=serializers.IntegerField(), required=False, help_text="Our counts of the prompts behind it."
    )
    requested = serializers.IntegerField(required=False, allow_null=True, help_text="The count in the refusal itself.")
    server = serializers.CharField(required=False, allow_blank=True)
    on = serializers.DateTimeField(required=False)


class ToolsOnDemandSerializer(serializers.Serializer[ToolsOnDemandEntry]):
    """The tools that are listed by name, because the definitions of all would take too much of the room."""

    listed = serializers.ListField(child=serializers.CharField(), help_text="The names of these tools.")
    loaded = serializers.ListField(
        child=serializers.CharField(), help_text="Those that the model has loaded, so that their definitions are sent."
    )
    unnamed = serializers.IntegerField(
        help_text="How many of the last ones have no room in the list, so that only a search finds them."
    )
    saved = serializers.IntegerField(help_text="Tokens that the definitions of all tools would take in addition.")


class ReportSerializer(CallSerializer):
    """The prompt of one model call. All numbers are tokens."""

    window = serializers.IntegerField()
    window_source = serializers.CharField(
        required=False,
        help_text="Source of the window: typed, server (its report), known (of this model), default (assumed), "
        "refused, served or counted (learnt, with evidence), learnt (by an earlier version), profile, conversation.",
    )
    window_evidence = EvidenceSerializer(required=False, help_text="For a learnt window; empty otherwise.")
    reserved_output = serializers.IntegerField()
    reserved_reasoning = serializers.IntegerField(help_text="The part of it for reasoning.")
    effort = serializers.CharField(
        allow_blank=True, help_text=("The effort of reasoning as sent; empty: the provider's default.")
    )
    buffer = serializers.IntegerField()
    margin = serializers.FloatField()
    tools_tokens = serializers.IntegerField(
        help_text="Tokens of the tool definitions and of the schema of a JSON answer, in addition to the messages."
    )
    tools = serializers.ListField(child=serializers.CharField(), help_text="The names of the tools that it could call.")
    tools_asking = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="The tools whose calls the person may have to allow."
    )
    tools_on_demand = ToolsOnDemandSerializer(
        required=False, allow_null=True, help_text="Null if the definitions of all tools are sent."
    )
    sign_ins = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Tool servers that were left out until the person signs in to them: `connected-tools/`.",
    )
    policy = serializers.CharField()
    layout = serializers.CharField()
    profile = serializers.CharField()
    scope = TurnScopeSerializer(required=False, help_text="Missing in reports of earlier versions.")
    left = serializers.IntegerField()
    exact = serializers.BooleanField()
    provider_count = serializers.IntegerField(
        required=False,
        allow_null=True,
        help_text="The provider's count of the prompt and its tools before sending; null without one.",
    )
    sections = serializers.DictField(child=serializers.IntegerField())
    dropped = serializers.ListField(child=serializers.CharField())
    unloaded = serializers.IntegerField(help_text="Older messages that were not read, because there was no room.")
    sources = SourceSerializer(many=True)
    versions = serializers.DictField(child=serializers.CharField())
    summary = CoveredSerializer(allow_null=True)
    model_id = serializers.CharField(required=False)
    usage = serializers.DictField(
        child=serializers.IntegerField(),
        required=False,
        help_text="Tokens as the provider reports them; empty before the report.",
    )
    notes = serializers.ListField(
        child=SentenceField(), help_text=("Parts that should be in the prompt but are missing.")
    )
    cache = CacheSerializer(required=False, help_text="Missing in reports of earlier versions.")
    messages = PromptMessageSerializer(many=True)
    calls = CallSerializer(many=True, required=False)
    proposed = ProposedFactSerializer(
        many=True, required=False, help_text="Facts about you that were proposed during the turn."
    )
    outgoing = OutgoingSerializer(
        many=True, required=False, help_text=("Data that left the workspace during the whole turn.")
    )


class BudgetSerializer(serializers.Serializer[DocumentBudget]):
    available = serializers.IntegerField()
    offered = serializers.IntegerField()
    selectable_up_to = serializers.IntegerField()


class SelectionSerializer(BudgetSerializer):
    selected = serializers.IntegerField(allow_null=True, help_text="Tokens of the draft's files; null while unknown.")


class PlanErrorSerializer(ErrorSerializer):
    sections = serializers.DictField(child=serializers.IntegerField(), required=False)
    part = serializers.CharField(
        required=False,
        help_text=(
            "For `context_too_long`: the section that is too long, `tools`, or `reserve`, the room for the answer."
        ),
    )


class ExpectedCostSerializer(serializers.Serializer[PlanCost]):
    """The cost of the first model call in US dollars. Each call after a tool's result adds the cost of its own prompt
    and answer.
    """

    prompt = MoneyField(help_text="With the expected reads and writes of the provider's cache.")
    answer_per_1000 = MoneyField(help_text="For each 1,000 tokens of the answer, including reasoning.")
    at_most = MoneyField(help_text="With the longest possible answer and without the cache.")
    longest_answer = serializers.IntegerField(help_text="Tokens: the model's own limit, otherwise the remaining room.")


class OfferSerializer(serializers.Serializer[RoomOffer]):
    kind = serializers.ChoiceField(
        choices=["remove_file", "model", "leave_out", "summarise"],
        help_text=(
            "remove_file: a file of the draft; model: a model with a larger window; "
            "leave_out: a file of an earlier turn."
        ),
    )
    id = serializers.CharField(allow_null=True, help_text="The id of the file or model.")
    title = serializers.CharField(allow_blank=True)
    message = serializers.UUIDField(required=False, help_text="For leave_out: the question with the file.")
    frees = serializers.IntegerField(help_text="Tokens.")
    fits = serializers.BooleanField(help_text="Whether the draft then fits.")


class PlanSerializer(ReportSerializer):
    """The plan of a draft. If the draft does not fit, it has only `fits`, `limit`, the window, its source, `error`,
    `documents` and `offers`.
    """

    offers = OfferSerializer(
        many=True, help_text="Changes that would make the draft fit, or leave less of the conversation out."
    )

    cost = ExpectedCostSerializer(allow_null=True, required=False, help_text="Null without a price.")
    fits = serializers.BooleanField()
    countable = serializers.BooleanField(
        required=False, help_text="Near the limit, where a request with `count` could change the plan."
    )
    provider_limit = serializers.IntegerField(
        required=False, allow_null=True, help_text="The limit of `provider_count`; null without one."
    )
    documents = SelectionSerializer()
    near_limit = LimitStateSerializer(
        allow_null=True, help_text=("A limit of which 80 % or more is used; null otherwise.")
    )
    error = PlanErrorSerializer(allow_null=True)


class DocumentBudgetView(ScopedView):
    @extend_schema(
        responses=BudgetSerializer,
        parameters=[
            OpenApiParameter(name, OpenApiTypes.UUID) for name in ("conversation", "project", "persona", "model")
        ],
    )
    def get(self, request: Request) -> Response:
        """Return how many tokens of documents a message may select.

        The budget is for a conversation, or for a new one in a project or without. `persona` and `model` may replace
        the current ones.
        """
        query = request.query_params
        scope = scope_of(visible_conversation(self.person, query["conversation"])) if "conversation" in query else None
        project = visible_project(self.person, query["project"]) if "project" in query else None
        scope = scope or ChatScope(None, project, project.persona if project is not None else None)
        scope = replace(scope, persona=visible_persona(self.person, query.get("persona")) or scope.persona)
        model = visible_model(self.person, query.get("model")) or model_for(scope.persona, self.person)
        documents = budget(base_context(user=self.person, model=model, scope=scope), scope)
        return Response(BudgetSerializer(documents).data)
