"""Uploaded files, the text read from them, the chunks and postings that search uses, and the embedders."""

from typing import Any, ClassVar, NamedTuple

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.postgres.expressions import ArraySubquery
from django.db import models
from django.db.models import F, Func, Q
from pgvector.django import VectorField
from uuid_utils.compat import uuid7

from accounts.models import ways_of_sharing
from core.crypto import EncryptedTextField
from core.sentences import Sentence
from llm.models import price_field, validate_base_url
from llm.tokens import CATCH_ALL
from readers.api import media_types

MAX_SUFFIX_LENGTH = 8  # characters after the last dot of a name; a longer part belongs to the title


class FileUses(NamedTuple):
    """The projects that contain a file: `projects` that the user sees, and the number of others."""

    projects: list[models.Model]
    others: int


class _OneOf(Func):
    """Test whether a value is in an array, which PostgreSQL computes once, before it reads rows.

    The planner cannot estimate how few rows a subquery with OR, or IN with a union, returns. It then reads the whole
    table.
    """

    template = "%(expressions)s)"
    arg_joiner = " = ANY("
    output_field = models.BooleanField()


class FileQuerySet(models.QuerySet["File"]):
    def owned_by(self, user: AbstractBaseUser | AnonymousUser) -> "FileQuerySet":
        return self.filter(owner_id=user.pk)

    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "FileQuerySet":
        """Return the user's own files, and those in projects that they own or are a member of."""
        if user.pk is None:
            return self.none()
        entries: models.QuerySet[Any] = File._meta.get_field(
            "project_entries"
        ).related_model._default_manager.order_by()
        conditions = (Q(project__owner=user.pk), *ways_of_sharing(user, "project__memberships"))
        first, *others = [entries.filter(condition).values("file") for condition in conditions]
        # The array decides only about files of other people. The user's own files, which may be many, match by owner.
        return self.filter(Q(owner_id=user.pk) | Q(_OneOf(F("pk"), ArraySubquery(first.union(*others)))))


class File(models.Model):
    """Uploaded file.

    `blob`: the content, stored once for equal contents; its name is the SHA-256. `tokens` maps the name of a tokenizer
    to a count. `pages`: number of pages or slides; 0 in files without pages. `width` and `height`: pixels of an image.
    `encoding`: the encoding that a text was read in, by Python's name. `chosen_encoding`: the owner's choice. `error`:
    the reason of a failure, or notes about parts that were left out, one per line, as `Sentence.dump` writes them.
    `language`: a text search configuration of PostgreSQL. `languages`: the number of chunks by their configuration.
    `indexed_chunks` and `indexed_words`: totals for BM25, words with repetitions and without stop words. `chunker`: the
    version of `files.index.chunking` that made the chunks. `word_index`: the version of `files.index.indexing` that
    made the postings. `with_conversation`: a program's request, a tool's result or an attached
    conversation has brought it. `uploaded_again`: when the owner last sent the same content for itself.
    """

    class Status(models.TextChoices):
        UPLOADED = "uploaded", "Uploaded"
        PROCESSING = "processing", "Being read"
        READY = "ready", "Ready"
        TOO_LONG = "too_long", "Too long for the model: by search only"
        FAILED = "failed", "Failed"

    class Index(models.TextChoices):
        """State of a file in the index."""

        NONE = "none", "Nothing to search"
        WAITING = "waiting", "Being made searchable"
        SEARCHABLE = "searchable", "Searchable"
        FAILED = "failed", "Could not be made searchable"

    UNREAD = (Status.UPLOADED, Status.PROCESSING)
    MAX_INDEXINGS = 10  # attempts before indexing is given up
    LOCKED = ("encrypted", "wrong_password")  # error codes of files that a password may open
    HOLDS_LOCKED = "locked_inside"  # error code of a file that was read but contains protected files

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="files")
    name = models.CharField(max_length=255)
    media_type = models.CharField(max_length=100, blank=True)
    size = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64, db_index=True)
    blob = models.FileField(max_length=200)
    status = models.CharField(max_length=20, choices=Status, default=Status.UPLOADED)
    error_code = models.CharField(max_length=60, blank=True)
    error = models.TextField(blank=True)
    tokens: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    pages = models.PositiveIntegerField(default=0)
    width = models.PositiveIntegerField(null=True, blank=True)
    height = models.PositiveIntegerField(null=True, blank=True)
    encoding = models.CharField(max_length=40, blank=True, db_default="", default="")
    chosen_encoding = models.CharField(max_length=40, blank=True, db_default="", default="")
    searchable = models.BooleanField(default=False, help_text="Its passages are in the index.")
    language = models.CharField(max_length=20, default="simple")
    languages: "models.JSONField[Any, Any]" = models.JSONField(default=dict, db_default={})
    indexed_chunks = models.PositiveIntegerField(default=0)
    indexed_words = models.PositiveIntegerField(default=0)
    chunker = models.PositiveSmallIntegerField(default=0, db_default=0)
    word_index = models.PositiveSmallIntegerField(default=0, db_default=0)
    attempt = models.PositiveSmallIntegerField(default=0)
    heartbeat = models.DateTimeField(null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)
    with_conversation = models.BooleanField(default=False, db_default=False, editable=False)
    uploaded_again = models.DateTimeField(null=True, blank=True)

    objects = FileQuerySet.as_manager()

    # Not columns. `uses`: set by `files.pages.add_uses`. `repeated`: whether `files.services.store` returned a file
    # that was there already.
    uses: FileUses | None = None
    repeated: bool = False

    class Meta:
        ordering: ClassVar = ["-created", "-id"]
        indexes: ClassVar = [
            models.Index(fields=["owner", "-created", "-id"], name="file_list"),
            # For the sweeper; `searchable` is set last.
            models.Index(
                fields=["heartbeat"], condition=Q(searchable=False) & ~Q(status="failed"), name="file_unfinished"
            ),
            models.Index(fields=["chunker"], condition=Q(searchable=True), name="file_by_chunker"),
            models.Index(fields=["word_index"], condition=Q(searchable=True), name="file_by_word_index"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def problem(self) -> Sentence:
        """Return the reason of a failure."""
        return Sentence.load(self.error)

    @property
    def notes(self) -> list[Sentence]:
        """Return notes about parts that were left out, or about the progress of reading."""
        return [Sentence.load(line) for line in self.error.splitlines()]

    @property
    def index_state(self) -> Index:
        if self.searchable:
            return self.Index.SEARCHABLE
        if self.is_image or self.status not in (self.Status.READY, self.Status.TOO_LONG):
            return self.Index.NONE
        return self.Index.FAILED if self.attempt >= self.MAX_INDEXINGS else self.Index.WAITING

    @property
    def is_image(self) -> bool:
        """Return whether models can get the file as an image. SVG counts as text; a damaged image does not count."""
        return self.width is not None

    @property
    def is_sound(self) -> bool:
        """Return whether the file is a recording, whose text is a transcript."""
        return self.media_type in media_types.SOUNDS

    @property
    def converted(self) -> bool:
        """Return whether users and models get a converted form of the file, which is stored separately."""
        return self.media_type in (*media_types.CONVERTED, media_types.HEIC)

    @property
    def has_page_pictures(self) -> bool:
        """Return whether the pages of the file can be drawn."""
        return self.media_type == media_types.PDF or (self.converted and self.pages > 0)

    @property
    def locked(self) -> bool:
        """Return whether the file could not be read without its password."""
        return self.status == self.Status.FAILED and self.error_code in self.LOCKED

    @property
    def contains_locked(self) -> bool:
        """Return whether the file was read, and contains protected files."""
        return not self.unread and self.error_code == self.HOLDS_LOCKED

    @property
    def unread(self) -> bool:
        return self.status in self.UNREAD

    @property
    def token_count(self) -> int | None:
        """Return the tokens by the catch-all tokenizer; None before they are counted."""
        count: int | None = self.tokens.get(CATCH_ALL)
        return count


class FileText(models.Model):
    """Text of a file, in a separate table so that lists of files stay small. `spans`: the [start, end) of its pages."""

    file = models.OneToOneField(File, on_delete=models.CASCADE, primary_key=True, related_name="content")
    text = models.TextField()
    spans: "models.JSONField[Any, Any]" = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"text of {self.file_id}"


class RecognisedPage(models.Model):
    """Places of the words recognised on a page, as `readers.outside.places.pack_places` writes them.

    Pages count from 1.
    """

    pk = models.CompositePrimaryKey("file_id", "page")
    file = models.ForeignKey(File, on_delete=models.CASCADE, related_name="+", db_index=False)
    page = models.PositiveIntegerField()
    places = models.BinaryField()

    def __str__(self) -> str:
        return f"page {self.page} of {self.file_id}"


class Embedder(models.Model):
    """Model that turns texts into vectors. At most one is active. `manage.py reembed` renews vectors of the others.

    `query_prefix` and `passage_prefix`: what the model expects before a question and before a text, such as “query: ”.
    """

    class Kind(models.TextChoices):
        BUNDLED = "bundled", "Bundled (wordllama, 256 dimensions)"
        OPENAI = "openai", "OpenAI-compatible /embeddings"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=Kind, default=Kind.BUNDLED)
    base_url = models.CharField("base URL", max_length=200, blank=True, validators=[validate_base_url])
    api_key = EncryptedTextField("API key", blank=True, default="")
    model = models.CharField(max_length=200, blank=True)
    dimensions = models.PositiveIntegerField(default=256)
    query_prefix = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="Put before a question, with its spaces."
    )
    passage_prefix = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="Put before a text, with its spaces."
    )
    input_price = price_field("price of what it reads", "US dollars a million tokens. Empty: calls have no cost.")
    active = models.BooleanField(default=False)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["active"], condition=Q(active=True), name="one_active_embedder")
        ]

    def __str__(self) -> str:
        return self.name


class Chunk(models.Model):
    """About 512 tokens of a file's text: characters [start, end). `page` counts from 1; 0 in files without pages.

    `heading` and `table_head` as in `files.index.chunking.ChunkSpan`; they are searched with the text. The words are in
    `Posting`. `language`: a text search configuration; empty until the words are indexed. `embedder` is null until the
    chunk has a vector.
    """

    id = models.BigAutoField(primary_key=True)
    file = models.ForeignKey(File, on_delete=models.CASCADE, related_name="chunks")
    ordinal = models.PositiveIntegerField()
    page = models.PositiveIntegerField(default=0)
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    text = models.TextField()
    heading = models.TextField(blank=True, db_default="", default="")
    table_head = models.TextField(blank=True, db_default="", default="")
    tokens = models.PositiveIntegerField()
    language = models.CharField(max_length=20, blank=True, db_default="", default="")
    embedder = models.ForeignKey(Embedder, null=True, on_delete=models.SET_NULL, related_name="+")
    embedding = VectorField(null=True)

    class Meta:
        ordering: ClassVar = ["file_id", "ordinal"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["file", "ordinal"], name="chunk_once")]

    def __str__(self) -> str:
        return f"{self.file_id}#{self.ordinal}"

    @property
    def configuration(self) -> str:
        """Return the text search configuration of the chunk's words."""
        return self.language or self.file.language

    @property
    def above(self) -> str:
        """Return the lines above the chunk: the title of the file, the headings, the head of the table."""
        stem, dot, suffix = self.file.name.rpartition(".")
        title = (stem if dot and stem and len(suffix) <= MAX_SUFFIX_LENGTH else self.file.name).replace("_", " ")
        return "\n".join(filter(None, (title, self.heading, self.table_head)))

    @property
    def searched(self) -> str:
        return f"{self.above}\n{self.text}"


class Posting(models.Model):
    """The chunks of a file that contain a lexeme. One row per file and lexeme, so that an index serves filters by file.

    `lexeme`: a key as in `files.index.lexemes`, which begins with the language of the chunks.
    `entries`: 12 bytes for each chunk, big-endian: its id (8 bytes), the frequency of the lexeme in it (2), and the
    number of its lexemes with repetitions (2).
    """

    pk = models.CompositePrimaryKey("file_id", "lexeme")
    file = models.ForeignKey(File, on_delete=models.CASCADE, related_name="+", db_index=False)
    lexeme = models.TextField(db_index=False)
    entries = models.BinaryField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["lexeme"], name="posting_lexeme")]

    def __str__(self) -> str:
        return f"{self.lexeme} in {self.file_id}"
