"""The conversation: a tree of messages, and the turns that grow it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self, TypedDict, TypeVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import Q, Value
from django.db.models.functions import Lower
from django.utils import timezone
from uuid_utils.compat import uuid7

from accounts.models import asked_with
from chat.models.parts import MessagePart, separate_reasoning
from core.sentence_field import SentenceColumn
from llm.models.provider import effort_field

Row = TypeVar("Row", bound=models.Model, covariant=True)
RESTORABLE_FOR = timedelta(hours=24)  # after that the sweeper removes deleted rows
TEMPORARY_FOR = timedelta(hours=24)  # age at which a temporary conversation is erased, unless it was closed before


class TagQuerySet(models.QuerySet["Tag"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "TagQuerySet":
        return self.filter(owner_id=user.pk)


class Tag(models.Model):
    """A user's own label for conversations. It is deleted with the last conversation that has it."""

    MAX_NAME = 40
    MAX_COUNT = 100  # tags per user
    MAX_OF_ONE = 20  # tags per conversation

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tags")
    name = models.CharField(max_length=MAX_NAME)
    created = models.DateTimeField(auto_now_add=True)

    objects = TagQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = [Lower("name"), "id"]
        constraints: ClassVar = [
            models.UniqueConstraint("owner", Lower("name"), name="one_tag_per_name"),
        ]

    def __str__(self) -> str:
        return self.name


class ConversationQuerySet(models.QuerySet["Conversation"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "ConversationQuerySet":
        return self.filter(owner_id=user.pk, deleted=None)

    def listed_for(self, user: AbstractBaseUser | AnonymousUser) -> "ConversationQuerySet":
        """Return the conversations that lists and searches show: no OpenAI-protocol requests, and no temporary ones."""
        return self.visible_to(user).filter(origin=Conversation.Origin.WORKSPACE)

    def findable(self) -> "ConversationQuerySet":
        """Return the conversations that models may search in other conversations.

        Temporary conversations, requests of programs and deleted conversations are never among them, nor are archived
        ones under a legal hold. A conversation or its project may be kept out.
        """
        rows = self.filter(origin=Conversation.Origin.WORKSPACE, deleted=None, findable=True)
        rows = rows.filter(Q(project=None) | Q(project__findable=True))
        return rows.filter(Q(archived=False) | Q(legal_hold=False, owner__legal_hold=False))

    def restorable_by(self, user: AbstractBaseUser | AnonymousUser) -> "ConversationQuerySet":
        """Return deleted conversations that can still be restored. Temporary ones never can."""
        rows = self.filter(owner_id=user.pk, deleted__gt=timezone.now() - RESTORABLE_FOR)
        return rows.exclude(origin=Conversation.Origin.TEMPORARY)


class Conversation(models.Model):
    """A tree of messages. `leaf` is the newest message of the displayed branch.

    Origin `api`: one request of a program in OpenAI's protocol (`chat.openai_api`). Origin `temporary`: it is in no
    list, search or full export, and is erased when it is closed (`chat.conversations.erasing`).
    """

    class Origin(models.TextChoices):
        WORKSPACE = "workspace", "Workspace"
        API = "api", "OpenAI protocol"
        TEMPORARY = "temporary", "Temporary"

    class State(models.TextChoices):
        IDLE = "idle", "Idle"
        ANSWERING = "answering", "Answering"
        SUMMARISING = "summarising", "Summarising"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="conversations")
    title = models.CharField(max_length=200, blank=True)
    titled = models.BooleanField(
        default=False, editable=False, help_text="A person wrote the title, or a model was asked for one."
    )
    persona = models.ForeignKey("personas.Persona", null=True, blank=True, on_delete=models.SET_NULL)
    project = models.ForeignKey(
        "projects.Project", null=True, blank=True, on_delete=models.SET_NULL, related_name="conversations"
    )
    effort = effort_field(
        help_text="The person's last choice; empty: the default of the persona, the profile or the model."
    )
    # The citation number of each document that has appeared here, by the file's id. It never changes.
    documents: "models.JSONField[Any, Any]" = models.JSONField(default=dict, editable=False)
    # The names of the tools that a model has loaded, in that order: `chat.tools.on_demand`.
    loaded_tools: "models.JSONField[Any, Any]" = models.JSONField(default=list, db_default=[], editable=False)
    leaf = models.ForeignKey("Message", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    state = models.CharField(max_length=20, choices=State, default=State.IDLE)
    origin = models.CharField(max_length=20, choices=Origin, default=Origin.WORKSPACE, editable=False)
    archived = models.BooleanField(default=False)
    pinned = models.DateTimeField(null=True, blank=True, help_text="Pinned above the list since then.")
    tags: "models.ManyToManyField[Tag, Any]" = models.ManyToManyField(Tag, blank=True, related_name="conversations")
    deleted = models.DateTimeField(null=True, blank=True, help_text="Hidden since then; erased a day later.")
    imported_from = models.CharField(
        max_length=200, blank=True, editable=False, help_text="The product that it was imported from, and its id there."
    )
    # No foreign key: the message may be erased before, and nothing is looked up by it.
    forked_from = models.UUIDField(
        null=True, editable=False, help_text="The message of another conversation down to which it was copied."
    )
    legal_hold = models.BooleanField(default=False, db_default=False, help_text="Not erased, even if it is deleted.")
    tasks_in_prompts = models.BooleanField(
        default=True, db_default=True, help_text="Whether its owner's tasks go along with its messages."
    )
    memory_in_prompts = models.BooleanField(
        default=True, db_default=True, help_text="Whether what is remembered about its owner goes along, and may grow."
    )
    findable = models.BooleanField(
        default=True, db_default=True, help_text="Whether models may search it in other conversations."
    )
    proposes = models.BooleanField(
        default=False, db_default=False, editable=False, help_text="Facts were proposed below its answers."
    )
    automatic_summaries = models.BooleanField(default=True, help_text="Off after a person has undone a summary.")
    created = models.DateTimeField(auto_now_add=True)
    updated = models.DateTimeField(auto_now_add=True)

    objects = ConversationQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-updated", "-id"]
        indexes: ClassVar = [
            models.Index(
                fields=["owner", "archived", "-updated", "-id"],
                condition=Q(deleted=None, origin="workspace"),
                name="conversation_list",
            ),
            models.Index(fields=["updated"], condition=Q(origin="api"), name="conversation_of_program"),
            models.Index(fields=["owner"], condition=Q(pinned__isnull=False), name="conversation_pinned"),
            models.Index(fields=["created"], condition=Q(origin="temporary"), name="conversation_temporary"),
            models.Index(fields=["deleted"], condition=Q(deleted__isnull=False), name="conversation_deleted"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["owner", "imported_from"], condition=~Q(imported_from=""), name="imported_once"
            )
        ]

    def __str__(self) -> str:
        return self.title or "New conversation"

    @property
    def temporary(self) -> bool:
        return self.origin == self.Origin.TEMPORARY

    @property
    def erased_at(self) -> datetime | None:
        """Return the time at which a temporary conversation is erased automatically; None for others."""
        return self.created + TEMPORARY_FOR if self.temporary else None


class OfConversation(models.QuerySet[Row]):
    """Query set of rows that belong to a conversation, and are visible to its owner."""

    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> Self:
        return self.filter(conversation__owner_id=user.pk, conversation__deleted=None)


def text_in(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return the written text of the parts, without reasoning and tools."""
    return "\n\n".join(part["text"] for part in parts if part["type"] == "text" and part["text"])


class MessageQuerySet(OfConversation["Message"]):
    def restorable_by(self, user: AbstractBaseUser | AnonymousUser) -> "MessageQuerySet":
        """Return deleted messages that can still be restored, and whose parent is not deleted."""
        rows = self.visible_to(user).filter(deleted__gt=timezone.now() - RESTORABLE_FOR)
        return rows.filter(Q(parent=None) | Q(parent__deleted=None))


class MessageManager(models.Manager["Message"]):
    """Manager of messages that are not deleted. Related managers of other rows use it, too."""

    def get_queryset(self) -> MessageQuerySet:
        return MessageQuerySet(self.model, using=self._db).filter(deleted=None)

    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> MessageQuerySet:
        return self.get_queryset().visible_to(user)


def owner_of_conversation() -> Any:
    """Return a field for the owner of the row's conversation. The owner of a conversation never changes.

    The field is null only in rows that are older than the column, until migrations have filled it. A trigger fills it
    if code leaves it out. Rows are deleted with their conversation, so no code looks them up by owner, and the field
    needs no index.
    """
    field: models.ForeignKey[Any, Any] = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.DO_NOTHING,
        related_name="+",
        null=True,
        editable=False,
        db_constraint=False,
        db_index=False,
    )
    return field


class Message(models.Model):
    """A question or an answer. An answer holds the whole turn in one row, in the order in which it happened.

    `parts` is a list of `MessagePart`.
    `tokens` maps a tokenizer's name to the count of what the model sees of this message, without overhead.
    A message is deleted together with all messages below it. Their `deleted` time is the same, and identifies the
    messages to restore together. So no message above an existing one is deleted. `with_deleted` includes all messages.
    """

    class Role(models.TextChoices):
        USER = "user", "User"
        ASSISTANT = "assistant", "Assistant"

    class Status(models.TextChoices):
        PENDING = "pending", "Being written"
        DONE = "done", "Complete"
        STOPPED = "stopped", "Stopped"
        FAILED = "failed", "Failed"
        INTERRUPTED = "interrupted", "Interrupted"

    class Feedback(models.TextChoices):
        NONE = "", "None"
        GOOD = "good", "Good"
        BAD = "bad", "Bad"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="messages")
    owner = owner_of_conversation()  # part of the search index, see `words`
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.CASCADE, related_name="children")
    role = models.CharField(max_length=20, choices=Role)
    parts = models.JSONField(default=list)
    tokens = models.JSONField(default=dict, editable=False)
    model = models.ForeignKey("llm.Model", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    status = models.CharField(max_length=20, choices=Status, default=Status.DONE)
    error_code = models.CharField(max_length=60, blank=True)
    error_detail = SentenceColumn(blank=True)
    feedback = models.CharField(max_length=10, choices=Feedback, blank=True, default=Feedback.NONE)
    # Keys of `chat.conversations.feedback.REASON_LABELS`, and what the user writes to the administrators.
    feedback_reasons: "models.JSONField[Any, Any]" = models.JSONField(
        default=list, db_default=Value([], models.JSONField()), editable=False
    )
    feedback_comment = models.TextField(default="", db_default="", blank=True, editable=False)
    feedback_at = models.DateTimeField(null=True, editable=False)
    depth = models.PositiveIntegerField(default=0, help_text="Number of messages above it on its branch.")
    created = models.DateTimeField(auto_now_add=True)
    deleted = models.DateTimeField(null=True, editable=False, help_text="Hidden since then; erased a day later.")

    objects = MessageManager()
    with_deleted = MessageQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["id"]
        indexes: ClassVar = [
            models.Index(fields=["deleted"], condition=Q(deleted__isnull=False), name="message_deleted"),
            models.Index(fields=["-feedback_at", "-id"], condition=~Q(feedback=""), name="message_judged"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(parent=None, depth=0) | Q(parent__isnull=False, depth__gt=0), name="message_depth_of_root"
            )
        ]

    def __str__(self) -> str:
        return self.text[:60]

    @property
    def separated_parts(self) -> list[MessagePart]:
        """Return the parts. In an answer, reasoning that was stored within a text is a part of its own."""
        return separate_reasoning(self.parts) if self.role == self.Role.ASSISTANT else self.parts

    @property
    def text(self) -> str:
        """Return the written text, without reasoning and tools."""
        return text_in(self.separated_parts)

    @property
    def continues(self) -> bool:
        """Return whether this question asks to continue an answer that was cut off."""
        return any(part.get("continues") for part in self.parts)

    @property
    def files_alone(self) -> bool:
        """Return whether this question is files without a message. Its text is then the product's."""
        return any(part.get("files_alone") for part in self.parts)

    @property
    def edited(self) -> bool:
        """Return whether a person has written this answer's text."""
        return any(part.get("edited") for part in self.parts)

    @property
    def finish_reason(self) -> str:
        """Return why the last step of an answer ended; empty while the answer is not complete."""
        turn: Turn | None = getattr(self, "turn", None)
        return turn.finish_reason if turn is not None else ""

    @property
    def finish_detail(self) -> str:
        """Return the provider's own word if the finish reason is `other`; empty for other reasons."""
        turn: Turn | None = getattr(self, "turn", None)
        return turn.finish_detail if turn is not None else ""

    @property
    def continuable(self) -> bool:
        """Return whether the answer was cut off before its end."""
        return self.finish_reason in Turn.CUT_SHORT or self.status not in (self.Status.DONE, self.Status.PENDING)

    @property
    def asked_model_id(self) -> UUID | None:
        """Return the id of the requested model. `model` is the model that wrote the answer, perhaps a fallback."""
        turn: Turn | None = getattr(self, "turn", None)
        return (turn.model_id if turn is not None else None) or self.model_id


class JudgedAnswerManager(models.Manager["JudgedAnswer"]):
    def get_queryset(self) -> "models.QuerySet[JudgedAnswer]":
        return super().get_queryset().filter(deleted=None).exclude(feedback="")


class JudgedAnswer(Message):
    """An answer with feedback, for the list of administrators."""

    objects = JudgedAnswerManager()  # type: ignore[assignment,misc]  # a narrower manager of the same rows

    class Meta:
        proxy = True
        ordering: ClassVar = ["-id"]
        verbose_name = "judged answer"
        verbose_name_plural = "feedback"

    def __str__(self) -> str:
        return str(self.pk)


class Attachment(models.Model):
    """A file that was uploaded with a message. The row outlives the file."""

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="attachments")
    file = models.ForeignKey("files.File", null=True, on_delete=models.SET_NULL, related_name="attachments")
    name = models.CharField(max_length=255, help_text="The file's name, also after its deletion.")
    ordinal = models.PositiveSmallIntegerField()

    class Meta:
        ordering: ClassVar = ["ordinal"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["message", "ordinal"], name="one_attachment_per_place")
        ]

    def __str__(self) -> str:
        return self.name


class NamedRow(TypedDict):
    """The id and the name of a row. They are stored, since the row may be deleted."""

    id: str
    name: str


class TurnScope(TypedDict, total=False):
    """The persona, the project and the model of a model call. A call without a persona or project lacks that member."""

    persona: NamedRow
    project: NamedRow
    model: NamedRow


class TurnQuerySet(OfConversation["Turn"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> Self:
        return super().visible_to(user).with_answer()

    def with_answer(self) -> Self:
        """Leave out turns whose answer is deleted."""
        return self.filter(answer__deleted=None)

    def live(self) -> "TurnQuerySet":
        return self.filter(status__in=Turn.LIVE)


class Turn(models.Model):
    """The generation of one answer. The row decides which worker has it: a worker claims it by a conditional update.

    `attempt` counts the claims and fences off previous workers. `usage` holds the fields of
    `llm.types.model_call.Usage` plus `calls`. `model` is the requested model. If a fallback wrote the answer instead,
    the fallback is the `model` of the answer.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        STOPPED = "stopped", "Stopped"
        FAILED = "failed", "Failed"
        INTERRUPTED = "interrupted", "Interrupted"

    LIVE = (Status.QUEUED, Status.RUNNING)
    BROKEN = (Status.FAILED, Status.INTERRUPTED)
    # Finish reasons of complete turns: of answers that were cut short, and of answers that decline.
    CUT_SHORT = ("length", "context_window", "pause")
    DECLINED = ("refusal", "content_filter")
    # The finish reason for a word of the provider that is not known as a good end. The user may simply try again.
    UNKNOWN_END = "other"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="turns")
    owner = owner_of_conversation()
    user_message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="turns")
    answer = models.OneToOneField(Message, on_delete=models.CASCADE, related_name="turn")
    model = models.ForeignKey("llm.Model", null=True, on_delete=models.SET_NULL, related_name="+")
    slot = models.PositiveSmallIntegerField(default=0, help_text="The index among the models side by side, from 0.")
    status = models.CharField(max_length=20, choices=Status, default=Status.QUEUED)
    attempt = models.PositiveSmallIntegerField(default=0)
    seq = models.PositiveIntegerField(default=0, help_text="Last event that the stored answer contains.")
    request_id = models.CharField(max_length=64, blank=True, default="", db_default="", editable=False)
    stop_requested = models.BooleanField(default=False)
    stop_asked = models.DateTimeField(null=True, blank=True)
    heartbeat = models.DateTimeField(null=True, blank=True)
    idempotency_key = models.CharField(max_length=100, null=True, blank=True)  # noqa: DJ001 - NULLs are distinct in the unique constraint
    effort = effort_field(help_text="The person's choice. A program's effort is in its options.")
    # Options of a program's request (`chat.prompts.turn_context.ProgramOptions`); empty for a person's turn.
    options: "models.JSONField[Any, Any]" = models.JSONField(default=dict, editable=False)
    fallback_reason = models.CharField(
        max_length=60, blank=True, help_text="The error after which a fallback of the model was asked."
    )
    finish_reason = models.CharField(max_length=20, blank=True, help_text="Why the last step of the model ended.")
    finish_detail = models.CharField(
        max_length=100, blank=True, default="", db_default="", help_text="The provider's word for an unknown reason."
    )
    usage: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    report: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    # A `chat.turns.store.RequestedCall` for each request to a model so far; empty once the turn has ended.
    asked: "models.JSONField[Any, Any]" = models.JSONField(default=list, db_default=[], editable=False)
    cost = models.DecimalField(
        max_digits=26, decimal_places=12, null=True, help_text="US dollars for all its calls; empty without a price."
    )
    # Copied from the last call in the report, so that pages with many answers need not load every report.
    context_limit = models.PositiveIntegerField(null=True, blank=True)
    context_used = models.PositiveIntegerField(null=True, blank=True)
    context_left_out = models.PositiveIntegerField(default=0)
    context_unread = models.PositiveIntegerField(default=0, help_text="Tokens that the provider's server did not read.")
    context_notice = SentenceColumn(
        blank=True, default="", help_text="An explanation and advice, also for an unusually low count."
    )
    # A `TurnScope` of its last call: the next turn names what is gone since. Empty in turns of earlier versions.
    scope: "models.JSONField[Any, Any]" = models.JSONField(default=dict, db_default={}, editable=False)
    prompt_cap = models.PositiveIntegerField(
        null=True, blank=True, help_text="The maximum tokens of its prompt, if the person asked to send less."
    )
    created = models.DateTimeField(auto_now_add=True)
    started = models.DateTimeField(null=True, blank=True)
    finished = models.DateTimeField(null=True, blank=True)
    first_token_ms = models.PositiveIntegerField(
        null=True, blank=True, help_text="Time from the question to the first token, including reasoning and waiting."
    )
    token = asked_with()
    # Tokens and money that are reserved from the user's limits (`chat.ledger.limits`) while the turn is live.
    reserved_tokens = models.PositiveIntegerField(null=True, blank=True)
    reserved_cost = models.DecimalField(max_digits=26, decimal_places=12, null=True, help_text="US dollars.")

    objects = TurnQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["conversation", "slot"],
                condition=Q(status__in=["queued", "running"]),
                name="one_live_turn_per_slot",
            ),
            models.UniqueConstraint(
                fields=["conversation", "idempotency_key", "slot"], name="one_turn_per_idempotency_key"
            ),
            models.CheckConstraint(condition=Q(slot__lte=2), name="three_models_at_most"),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["heartbeat"], condition=Q(status__in=["queued", "running"]), name="turn_live_heartbeat"
            ),
            models.Index(fields=["-id"], condition=Q(status__in=["failed", "interrupted"]), name="turn_broken"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class NextMessage(models.Model):
    """A message that a person wrote while an answer was being written. It is sent when that answer is complete.

    The row is deleted when the message is sent. `files` and `asked_models` are the ids that the user chose. `problem`
    says why the message could not be sent.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.OneToOneField(Conversation, on_delete=models.CASCADE, related_name="next_message")
    text = models.TextField()
    files: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    asked_models: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    idempotency_key = models.CharField(max_length=100, blank=True)
    token = asked_with()
    problem = SentenceColumn(blank=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = OfConversation["NextMessage"].as_manager()

    def __str__(self) -> str:
        return self.text[:60]


class StepReasoning(models.Model):
    """Reasoning of one step of a turn that the provider needs back (`llm.types.model_call.ReasoningState`).

    Only the provider's adapter reads `items`. No user and no program sees them.
    `number` counts the turn's steps with tool calls, from 1. `calls` identifies those calls
    (`chat.prompts.history.calls_digest`), for programs that run the tools and send the calls back in a new request.
    `reminder` is the reminder in that step's prompt, if the turn is append-only.
    """

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="reasoning")
    number = models.PositiveSmallIntegerField()
    items: "models.JSONField[Any, Any]" = models.JSONField()
    tokens = models.PositiveIntegerField(default=0)
    calls = models.CharField(max_length=16, default="", db_index=True)
    reminder = models.TextField(default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["turn", "number"], name="one_reasoning_per_step"),
        ]

    def __str__(self) -> str:
        return f"{self.turn_id} {self.number}"


class RenderedAnswer(models.Model):
    """The HTML of a complete answer in one language. `chat.rendering.kept` writes, reads and validates it.

    `linked`: its citations link to files or pages that only the owner may open. Readers of a share get another row,
    without links. `numbers` lists the numbers of all its citations, with or without a link. `blocks` holds the HTML
    blocks of each text part, in order.
    """

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="rendered")
    language = models.CharField(max_length=10)
    linked = models.BooleanField()
    digest = models.CharField(
        max_length=64, help_text=("A digest of all inputs. Another digest means that it is outdated.")
    )
    numbers = models.JSONField(default=list)
    blocks = models.JSONField(default=list)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["message", "language", "linked"], name="one_rendering_per_reader"),
        ]

    def __str__(self) -> str:
        return f"{self.message_id} ({self.language})"


class ToolPermission(models.Model):
    """A user's decision, for a whole conversation, about tool calls that need approval.

    `host` is the host of the addresses that the tool opens. It is empty if the decision is about all calls of the tool.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="permissions")
    tool = models.CharField(max_length=200)
    host = models.CharField(max_length=255, blank=True)
    allowed = models.BooleanField()
    created = models.DateTimeField(auto_now_add=True)

    objects = OfConversation["ToolPermission"].as_manager()

    class Meta:
        ordering: ClassVar = ["created", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "tool", "host"], name="one_permission_per_tool_and_host")
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.host}: {'allowed' if self.allowed else 'never'}"
