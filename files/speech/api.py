"""`/api/v1/speech/`: speech to text and text to speech by the servers of the workspace, for pages and programs."""

from typing import TypedDict

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from core.api.fields import StrictSerializer, validate, validate_upload
from core.audit.origin import current_origin
from core.errors import ProductError
from core.json_bodies import JSONParser
from files.index.ledger import Payer
from files.models import SpeechServer
from files.speech import services
from llm.types.speech import SpeechTranscript, TranscriptSegment


class SpeechOffer(TypedDict):
    """Names of the servers that the workspace uses. A part is None while it is off."""

    transcription: str | None
    speech: str | None


class SpeechOfferSerializer(serializers.Serializer[SpeechOffer]):
    transcription = serializers.CharField(allow_null=True, help_text="The server for speech to text; null: none.")
    speech = serializers.CharField(allow_null=True, help_text="The server for text to speech; null: none.")


class RecordingSerializer(StrictSerializer):
    file = serializers.FileField(allow_empty_file=True, help_text="MP3, M4A, WAV, Ogg, WebM or FLAC, at most 10 MB.")


class SegmentSerializer(serializers.Serializer[TranscriptSegment]):
    start = serializers.FloatField(help_text="Seconds from the beginning.")
    end = serializers.FloatField()
    text = serializers.CharField()


class TranscriptSerializer(serializers.Serializer[SpeechTranscript]):
    text = serializers.CharField()
    seconds = serializers.FloatField(help_text="The duration as the server reports it; 0 if it reports none.")
    segments = SegmentSerializer(many=True, help_text="Empty if the server reports no times.")


class SpokenSerializer(StrictSerializer):
    text = serializers.CharField(max_length=services.MAX_SPOKEN, help_text="Plain text. The server's voice reads it.")


class SpeechView(ScopedView):
    """The speech servers of the workspace."""

    scope = "chat"

    @extend_schema(responses=SpeechOfferSerializer)
    def get(self, request: Request) -> Response:
        """Return which servers the workspace uses for speech."""
        kinds = {"transcription": SpeechServer.Kind.TRANSCRIPTION, "speech": SpeechServer.Kind.SPEECH}
        servers = {part: services.active_server(kind) for part, kind in kinds.items()}
        return Response({part: server and server.name for part, server in servers.items()})


class TranscriptionView(ScopedView):
    """Speech to text for a person who waits. Longer recordings are uploaded as files."""

    scope = "chat"
    parser_classes = (MultiPartParser,)

    def rate(self) -> str:
        return "uploads"

    @extend_schema(request={"multipart/form-data": RecordingSerializer}, responses=TranscriptSerializer)
    def post(self, request: Request) -> Response:
        """Return the text of a recording. Nothing of it is stored but the call in the ledger.

        Waits at most a minute. Upload longer recordings as files.
        """
        content = validate_upload(
            RecordingSerializer, request, "Send the recording as multipart/form-data in the field “file”."
        )
        if (content.size or 0) > services.MAX_DICTATED:
            raise ProductError("recording_too_large", services.TOO_LONG_TO_DICTATE, status=413)
        payer = Payer(self.person.pk, current_origin().token_id)
        return Response(TranscriptSerializer(services.dictated(payer=payer, content=content.read())).data)


class SpokenView(ScopedView):
    """Text to speech."""

    scope = "chat"
    parser_classes = (JSONParser,)

    @extend_schema(
        request=SpokenSerializer,
        responses={(200, each): OpenApiTypes.BINARY for each in ("audio/mpeg", "audio/wav", "audio/ogg")},
    )
    def post(self, request: Request) -> HttpResponse:
        """Return a text as sound. Most servers answer MP3; the media type says so."""
        text = validate(SpokenSerializer, request)["text"]
        spoken = services.speak(payer=Payer(self.person.pk, current_origin().token_id), text=text)
        return HttpResponse(spoken.content, content_type=spoken.media_type, headers={"Cache-Control": "no-store"})
