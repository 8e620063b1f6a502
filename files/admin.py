"""Admin of files, embedders and re-rankers. Names and texts of files are not shown to administrators."""

from typing import Any, ClassVar, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import AbstractUser
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils.decorators import method_decorator
from django.utils.translation import gettext
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from unfold.widgets import UnfoldAdminPasswordWidget

from core.admin import Confirmation, OneActiveAdmin, RecordAdmin, RowAdmin, acting_user, confirmation_button, display
from core.crypto import secret_state
from core.errors import ModelError
from core.sentences import Sentence
from files.index import reranking
from files.models import Embedder, File, Reranker, SpeechServer
from files.speech import services as speech
from llm.admin import KeyedAdmin
from llm.forms import ProviderForm

STATES = {"uploaded": "info", "processing": "info", "ready": "success", "too_long": "warning", "failed": "danger"}


@admin.register(File)
class FileAdmin(RecordAdmin):
    empty_words = "No files were uploaded yet."
    ordering = ("-id",)
    list_display = ("created", "owner", "media_type", "bytes", "status_label", "counted", "error_code")
    list_select_related = ("owner",)
    list_filter = ("status", "searchable")
    search_fields = ("=id", "=sha256", "=owner__username")
    search_help_text = "The id or SHA-256 of a file, or a user name"
    fields = (
        *("id", "owner", "media_type", "bytes", "sha256", "status_label", "error_code", "problem", "counted", "pages"),
        *(
            "encoding",
            "chosen_encoding",
            "language",
            "searchable",
            "chunker",
            "word_index",
            "attempt",
            "heartbeat",
            "created",
        ),
    )

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        file: File | None = super().get_object(request, object_id, from_field)
        if file is not None:
            file.name = _("File %(id)s") % {"id": file.pk}  # administrators may not see the real name
        return file

    @display(description="Size", ordering="size")
    def bytes(self, file: File) -> str:
        return filesizeformat(file.size)

    @display(description="Status", ordering="status", label=STATES)
    def status_label(self, file: File) -> str:
        return file.status

    @display(description="error")
    def problem(self, file: File) -> str:
        return " ".join(map(str, file.notes)) or "–"

    @display(description="Tokens")
    def counted(self, file: File) -> str:
        return "–" if file.token_count is None else f"{file.token_count:,}"


class EmbedderForm(forms.ModelForm[Embedder]):
    """Form for a new embedder. The key is write-only."""

    new_api_key = forms.CharField(
        label="API key", required=False, widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"})
    )

    class Meta:
        model = Embedder
        fields: ClassVar = [
            *("name", "kind", "base_url", "model", "dimensions", "query_prefix", "passage_prefix", "input_price")
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("query_prefix", "passage_prefix"):
            if name in self.fields:  # a stored embedder shows them only
                cast("forms.CharField", self.fields[name]).strip = False

    def clean(self) -> None:
        super().clean()
        cleaned = self.cleaned_data
        if cleaned.get("kind") == Embedder.Kind.OPENAI and not (cleaned.get("base_url") and cleaned.get("model")):
            self.add_error("base_url", gettext("An endpoint needs a base URL and the name of a model."))


@admin.register(Embedder)
class EmbedderAdmin(RowAdmin):
    """Embedders. `manage.py reembed --embedder NAME` makes one active.

    Only the price of a stored embedder can be changed, since other changes would make its vectors incomparable with the
    stored ones. For other changes an administrator adds a new embedder.
    """

    empty_words = "No embedder yet: files are searched by words alone."
    kind = "embedder"
    form = EmbedderForm
    list_display = ("name", "kind", "model", "dimensions", "active", "created")
    add_fields = (
        *("name", "kind", "base_url", "new_api_key", "model", "dimensions"),
        *("query_prefix", "passage_prefix", "input_price"),
    )
    fields = (
        *("name", "kind", "base_url", "key_state", "model", "dimensions", "query_prefix", "passage_prefix"),
        *("active", "created", "input_price"),
    )

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields if obj else self.add_fields

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [name for name in self.fields if name != "input_price"] if obj else ()

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        in_use = obj is not None and obj.active
        return not in_use and super().has_delete_permission(request, obj)

    @method_decorator(sensitive_post_parameters("new_api_key"))
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().changeform_view(request, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        if not change:
            obj.api_key = form.cleaned_data["new_api_key"]
        super().save_model(request, obj, form, change)

    @display(description="API key", label={"stored": "success", "lost": "danger", "none": "warning"})
    def key_state(self, embedder: Embedder) -> str:
        return secret_state(embedder.api_key)


class RerankerForm(ProviderForm):
    class Meta:
        model = Reranker
        fields: ClassVar = [
            "name",
            "kind",
            "base_url",
            "model",
            "candidates",
            "longest",
            "patience",
            "input_price",
            "search_price",
        ]


@admin.register(Reranker)
class RerankerAdmin(OneActiveAdmin, KeyedAdmin):  # type: ignore[misc]  # Unfold's own bases differ so
    kind = "reranker"
    form = RerankerForm
    list_display = ("name", "kind", "base_url", "model", "key_state", "state")
    list_filter = ("kind",)
    search_fields = ("name", "base_url", "model")
    actions_detail = ("try_it", "use", "stop_using")
    general = (*RerankerForm.Meta.fields, "state")
    readonly_fields = ("key_state", "state")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        reranking.store_reranker(user=acting_user(request), reranker=obj, api_key=form.api_key)

    def store_active(self, user: AbstractUser, row: Any, *, active: bool) -> None:
        reranking.use_reranker(user=user, reranker=row, active=active)

    @confirmation_button(
        "Test it",
        icon="network_check",
        ask="Have this server order two passages now?",
        explain="The server gets one request, like that of a search. A paid service may charge for it.",
    )
    def try_it(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        reranker = self.row(request, object_id)
        try:
            right = reranking.try_reranker(reranker=reranker)
        except ModelError as error:
            return self.back(request, reranker, error.sentence.about(reranker), messages.ERROR)
        if right:
            return self.back(
                request,
                reranker,
                Sentence("{reranker} works: it put the passage with the answer first.", reranker=reranker),
            )
        warning = Sentence("{reranker} answers, but it put a passage without the answer first.", reranker=reranker)
        return self.back(request, reranker, warning, messages.WARNING)

    @confirmation_button(
        "Use for searches",
        icon="check_circle",
        ask="Have this server order the passages of searches?",
        explain="It replaces the active re-ranker. Searches send it questions and passages of files.",
    )
    def use(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self.switch(
            request,
            object_id,
            active=True,
            done=lambda row: Sentence("{reranker} now orders the passages of searches.", reranker=row),
        )

    @confirmation_button(
        "Stop ordering",
        icon="block",
        ask="Stop ordering with this server?",
        explain="Passages then keep the order of the search.",
    )
    def stop_using(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self.switch(
            request,
            object_id,
            active=False,
            done=lambda row: Sentence("{reranker} no longer orders the passages of searches.", reranker=row),
        )


class SpeechServerForm(ProviderForm):
    class Meta:
        model = SpeechServer
        fields: ClassVar = [
            *("name", "kind", "base_url", "model", "voice", "preferred", "largest", "patience"),
            *("minute_price", "character_price"),
        ]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        kind = cleaned.get("kind", self.instance.kind)
        if kind == SpeechServer.Kind.SPEECH and not cleaned.get("voice") and "voice" in self.fields:
            self.add_error("voice", gettext("Text to speech needs a voice, such as alloy."))
        return cleaned


@admin.register(SpeechServer)
class SpeechServerAdmin(OneActiveAdmin, KeyedAdmin):  # type: ignore[misc]  # Unfold's own bases differ so
    """Speech servers. None is used before an administrator switches it on."""

    empty_words = "No speech server yet: recordings are not transcribed, and speech is left to browsers."
    kind = "speech_server"
    form = SpeechServerForm
    list_display = ("name", "kind", "model", "base_url", "key_state", "state")
    list_filter = ("kind",)
    search_fields = ("name", "base_url", "model")
    actions_detail = ("try_it", "use", "stop_using")
    general = (*SpeechServerForm.Meta.fields, "state")
    readonly_fields = ("key_state", "state")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return also the kind of a stored server: at most one of each kind is active."""
        return (*self.readonly_fields, "kind") if obj else self.readonly_fields

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        speech.store_speech_server(user=acting_user(request), server=obj, api_key=form.api_key)

    def store_active(self, user: AbstractUser, row: Any, *, active: bool) -> None:
        speech.use_speech_server(user=user, server=row, active=active)

    @confirmation_button(
        "Test it",
        icon="network_check",
        ask="Send this server a short request now?",
        explain="It gets one second of silence to transcribe, or a short sentence to read. A paid service may charge "
        "for it.",
    )
    def try_it(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        server = self.row(request, object_id)
        try:
            sentence = speech.try_speech_server(server=server)
        except ModelError as error:
            return self.back(request, server, error.sentence.about(server), messages.ERROR)
        return self.back(request, server, sentence)

    @confirmation_button(
        "Use it",
        icon="check_circle",
        ask="Use this server for speech?",
        explain="It replaces the active server of its kind. It gets the recordings that people upload or dictate, or "
        "the answers that they have read aloud.",
    )
    def use(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self.switch(
            request, object_id, active=True, done=lambda row: Sentence("{server} is now used for speech.", server=row)
        )

    @confirmation_button(
        "Stop using it",
        icon="block",
        ask="Stop using this server?",
        explain="New recordings are then not transcribed, or only browsers read aloud. Transcribed files stay.",
    )
    def stop_using(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self.switch(
            request,
            object_id,
            active=False,
            done=lambda row: Sentence("{server} is no longer used for speech.", server=row),
        )
