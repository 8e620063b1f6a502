"""`/api/v1/readings/`: readings, which ask a question about every part of a file, for programs."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from accounts.models import User
from chat.citations.differences import DoubtKind
from chat.ledger.services import UsageFigures
from chat.readings import services
from chat.readings.checking import PassagePlace
from chat.readings.models import Reading, ReadingPart
from chat.readings.pages import ReadingView
from core.api.actions import post_action
from core.api.fields import MoneyField, SentenceField, StrictSerializer, validate
from core.api.pagination import pages
from core.errors import ProductError


class QuestionSerializer(StrictSerializer):
    """The question. `files` names several files, `file` names one."""

    file = serializers.UUIDField(required=False, allow_null=True, default=None)
    files = serializers.ListField(child=serializers.UUIDField(), required=False, default=list, max_length=500)
    question = serializers.CharField(max_length=Reading.MAX_QUESTION)
    model = serializers.UUIDField(required=False, allow_null=True, default=None)
    conversation = serializers.UUIDField(required=False, allow_null=True, default=None)


class NewReadingSerializer(QuestionSerializer):
    calls = serializers.IntegerField(
        min_value=1, help_text=("The number in the plan. Another number is refused with 409.")
    )


class AgainSerializer(StrictSerializer):
    calls = serializers.IntegerField(
        min_value=1, help_text=("The number in the plan. Another number is refused with 409.")
    )
    only_answer = serializers.BooleanField(
        default=False, help_text="Answer from the parts that were read, without the rest."
    )


class FileCostSerializer(serializers.Serializer[services.FileCostJson]):
    """The highest cost of the questions about the parts of one file."""

    file = serializers.UUIDField(allow_null=True)
    name = serializers.CharField()
    parts = serializers.IntegerField()
    input = serializers.IntegerField(help_text="Tokens")
    output = serializers.IntegerField(help_text="Tokens")
    cost = MoneyField()


class ReadingPlanSerializer(serializers.Serializer[services.EstimateJson]):
    """The highest cost of a reading, including its checks. `folds`: calls that combine notes. One more call writes the
    answer.
    """

    model = serializers.UUIDField()
    calls = serializers.IntegerField()
    parts = serializers.IntegerField()
    folds = serializers.IntegerField()
    checks = serializers.IntegerField(help_text="Calls of the model that checks citations, in addition to `calls`")
    input = serializers.IntegerField(help_text="Tokens")
    output = serializers.IntegerField(help_text="Tokens")
    cost = MoneyField()
    files = FileCostSerializer(many=True)


class MissingSerializer(serializers.Serializer[Any]):
    """Characters of a file's text that were not read, with their pages (0 in a file without pages)."""

    file = serializers.UUIDField(allow_null=True)
    start = serializers.IntegerField()
    end = serializers.IntegerField()
    first_page = serializers.IntegerField()
    last_page = serializers.IntegerField()
    code = serializers.CharField()
    why = SentenceField()


class FileReadSerializer(serializers.Serializer[Any]):
    """The coverage of one file: `read` of its `parts` were read."""

    file = serializers.UUIDField(source="row.file_id", allow_null=True)
    name = serializers.CharField(source="row.name")
    percent = serializers.IntegerField(source="coverage.percent")
    parts = serializers.IntegerField()
    read = serializers.IntegerField()


class CoverageSerializer(serializers.Serializer[Any]):
    """The coverage of all files together, and of each file."""

    percent = serializers.IntegerField()
    missing = MissingSerializer(many=True)
    files = FileReadSerializer(many=True)


class ReadingSpentSerializer(serializers.Serializer[UsageFigures]):
    calls = serializers.IntegerField()
    input = serializers.IntegerField()
    output = serializers.IntegerField()
    cost = MoneyField()


class PassageSerializer(serializers.Serializer[PassagePlace]):
    """The passage that a number in the answer and in the notes refers to."""

    number = serializers.IntegerField()
    file = serializers.UUIDField()
    title = serializers.CharField(help_text="The name of the file")
    start = serializers.IntegerField()
    end = serializers.IntegerField()
    page = serializers.IntegerField()
    href = serializers.CharField()


class ReasonSerializer(serializers.Serializer[Any]):
    reason = serializers.ChoiceField(choices=[str(each) for each in DoubtKind])
    words = serializers.CharField()


class DoubtSerializer(serializers.Serializer[Any]):
    """A sentence without support. `citation`: the index of the citation in the answer, from 0."""

    citation = serializers.IntegerField()
    numbers = serializers.ListField(child=serializers.IntegerField())
    sentence = serializers.CharField()
    evidence = serializers.CharField()
    reasons = ReasonSerializer(many=True)


class CitationPlaceSerializer(serializers.Serializer[Any]):
    """The sentence that a citation of the answer, counted from 0, leads to: its characters in the file, those of its
    passage, and its page."""

    citation = serializers.IntegerField()
    number = serializers.IntegerField()
    file = serializers.CharField()
    page = serializers.IntegerField()
    start = serializers.IntegerField()
    end = serializers.IntegerField()
    sentence_start = serializers.IntegerField()
    sentence_end = serializers.IntegerField()


class CitationCheckSerializer(serializers.Serializer[Any]):
    """The result of the citation check: how many sentences of the answer were compared with the passages that they
    cite, and the sentences without support, as in the event `CITATION_CHECK`. `note`: the reason if the checking model
    returned no result.
    """

    checked = serializers.IntegerField()
    doubts = DoubtSerializer(many=True)
    places = CitationPlaceSerializer(many=True, default=list)  # an older check has none
    note = SentenceField()


class ReadingPartSerializer(serializers.ModelSerializer[ReadingPart]):
    detail = SentenceField()

    class Meta:
        model = ReadingPart
        fields: ClassVar = ["level", "start", "end", "state", "findings", "tokens", "cut_off", "code", "detail"]


class ReadingSerializer(serializers.ModelSerializer[Reading]):
    """A reading. `calls`, `tokens` and `cost` are the agreed maximum. `code` and `detail`: why it ended."""

    detail = SentenceField()
    cost = MoneyField()

    class Meta:
        model = Reading
        fields: ClassVar = [
            *("id", "file", "file_name", "question", "conversation", "model", "model_name", "status", "code", "detail"),
            *("calls", "tokens", "cost", "answer", "created", "finished"),
        ]


class WholeReadingSerializer(ReadingSerializer):
    """A reading with its parts. Parts of level 0 have the questions about the text. Parts of higher levels combine the
    notes of the level below. Their characters count over the texts of all files in order. `left_out`: relevant
    passages that are not in the answer.
    """

    citation_check = CitationCheckSerializer(allow_null=True)
    coverage = serializers.SerializerMethodField()
    spent = serializers.SerializerMethodField()
    sources = serializers.SerializerMethodField()
    left_out = serializers.SerializerMethodField()
    parts = ReadingPartSerializer(many=True)

    class Meta(ReadingSerializer.Meta):
        fields: ClassVar = [
            *ReadingSerializer.Meta.fields,
            "citation_check",
            "coverage",
            "spent",
            "sources",
            "left_out",
            "parts",
        ]

    def to_representation(self, instance: Reading) -> Any:
        self._view = ReadingView(instance)
        return super().to_representation(instance)

    @extend_schema_field(CoverageSerializer)
    def get_coverage(self, reading: Reading) -> Any:
        return CoverageSerializer(self._view).data

    @extend_schema_field(ReadingSpentSerializer)
    def get_spent(self, reading: Reading) -> Any:
        return ReadingSpentSerializer(self._view.calls).data

    @extend_schema_field(PassageSerializer(many=True))
    def get_sources(self, reading: Reading) -> Any:
        texts = [reading.answer, *(row.findings for row in self._view.parts)]
        return [
            {**self._view.place(number), "href": source.href} for number, source in self._view.sources(texts).items()
        ]

    @extend_schema_field(serializers.ListField(child=serializers.IntegerField()))
    def get_left_out(self, reading: Reading) -> list[int]:
        return [source.number for source in self._view.left_out]


class ReadingViewSet(ScopedView, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Reading]):
    pagination_class = pages("-id", size=20, at_most=100)
    queryset = Reading.objects.none()

    def get_queryset(self) -> QuerySet[Reading]:
        listed = self.action == "list"
        rows = (Reading.objects.listed_for if listed else Reading.objects.visible_to)(self.person)
        return rows.select_related("person", "conversation")

    def get_serializer_class(self) -> type[ReadingSerializer]:
        return ReadingSerializer if self.action == "list" else WholeReadingSerializer

    @extend_schema(responses=ReadingSerializer(many=True))
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return the readings, newest first, without their passages."""
        return super().list(request, *args, **kwargs)

    @extend_schema(request=QuestionSerializer, responses=ReadingPlanSerializer)
    @action(detail=False, methods=["post"])
    def plan(self, request: Request) -> Response:
        """Return the highest cost of a reading. Nothing is started."""
        fields = validate(QuestionSerializer, request)
        return Response(services.as_json(services.estimate(request=_reading_request(self.person, fields))))

    @extend_schema(request=NewReadingSerializer, responses={202: WholeReadingSerializer})
    def create(self, request: Request) -> Response:
        """Start a reading. 409 with the new plan if `calls` is not the number of calls that it takes."""
        fields = validate(NewReadingSerializer, request)
        reading = services.start_reading(
            user=self.person, request=_reading_request(self.person, fields), calls=fields["calls"]
        )
        return Response(WholeReadingSerializer(reading).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(
        parameters=[OpenApiParameter("only_answer", bool, description="For an answer from the parts that were read.")],
        responses=ReadingPlanSerializer,
    )
    @action(detail=True, methods=["get"], url_path="plan")
    def rest(self, request: Request, pk: str) -> Response:
        """Return the highest cost of the remaining calls."""
        only_answer = request.query_params.get("only_answer", "false")
        if only_answer not in ("true", "false"):
            raise ProductError("bad_filter", "“only_answer” is true or false.")
        early = only_answer == "true"
        return Response(services.as_json(services.plan_again(reading=self.get_object(), only_answer=early)))

    @post_action(WholeReadingSerializer)
    def stop(self, reading: Reading) -> Reading:
        """Stop the reading within some seconds. Its notes are kept."""
        return services.stop_reading(user=self.person, reading=reading)

    @post_action(WholeReadingSerializer, AgainSerializer, status=202)
    def resume(self, reading: Reading, calls: int, only_answer: bool) -> Reading:
        """Resume the reading after a stop or an error. Only missing parts are asked."""
        return services.resume_reading(user=self.person, reading=reading, calls=calls, only_answer=only_answer)

    def destroy(self, request: Request, pk: str) -> Response:
        """Delete the reading and its notes. Its calls stay in the usage."""
        services.remove_reading(user=self.person, reading=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


def _reading_request(user: User, fields: Mapping[str, Any]) -> services.ReadingRequest:
    """Return the request in a body that `QuestionSerializer` has checked. Raises `NotFound` and `too_many_files`."""
    first = [fields["file"]] if fields["file"] is not None else []
    return services.reading_request(
        user=user,
        files=[*first, *fields["files"]],
        question=fields["question"],
        model=fields["model"],
        conversation=fields["conversation"],
    )
