"""Speech to text and text to speech by servers that an administrator names."""

import asyncio
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.test import Client
from django.urls import reverse

from accounts.models import Limit
from chat.ledger.models import ModelCall
from chat.ledger.services import csv_pages
from core.errors import ModelError, ProductError
from files import services as file_services
from files.index.ledger import Payer
from files.models import Chunk, File, FileText, SpeechServer
from files.speech.services import active_server, dictated, speak
from llm.providers.speech import SpeechClient
from llm.types.speech import Recording, SpeechTranscript
from tests.application import Application
from tests.conftest import Person
from tests.files.collections import new_owner
from tests.files.speech_servers import KEY, MP3, SECONDS, SEGMENTS, TEXT, ScriptedSpeechServer, row_of, wav
from tests.files.stored import settled, upload
from tests.llm.raw_server import answer
from tests.product import Caller, until

TIMED = "[0:00] Good morning.\n[0:02] The fee is 500 euros.\n[1:02:05] Goodbye."


def transcribed(
    server: ScriptedSpeechServer, content: bytes = b"", wait: float = 10, key: str = KEY
) -> SpeechTranscript:
    recording = Recording("recording.wav", "audio/wav", content or wav(2))
    return asyncio.run(SpeechClient(server.url, key, wait).transcribe("whisper-1", recording))


@pytest.mark.parametrize("like", ["openai", "new-vllm", "localai"])
def test_the_times_of_servers_are_read_in_seconds(like: str) -> None:
    with ScriptedSpeechServer(like) as server:
        transcript = transcribed(server)
    assert [(each.start, each.end, each.text) for each in transcript.segments] == [
        (start, end, words.strip()) for start, end, words in SEGMENTS
    ]
    assert (transcript.text, transcript.seconds) == (TEXT.strip(), SECONDS)
    [fields] = server.recordings
    assert (fields["model"], fields["response_format"], fields["file_name"]) == (
        "whisper-1",
        "verbose_json",
        "recording.wav",
    )
    assert fields["file"] == wav(2)


@pytest.mark.parametrize("like", ["gpt-4o", "vllm", "litellm"])
def test_a_server_that_refuses_times_is_asked_without_them(like: str) -> None:
    with ScriptedSpeechServer(like) as server:
        transcript = transcribed(server)
    assert (transcript.text, transcript.segments, transcript.seconds) == (TEXT.strip(), (), 0)
    assert (transcript.input, transcript.output) == ((40, 9) if like == "gpt-4o" else (0, 0))
    assert [fields["response_format"] for fields in server.recordings] == ["json"] and len(server.bodies) == 2


@pytest.mark.parametrize(("like", "seconds"), [("whisper.cpp", 2), ("plain", 0)])
def test_an_answer_without_times_is_the_text(like: str, seconds: float) -> None:
    with ScriptedSpeechServer(like) as server:
        transcript = transcribed(server)
    assert (transcript.text, transcript.segments, transcript.seconds) == (TEXT.strip(), (), seconds)


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (answer("<p>Welcome</p>"), "malformed_stream"),
        (answer("[]", media_type="application/json"), "malformed_stream"),
        (answer('{"text": 5}', media_type="application/json"), "malformed_stream"),
        (answer("[" * 50_000, media_type="application/json"), "malformed_stream"),
        (answer('{"error": "failed to read WAV file"}', media_type="application/json"), "provider_overloaded"),
        (answer("<h1>413</h1>", status="413 Request Entity Too Large"), "recording_too_large"),
        (answer("{}", status="500 Internal Server Error"), "provider_overloaded"),
        (answer("{}", status="404 Not Found"), "model_not_found"),
        (None, "provider_timeout"),
    ],
)
def test_a_failure_has_a_code_and_a_sentence(broken: bytes | None, code: str) -> None:
    with ScriptedSpeechServer(broken=broken) as server, pytest.raises(ModelError) as caught:
        transcribed(server, wait=0.5 if broken is None else 10)
    assert caught.value.code == code and str(caught.value.sentence)


def test_times_that_are_none_are_left_out() -> None:
    rows: list[Any] = [None, {"text": " "}, {"text": "One", "start": True, "end": 2}]
    for segments in (rows, [{"text": "One", "start": 0}], "text", [{"text": "One", "start": "a", "end": "b"}]):
        whole = json.dumps({"text": "One", "segments": segments, "duration": "nan", "usage": []})
        with ScriptedSpeechServer(broken=answer(whole, media_type="application/json")) as server:
            assert transcribed(server) == SpeechTranscript("One")


@pytest.mark.django_db
def test_a_call_is_in_the_ledger_with_its_seconds_and_its_price() -> None:
    owner = new_owner()
    with ScriptedSpeechServer() as server, ScriptedSpeechServer("plain") as other:
        row_of(server, minute_price=Decimal("0.006"))
        row_of(other, "speech", character_price=Decimal(15))
        assert dictated(payer=Payer(owner.pk), content=wav(2)).seconds == SECONDS
        spoken = speak(payer=Payer(owner.pk), text="Hello, world.")
        assert (spoken.media_type, other.spoken[0]["voice"], other.spoken[0]["input"]) == (
            "audio/wav",
            "alloy",
            "Hello, world.",
        )
    transcription, reading = ModelCall.objects.filter(person=owner).order_by("pk")
    assert (transcription.purpose, transcription.seconds, transcription.counted) == ("transcript", 3_727, False)
    assert transcription.cost == Decimal("0.37265")
    assert (reading.purpose, reading.seconds, reading.counted, reading.cost) == ("speech", 1, True, Decimal("0.000195"))


@pytest.mark.django_db
@pytest.mark.parametrize(("like", "content", "seconds"), [("vllm", wav(9), 9), ("vllm", MP3, 3)])
def test_seconds_that_the_server_does_not_report_are_estimated(like: str, content: bytes, seconds: int) -> None:
    owner = new_owner()
    with ScriptedSpeechServer(like) as server:
        row_of(server)
        dictated(payer=Payer(owner.pk), content=content)
    call = ModelCall.objects.get(person=owner)
    assert (call.seconds, call.counted, call.cost) == (seconds, True, None)


@pytest.mark.django_db
def test_minutes_of_speech_have_a_limit_of_their_own() -> None:
    owner = new_owner()
    Limit.objects.create(user=owner, unit="speech", per="day", amount=60)
    Limit.objects.create(user=owner, unit="turns", per="day", amount=0)
    with ScriptedSpeechServer() as server:
        row_of(server)
        row_of(server, "speech")
        dictated(payer=Payer(owner.pk), content=wav(2))
        for call in (
            lambda: dictated(payer=Payer(owner.pk), content=wav(2)),
            lambda: speak(payer=Payer(owner.pk), text="Hello"),
        ):
            with pytest.raises(ProductError) as caught:
                call()
            assert caught.value.code == "limit_reached" and "60 minutes of speech a day" in caught.value.detail
        assert (len(server.recordings), len(server.spoken)) == (1, 0)
        assert ModelCall.objects.filter(person=owner).count() == 1
        dictated(payer=Payer(new_owner().pk), content=wav(2))


@pytest.mark.django_db
def test_a_call_that_fails_costs_nothing_and_none_is_made_while_no_server_is_used() -> None:
    owner = new_owner()
    with ScriptedSpeechServer(broken=answer("{}", status="500 Internal Server Error")) as server:
        row = row_of(server)
        with pytest.raises(ModelError):
            dictated(payer=Payer(owner.pk), content=wav(2))
        SpeechServer.objects.filter(pk=row.pk).update(active=False)
        with pytest.raises(ProductError, match="speech_off"):
            dictated(payer=Payer(owner.pk), content=wav(2))
    assert not ModelCall.objects.filter(person=owner).exists() and len(server.heads) == 1


CUT = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"


@pytest.mark.django_db
@pytest.mark.parametrize("broken", [None, CUT, answer("{}", status="408 Request Timeout")])
def test_a_call_without_a_whole_answer_stays_in_the_ledger_since_it_may_be_billed(broken: bytes | None) -> None:
    owner = new_owner()
    Limit.objects.create(user=owner, unit="speech", per="day", amount=1)
    with ScriptedSpeechServer(broken=broken) as server:
        row_of(server, minute_price=Decimal("0.006"), patience=1)
        row_of(server, "speech", character_price=Decimal(15), patience=1)
        with pytest.raises(ModelError):
            speak(payer=Payer(owner.pk), text="Hello, world.")
        with pytest.raises(ModelError):
            dictated(payer=Payer(owner.pk), content=wav(90))
        with pytest.raises(ProductError, match="limit_reached"):
            dictated(payer=Payer(owner.pk), content=wav(2))
    spoken, recording = ModelCall.objects.filter(person=owner).order_by("pk")
    assert (recording.purpose, recording.failed, recording.counted) == ("transcript", True, True)
    assert (recording.seconds, recording.cost) == (90, Decimal("0.009"))
    assert (spoken.purpose, spoken.failed, spoken.cost) == ("speech", True, Decimal("0.000195"))
    [line] = "".join(csv_pages(ModelCall.objects.filter(pk=recording.pk))).splitlines()[1:]
    assert ",90,True,True,0.009" in line


@pytest.fixture
def hears(committed: None) -> Iterator[ScriptedSpeechServer]:
    """A server that the running application uses."""
    with ScriptedSpeechServer() as server:
        rows = [row_of(server), row_of(server, "speech")]
        yield server
        SpeechServer.objects.filter(pk__in=[row.pk for row in rows]).delete()


@pytest.fixture(autouse=True)
def _one_storage(request: pytest.FixtureRequest, settings: Any) -> None:
    if "hears" in request.fixturenames:
        settings.MEDIA_ROOT = request.getfixturevalue("application").directory / "files"  # where its worker looks


SOUNDS = {
    "meeting.mp3": (MP3, "audio/mpeg"),
    "meeting.m4a": (b"\x00\x00\x00\x20ftypisom" + bytes([7]) * 90, "audio/mp4"),
    "voice memo": (b"\x00\x00\x00\x20ftypM4A " + bytes([7]) * 90, "audio/mp4"),
    "meeting.wav": (wav(3), "audio/wav"),
    "meeting.ogg": (b"OggS" + bytes([7]) * 90, "audio/ogg"),
    "meeting.webm": (b"\x1a\x45\xdf\xa3\x9fB\x86\x81\x01B\x82\x84webm" + bytes([7]) * 90, "audio/webm"),
    "meeting.flac": (b"fLaC" + bytes([7]) * 90, "audio/flac"),
}


@pytest.mark.parametrize("name", list(SOUNDS))
def test_an_uploaded_recording_becomes_text_with_times(
    hears: ScriptedSpeechServer, application: Application, person: Person, name: str
) -> None:
    content, media_type = SOUNDS[name]
    file = settled(upload(person, content, name))
    assert (file.status, file.media_type, FileText.objects.get(file=file).text) == ("ready", media_type, TIMED)
    assert [str(note) for note in file.notes] == [
        "Transcribed by the speech server “Ours transcription”. The text may have errors."
    ]
    assert Chunk.objects.filter(file=file, text__contains="500 euros").exists() and file.is_sound
    assert hears.recordings[-1]["file"] == content and name not in hears.recordings[-1]["file_name"]
    call = ModelCall.objects.get(person=person.user, purpose="transcript")
    assert call.seconds == 3_727


def test_a_text_and_a_video_are_no_recordings(
    hears: ScriptedSpeechServer, application: Application, person: Person
) -> None:
    text = settled(upload(person, "ID3 tags have the title of a song.", "tags.txt"))
    assert (text.status, text.media_type) == ("ready", "text/plain")
    video = settled(upload(person, b"\x00\x00\x00\x20ftypisom" + bytes([7]) * 90, "film.mp4"))
    assert (video.error_code, "This is a video" in str(video.problem)) == ("unsupported", True)
    assert hears.recordings == []


def test_a_recording_that_fails_stays_and_is_transcribed_when_it_is_tried_again(
    hears: ScriptedSpeechServer, application: Application, caller: Caller, person: Person
) -> None:
    hears.broken = answer("{}", status="503 Service Unavailable")
    file = settled(upload(person, wav(2), "meeting.wav"))
    assert (file.status, file.error_code) == ("failed", "transcription_failed")
    assert str(file.problem) == (
        "The recording could not be transcribed: The provider has an internal problem or is overloaded. Try again in a "
        "minute."
    )
    hears.broken = b""
    caller.post(f"files/{file.pk}/retry/", {}, expect=202)
    file = settled(File.objects.get(pk=file.pk))
    assert (file.status, FileText.objects.get(file=file).text) == ("ready", TIMED)


def test_a_recording_without_words_or_beyond_a_bound_says_so(
    hears: ScriptedSpeechServer, application: Application, person: Person
) -> None:
    silent = settled(upload(person, wav(2, level=0), "silence.wav"))
    assert (silent.error_code, str(silent.problem).partition(".")[0]) == (
        "no_speech",
        "No speech was recognised in this recording",
    )
    SpeechServer.objects.filter(kind="transcription").update(largest=1)
    large = settled(upload(person, wav(1_001), "long.wav"))
    assert (large.error_code, "more than 1 MB" in str(large.problem)) == ("recording_too_large", True)
    Limit.objects.create(user=person.user, unit="speech", per="month", amount=0)
    refused = settled(upload(person, wav(4), "other.wav"))
    assert (refused.error_code, "minutes of speech a month" in str(refused.problem)) == ("limit_reached", True)


def test_recordings_wait_for_one_another_and_not_the_documents_beside_them(
    hears: ScriptedSpeechServer, application: Application, person: Person, stranger: Person
) -> None:
    hears.open.clear()
    files = [upload(each, wav(number), f"{number}.wav") for number, each in enumerate((person, stranger), start=2)]
    until(lambda: len(hears.heads) == len(files), "both slots are taken")
    files.append(upload(person, wav(4), "4.wav"))
    assert settled(upload(person, "A document.")).status == "ready"
    assert [File.objects.get(pk=file.pk).unread for file in files] == [True] * 3 and len(hears.heads) == 2
    hears.open.set()
    assert [settled(file).status for file in files] == ["ready"] * 3


def test_without_a_server_a_recording_is_refused_as_before(application: Application, person: Person) -> None:
    file = settled(file_services.upload(user=person.user, name="a.mp3", content=ContentFile(MP3)))
    assert (file.status, file.error_code) == ("failed", "unsupported")
    assert "Upload a transcript of it" in str(file.problem)


def test_a_program_has_speech_written_down_and_text_read(
    hears: ScriptedSpeechServer, application: Application, caller: Caller
) -> None:
    assert caller.get("speech/") == {"transcription": "Ours transcription", "speech": "Ours speech"}
    answered = caller.http.post("speech/transcriptions/", files={"file": ("a.wav", wav(2))})
    assert answered.status_code == 200
    assert answered.json()["text"] == TEXT.strip() and answered.json()["seconds"] == SECONDS
    assert answered.json()["segments"][0] == {"start": 0.0, "end": 2.5, "text": "Good morning."}
    spoken = caller.http.post("speech/spoken/", json={"text": "Hello"})
    assert (spoken.status_code, spoken.headers["content-type"], spoken.content) == (200, "audio/mpeg", MP3)
    for body, code in (({"text": "x" * 4_097}, 400), ({"text": " … "}, 400), ({}, 400)):
        assert caller.http.post("speech/spoken/", json=body).status_code == code
    refused = caller.http.post("speech/transcriptions/", files={"file": ("a.txt", b"Hello")})
    assert (refused.status_code, refused.json()["code"]) == (400, "no_recording")
    large = caller.http.post("speech/transcriptions/", files={"file": ("a.wav", wav(10_001))})
    assert (large.status_code, large.json()["code"]) == (413, "recording_too_large")
    SpeechServer.objects.all().delete()
    assert caller.get("speech/") == {"transcription": None, "speech": None}
    assert caller.http.post("speech/spoken/", json={"text": "Hello"}).json()["code"] == "speech_off"


def test_an_administrator_sets_a_server_up_tests_it_and_switches_it_on(admin_client: Client) -> None:
    with ScriptedSpeechServer() as server:
        form = {"name": "Theirs", "kind": "transcription", "base_url": server.url, "model": "w", "new_api_key": KEY}
        numbers = {"largest": 25, "patience": 600}
        page = admin_client.post(reverse("admin:files_speechserver_add"), form | numbers | {"base_url": "nowhere"})
        assert "Begin with http:// or https://" in page.content.decode()
        page = admin_client.post(reverse("admin:files_speechserver_add"), form | numbers | {"kind": "speech"})
        assert "Text to speech needs a voice" in page.content.decode()
        admin_client.post(reverse("admin:files_speechserver_add"), form | numbers)
        row = SpeechServer.objects.get(name="Theirs")
        assert not row.active and active_server(SpeechServer.Kind.TRANSCRIPTION) is None, "nothing is used by itself"
        assert KEY not in admin_client.get(reverse("admin:files_speechserver_change", args=[row.pk])).content.decode()
        assert "works, and reports times" in pressed(admin_client, row, "try_it")
        assert len(server.recordings[-1]["file"]) < 40_000, "a second of silence"
        assert not ModelCall.objects.exclude(person=None).exists()
        assert "is now used for speech" in pressed(admin_client, row, "use")
        assert active_server(SpeechServer.Kind.TRANSCRIPTION) == row
        second = row_of(server, name="Second", active=False)
        pressed(admin_client, second, "use")
        assert list(SpeechServer.objects.filter(active=True)) == [second]
        assert "no longer used" in pressed(admin_client, second, "stop_using")
        assert active_server(SpeechServer.Kind.TRANSCRIPTION) is None
        aloud = row_of(server, "speech", active=False)
        assert "kB of sound" in pressed(admin_client, aloud, "try_it")
        server.broken = answer("{}", status="401 Unauthorized")
        assert "refused the API key" in pressed(admin_client, aloud, "try_it")


def pressed(client: Client, row: SpeechServer, action: str) -> str:
    client.post(reverse(f"admin:files_speechserver_{action}", args=[row.pk]), {"_form_submitted": "on"})
    page = client.get(reverse("admin:files_speechserver_change", args=[row.pk]))
    return " ".join(str(message) for message in page.context["messages"])
