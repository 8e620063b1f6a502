"""`/api/v1/files/`: uploads, texts, pictures of pages and downloads of files for programs."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, TypedDict

from django.db.models import QuerySet
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from accounts.access.api_views import ScopedView
from core.api.fields import StrictSerializer, validate, validate_upload
from core.api.pagination import NewestFirst
from core.errors import ProductError
from core.json_bodies import JSONParser
from core.sentences import Sentence
from files import services
from files.encodings import ENCODINGS
from files.models import File
from files.page_pictures import picture_response
from files.pages import UNREAD_TYPE, StoredText, TextPiece, download, repetition_notice
from readers.api import media_types


class FileError(TypedDict):
    code: str
    detail: str


class FileErrorSerializer(serializers.Serializer[FileError]):
    code = serializers.CharField()
    detail = serializers.CharField()


class FileSerializer(serializers.ModelSerializer[File]):
    tokens = serializers.IntegerField(
        source="token_count",
        read_only=True,
        allow_null=True,
        help_text="Null until they have been counted.",
    )
    error = serializers.SerializerMethodField(help_text="Why it failed.")
    locked = serializers.SerializerMethodField(
        help_text="Whether a password, sent to `reread`, may open the file, or locked files in it."
    )
    note = serializers.SerializerMethodField(
        help_text="Notes on parts that were left out. After an upload of stored content: that the file exists already."
    )
    index = serializers.ChoiceField(
        choices=File.Index.choices,
        source="index_state",
        read_only=True,
        help_text="Whether searches find its passages.",
    )

    class Meta:
        model = File
        fields: ClassVar = [
            "id", "name", "status", "tokens", "size", "media_type", "pages", "width", "height", "encoding",
            "searchable", "index", "locked", "error", "note", "created",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(FileErrorSerializer(allow_null=True))
    def get_error(self, file: File) -> FileError | None:
        if file.status != File.Status.FAILED:
            return None
        return {"code": file.error_code, "detail": str(file.problem)}

    def get_locked(self, file: File) -> bool:
        return file.locked or file.contains_locked

    def get_note(self, file: File) -> str:
        notes = [] if file.status == File.Status.FAILED else file.notes
        return "\n".join(map(str, [repetition_notice(file), *notes] if file.repeated else notes))


class UploadSerializer(StrictSerializer):
    file = serializers.FileField(allow_empty_file=True, help_text="The bytes. They determine the file's type.")


MAX_ENCODING_LENGTH = 100  # characters
MAX_PASSWORD_LENGTH = 1_000  # characters


class RereadSerializer(StrictSerializer):
    encoding = serializers.CharField(
        max_length=MAX_ENCODING_LENGTH,
        required=False,
        allow_blank=True,
        help_text=f"The encoding of a text, if the detected one is wrong: {', '.join(ENCODINGS)}.",
    )
    password = serializers.CharField(
        max_length=MAX_PASSWORD_LENGTH,
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        write_only=True,
        help_text=(
            "The password of a protected PDF, of an Office or LibreOffice file, or "
            "of files in an archive or an e-mail. It is used for this reading only. "
            "Texts of files that an earlier password has opened stay."
        ),
    )


class PieceSerializer(serializers.Serializer[TextPiece]):
    page = serializers.IntegerField(help_text="Counts from 1; 0 in a file without pages.")
    start = serializers.IntegerField(help_text="Characters [start, end) of the file's text.")
    end = serializers.IntegerField()
    text = serializers.CharField()


class TextPage(NamedTuple):
    """A page of text pieces, with the URLs of the next and the previous page."""

    next: str | None
    previous: str | None
    results: list[TextPiece]


class TextSerializer(serializers.Serializer[TextPage]):
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = PieceSerializer(many=True)


class FileViewSet(ScopedView, mixins.RetrieveModelMixin, mixins.ListModelMixin, viewsets.GenericViewSet[File]):
    scope = "files"
    serializer_class = FileSerializer
    pagination_class = NewestFirst
    parser_classes = (MultiPartParser, JSONParser)
    queryset = File.objects.none()

    def get_queryset(self) -> QuerySet[File]:
        """Return the user's own files for a list; for a single file, also the files of their projects."""
        if self.action == "list":
            return File.objects.owned_by(self.request.user)
        return File.objects.visible_to(self.request.user)

    def rate(self) -> str:
        return "uploads" if self.action == "create" else super().rate()

    @extend_schema(
        request={"multipart/form-data": UploadSerializer}, responses={200: FileSerializer, 201: FileSerializer}
    )
    def create(self, request: Request) -> Response:
        """Store a file. Its text and tokens follow in the background: poll the file until its status is final.

        The same content is stored once: the response is 200 with the existing file, and its note says so.
        """
        content = validate_upload(
            UploadSerializer, request, "Send the file as multipart/form-data in the field “file”."
        )
        file = services.upload(user=self.person, name=content.name or "", content=content)
        code = status.HTTP_200_OK if file.repeated else status.HTTP_201_CREATED
        return Response(self.get_serializer(file).data, status=code)

    def destroy(self, request: Request, pk: str) -> Response:
        """Delete the file permanently, also from all projects. Only its owner can."""
        services.delete(user=self.person, file=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses={202: FileSerializer})
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Read a failed file again, or retry its failed indexing."""
        file = self.get_object()
        services.retry(user=self.person, file=file)
        return Response(self.get_serializer(file).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=RereadSerializer, responses={202: FileSerializer})
    @action(detail=True, methods=["post"])
    def reread(self, request: Request, pk: str) -> Response:
        """Read a file again, with another encoding or its password. Its text, tokens and index are replaced."""
        file = self.get_object()
        body = validate(RereadSerializer, request)
        services.reread(
            user=self.person, file=file, encoding=body.get("encoding", ""), password=body.get("password", "")
        )
        return Response(self.get_serializer(file).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(responses={(200, each): OpenApiTypes.BINARY for each in (*media_types.KNOWN_TYPES, UNREAD_TYPE)})
    @action(detail=True)
    def content(self, request: Request, pk: str) -> HttpResponseBase:
        """Return the original bytes."""
        return download(self.get_object())

    @extend_schema(
        responses=TextSerializer,
        parameters=[
            OpenApiParameter("page", int, description="From 1."),
            OpenApiParameter("start", int, description="A position in the text, in characters from 0."),
        ],
    )
    @action(detail=True)
    def text(self, request: Request, pk: str) -> Response:
        """Return the text of the file, from a page or a position on. `next` leads to the following pages."""
        text = StoredText(self.get_object())
        page, start = (parse_position(request.query_params, name) for name in ("page", "start"))
        window = text.at(start or 0 if page is None else text.page_start(page))
        url = request.build_absolute_uri(request.path)

        def link(at: int | None) -> str | None:
            return None if at is None else replace_query_param(url, "start", str(at))

        return Response(TextSerializer(TextPage(link(window.next), link(window.previous), window.pieces)).data)

    @extend_schema(
        responses={(200, "image/jpeg"): OpenApiTypes.BINARY},
        parameters=[
            OpenApiParameter("page", int, OpenApiParameter.PATH, description="From 1."),
            OpenApiParameter("start", int, description="With `end`: characters [start, end) of the file's text."),
            OpenApiParameter("end", int, description="With `start`: these characters are marked if the page has them."),
        ],
    )
    @action(detail=True, url_path=r"pages/(?P<page>[^/]+)/picture")
    def picture(self, request: Request, pk: str, page: str) -> HttpResponseBase:
        """Return a page of a PDF as a picture, with a passage marked on it."""
        number = parse_position({"page": page}, "page") or 0
        return picture_response(self.person, self.get_object(), number, parse_passage(request.query_params))


def parse_passage(parameters: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the passage [start, end) from the query parameters; None if there is none. Raises `bad_number`."""
    start, end = (parse_position(parameters, name) for name in ("start", "end"))
    return None if start is None or end is None else (start, end)


def parse_sentence(parameters: Mapping[str, str], passage: tuple[int, int]) -> tuple[int, int]:
    """Return the sentence [from, to) of the passage from the query parameters, or else the passage.

    Raises `bad_number`.
    """
    start, end = (parse_position(parameters, name) for name in ("from", "to"))
    if start is None or end is None or not passage[0] <= start < end <= passage[1]:
        return passage
    return start, end


def parse_position(parameters: Mapping[str, str], name: str) -> int | None:
    """Return the number in a parameter; None if there is none. Raises `bad_number`."""
    digits = parameters.get(name)
    if not digits:
        return None
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise ProductError("bad_number", Sentence("“{name}” must be a whole number from 0.", name=name))
    return int(digits)
