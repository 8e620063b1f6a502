"""What people upload: the bytes, the text that was read from them, and the chunks that search finds."""

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
from llm.models import price, validate_base_url
from llm.tokens import CATCH_ALL
from readers.api import media_types

LONGEST_SUFFIX = 8  # characters after the last dot of a name; more is a part of the title


class Uses(NamedTuple):
    """Projects that hold a file: those that its reader sees, and how many others."""

    projects: list[models.Model]
    others: int


class _OneOf(Func):
    """Whether a value is in an array, which is made once, before rows are read. Of subqueries joined by OR, or by IN
    with a union, the planner cannot know how few rows they have, and reads the whole table, with everybody's."""

    template = "%(expressions)s)"
    arg_joiner = " = ANY("
    output_field = models.BooleanField()


class FileQuerySet(models.QuerySet["File"]):
    def owned_by(self, user: AbstractBaseUser | AnonymousUser) -> "FileQuerySet":
        return self.filter(owner_id=user.pk)

    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "FileQuerySet":
        """One's own files and those in projects that one owns or is a member of."""
        if user.pk is None:
            return self.none()
        entries: models.QuerySet[Any] = File._meta.get_field(
            "project_entries"
        ).related_model._default_manager.order_by()
        in_projects = (Q(project__owner=user.pk), *ways_of_sharing(user, "project__memberships"))
        first, *others = [entries.filter(way).values("file") for way in in_projects]
        # Asked only of what is somebody else's: one's own file is known by its owner, however many one has.
        return self.filter(Q(owner_id=user.pk) | Q(_OneOf(F("pk"), ArraySubquery(first.union(*others)))))


class File(models.Model):
    """`blob` is stored once per content: its name is the SHA-256. `tokens` maps a tokenizer's name to a count.

    `pages` is the number of pages or slides, 0 where there are none; `width` and `height` (pixels) of images.
    `encoding` is the one a text was read in (Python's name), `chosen_encoding` the one that its owner said it has.
    `error` is why reading failed, or notes on what was left out, one a line, as `Sentence.dump` makes them.
    `language` is PostgreSQL's text search configuration; `indexed_chunks` and `indexed_words` (with repetitions,
    without stop words) are what BM25 needs to know of the whole file. `chunker` is the version of
    `files.index.chunking` that made its chunks.
    """

    class Status(models.TextChoices):
        UPLOADED = "uploaded", "Uploaded"
        PROCESSING = "processing", "Being read"
        READY = "ready", "Ready"
        TOO_LONG = "too_long", "Too long for the model: by search only"
        FAILED = "failed", "Failed"

    class Index(models.TextChoices):
        """Whether a search finds passages of a file that has text."""

        NONE = "none", "Nothing to search"
        WAITING = "waiting", "Being made searchable"
        SEARCHABLE = "searchable", "Searchable"
        FAILED = "failed", "Could not be made searchable"

    UNREAD = (Status.UPLOADED, Status.PROCESSING)
    MAX_INDEXINGS = 10  # attempts, after which indexing is given up
    LOCKED = ("encrypted", "wrong_password")  # codes of errors that a password helps against
    HOLDS_LOCKED = "locked_inside"  # the code of a file that was read, and holds others that a password closes

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
    searchable = models.BooleanField(default=False, help_text="Its chunks are in the index.")
    language = models.CharField(max_length=20, default="simple")
    indexed_chunks = models.PositiveIntegerField(default=0)
    indexed_words = models.PositiveIntegerField(default=0)
    chunker = models.PositiveSmallIntegerField(default=0, db_default=0)
    attempt = models.PositiveSmallIntegerField(default=0)
    heartbeat = models.DateTimeField(null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = FileQuerySet.as_manager()

    # Not a column: `files.pages.with_uses` puts it on the rows that are shown.
    uses: Uses | None = None

    class Meta:
        ordering: ClassVar = ["-created", "-id"]
        indexes: ClassVar = [
            models.Index(fields=["owner", "-created", "-id"], name="file_list"),
            # What the sweeper looks for; `searchable` is set last.
            models.Index(
                fields=["heartbeat"], condition=Q(searchable=False) & ~Q(status="failed"), name="file_unfinished"
            ),
            models.Index(fields=["chunker"], condition=Q(searchable=True), name="file_by_chunker"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def problem(self) -> Sentence:
        """Why reading failed."""
        return Sentence.load(self.error)

    @property
    def notes(self) -> list[Sentence]:
        """What was left out, or what goes on while it is read."""
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
        """Whether a model can be shown it; SVG is text, and a damaged image has no size."""
        return self.width is not None

    @property
    def converted(self) -> bool:
        """Whether people and models are shown another form of it, which is stored beside it."""
        return self.media_type in (*media_types.CONVERTED, media_types.HEIC)

    @property
    def pictured(self) -> bool:
        """Whether its pages can be drawn."""
        return self.media_type == media_types.PDF or (self.converted and self.pages > 0)

    @property
    def locked(self) -> bool:
        """Whether it could not be read for want of its password."""
        return self.status == self.Status.FAILED and self.error_code in self.LOCKED

    @property
    def opens_further(self) -> bool:
        """Whether it was read, and holds files that a password would open."""
        return not self.unread and self.error_code == self.HOLDS_LOCKED

    @property
    def unread(self) -> bool:
        return self.status in self.UNREAD

    @property
    def token_count(self) -> int | None:
        """By the catch-all tokenizer; None while it is unknown."""
        found: int | None = self.tokens.get(CATCH_ALL)
        return found


class FileText(models.Model):
    """The whole text, once, in its own row so that lists of files stay light. `spans` are [start, end) of each page."""

    file = models.OneToOneField(File, on_delete=models.CASCADE, primary_key=True, related_name="content")
    text = models.TextField()
    spans: "models.JSONField[Any, Any]" = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"text of {self.file_id}"


class RecognisedPage(models.Model):
    """Where the words stand that were recognised on the picture of a page (from 1), as `outside.places.packed`."""

    pk = models.CompositePrimaryKey("file_id", "page")
    file = models.ForeignKey(File, on_delete=models.CASCADE, related_name="+", db_index=False)
    page = models.PositiveIntegerField()
    places = models.BinaryField()

    def __str__(self) -> str:
        return f"page {self.page} of {self.file_id}"


class Embedder(models.Model):
    """What turns text into vectors. One is active; chunks of another are embedded anew by `manage.py reembed`."""

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
    input_price = price("price of what it reads", "US dollars a million tokens. Empty: calls have no cost.")
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
    """About 512 tokens of a file's text: characters [start, end). `page` counts from 1, 0 where there are none.

    `heading` and `table_head` as in `files.index.chunking.Piece`: they are searched with its text. Its words are in
    `Posting`. `embedder` is null until it has a vector.
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
    embedder = models.ForeignKey(Embedder, null=True, on_delete=models.SET_NULL, related_name="+")
    embedding = VectorField(null=True)

    class Meta:
        ordering: ClassVar = ["file_id", "ordinal"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["file", "ordinal"], name="chunk_once")]

    def __str__(self) -> str:
        return f"{self.file_id}#{self.ordinal}"

    @property
    def above(self) -> str:
        """What it stands below, line by line: the file's title, the headings, the head of the table."""
        stem, dot, suffix = self.file.name.rpartition(".")
        title = (stem if dot and stem and len(suffix) <= LONGEST_SUFFIX else self.file.name).replace("_", " ")
        return "\n".join(filter(None, (title, self.heading, self.table_head)))

    @property
    def searched(self) -> str:
        return f"{self.above}\n{self.text}"


class Posting(models.Model):
    """The chunks of a file that hold a lexeme. One row per file and lexeme, so that a filter by file is an index.

    `entries`: 12 bytes a chunk, big-endian: its id (8), how often the lexeme is in it (2), and how many lexemes the
    chunk has with repetitions (2).
    """

    pk = models.CompositePrimaryKey("file_id", "lexeme")
    file = models.ForeignKey(File, on_delete=models.CASCADE, related_name="+", db_index=False)
    lexeme = models.TextField(db_index=False)
    entries = models.BinaryField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["lexeme"], name="posting_lexeme")]

    def __str__(self) -> str:
        return f"{self.lexeme} in {self.file_id}"
