"""Personas, versions of prompts and texts, reminders, and budget profiles."""

from decimal import Decimal
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from accounts.models import EDITING, Sharing, shared_with
from core.faces import WithFace
from llm.models.provider import effort_field
from llm.tokens import CATCH_ALL
from workspace.models import DateAwareness

SHARE_VALIDATORS = [MinValueValidator(Decimal(0)), MaxValueValidator(Decimal(1))]


def share_field(name: str, default: str, help_text: str) -> "models.DecimalField[Decimal, Decimal]":
    """Return a column for a share from 0 to 1, with three decimals."""
    return models.DecimalField(
        name, max_digits=4, decimal_places=3, default=Decimal(default), validators=SHARE_VALIDATORS, help_text=help_text
    )


class PromptVersion(models.Model):
    """Version of a prompt. A version never changes: an edit stores the next one. At most one version is active."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    version = models.PositiveIntegerField(unique=True, editable=False)
    text = models.TextField()
    note = models.CharField(max_length=200, blank=True, help_text="What this version changes, for comparisons.")
    tokens: "models.JSONField[Any, Any]" = models.JSONField(default=dict, editable=False)  # by the tokenizer's name
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, editable=False, related_name="+"
    )
    active = models.BooleanField(default=False, editable=False)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
        ordering: ClassVar = ["-version"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["active"], condition=Q(active=True), name="one_active_%(class)s")
        ]

    def __str__(self) -> str:
        return f"v{self.version}"

    @property
    def token_count(self) -> int | None:
        """Return the number of tokens by the catch-all tokenizer."""
        count: int | None = self.tokens.get(CATCH_ALL)
        return count

    @property
    def tag(self) -> str:
        """Return the entity tag of this version. Changes of the prompt name the tag of the active version."""
        return str(self.version)

    def history(self) -> "models.QuerySet[Any]":
        """Return all versions of the same prompt, newest first."""
        return type(self)._default_manager.all()


class SystemPrompt(PromptVersion):
    """Version of the system prompt, with which every conversation begins."""


class SummaryPrompt(PromptVersion):
    """Version of the instructions for summaries. The product adds the numbers, the date and the form."""


class PromptText(PromptVersion):
    """Version of the text `name` in `personas.texts`. Without an active version the built-in text is sent."""

    name = models.CharField(max_length=40, editable=False)
    version = models.PositiveIntegerField(editable=False)
    text = models.TextField(blank=True)

    class Meta(PromptVersion.Meta):
        ordering: ClassVar = ["name", "-version"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["name", "version"], name="one_version_of_a_text"),
            models.UniqueConstraint(fields=["name"], condition=Q(active=True), name="one_active_prompttext"),
        ]

    def __str__(self) -> str:
        return f"v{self.version}" if self.version else gettext("the built-in text")

    def history(self) -> "models.QuerySet[Any]":
        return PromptText.objects.filter(name=self.name)


class ReminderQuerySet(models.QuerySet["Reminder"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "ReminderQuerySet":
        """Return the reminders for every conversation, and the reminders of the personas that the user sees."""
        chosen = Persona.objects.visible_to(user).values("reminders")
        return self.filter(Q(scope=Reminder.Scope.EVERYWHERE) | Q(pk__in=chosen))


class Reminder(models.Model):
    class Scope(models.TextChoices):
        EVERYWHERE = "everywhere", "Every conversation"
        PERSONA = "persona", "Personas that choose it"

    MAX_TEXT = 2_000

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    text = models.TextField(help_text="One or two short sentences at the end of the prompt.")
    scope = models.CharField(max_length=20, choices=Scope, default=Scope.EVERYWHERE)
    enabled = models.BooleanField(default=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = ReminderQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["created"]

    def __str__(self) -> str:
        return self.text[:60]


class BudgetProfile(models.Model):
    """Numbers and policies of the context engine. Numbers without a unit are tokens, or shares from 0 to 1."""

    class Policy(models.TextChoices):
        RECENT = "recent", "Recent: the newest turns, without gaps"
        PRIORITY = "priority", "Priority: tool groups first, then what fits"

    class NoteForm(models.TextChoices):
        AUTOMATIC = "auto", "By the model's size"
        PLAIN = "plain", "Without a mark"
        HEADING = "heading", "Under a heading"
        TAGS = "tags", "In <note> tags, which the system prompt explains"

    class ReminderPlace(models.TextChoices):
        AUTOMATIC = "auto", "By the model's size"
        END = "end", "At the end of the prompt"
        ABOVE = "above", "Above the newest message"

    class Layout(models.TextChoices):
        NEAR_END = "near_end", "Persona and project files near the end"
        FILES_FIRST = "files_first", "Project files first (cheaper with prompt caching)"
        ALL_FIRST = "all_first", "Everything stable first (cheapest with prompt caching)"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100, unique=True)
    default = models.BooleanField(default=False)
    policy = models.CharField(
        "what stays when not everything fits", max_length=20, choices=Policy, default=Policy.RECENT
    )
    layout = models.CharField("order of the prompt", max_length=20, choices=Layout, default=Layout.NEAR_END)
    window = models.PositiveIntegerField(
        "most of the model's window to use", null=True, blank=True, help_text="In tokens; empty: no limit."
    )
    reserved_output = models.PositiveIntegerField("kept free for the answer", default=1024, help_text="In tokens.")
    buffer = models.PositiveIntegerField("kept free against counting errors", default=40, help_text="In tokens.")
    message_overhead = models.PositiveIntegerField(
        "added to each message", default=4, help_text="In tokens: the overhead of a message in addition to its text."
    )
    safety_margin = share_field(
        "kept free where tokens are counted exactly",
        "0",
        "As a share of the window, 0 to 1: of models whose tokenizer is known.",
    )
    catch_all_margin = share_field(
        "kept free where tokens are estimated",
        "0.05",
        "As a share of the window, 0 to 1: of models whose tokenizer is not known.",
    )
    expected_user = models.PositiveIntegerField(
        "expected of the next message", default=512, help_text="In tokens: the room for the next message."
    )
    ui_share = share_field("share of the room that files may fill", "0.5", "0 to 1, of the room for documents.")
    select_margin = models.PositiveIntegerField(
        "kept free below that when files are chosen", default=75, help_text="In tokens."
    )
    project_share = share_field(
        "share of the room up to which project files are sent whole",
        "0.6",
        "0 to 1. Above it the model searches them instead.",
    )
    tool_share = models.DecimalField(
        "share of the room up to which tools of servers are defined whole",
        max_digits=4,
        decimal_places=3,
        default=Decimal("0.1"),
        db_default=Decimal("0.1"),
        validators=SHARE_VALIDATORS,
        help_text="0 to 1. Above it they are listed by name, and the model loads those that it needs.",
    )
    omission_note = models.BooleanField(
        "tell the model what was left out",
        default=True,
        help_text="Put a sentence in the place of earlier messages without room.",
    )
    note_form = models.CharField(
        "mark of reminders, instructions and lists of files",
        max_length=20,
        choices=NoteForm,
        default=NoteForm.AUTOMATIC,
        db_default=NoteForm.AUTOMATIC,
        help_text=(
            "How the model distinguishes them from the person's words. By size: "
            "without a mark for models below 3 billion parameters, below a heading "
            "for others."
        ),
    )
    reminder_place = models.CharField(
        "place of the reminders",
        max_length=20,
        choices=ReminderPlace,
        default=ReminderPlace.AUTOMATIC,
        db_default=ReminderPlace.AUTOMATIC,
        help_text="By size: above the newest message for models below 3 billion parameters, at the end for others.",
    )
    always_remind_citations = models.BooleanField(
        "remind of citations whenever documents are in the prompt",
        default=False,
        db_default=False,
        help_text="Off: only after a search.",
    )
    memory_share = models.DecimalField(
        "share of the room for what is remembered",
        max_digits=4,
        decimal_places=3,
        default=Decimal("0.03"),
        db_default=Decimal("0.03"),
        validators=SHARE_VALIDATORS,
        help_text="0 to 1, of what a prompt may have. Profiles and pinned facts are always sent.",
    )
    memory_most = models.PositiveIntegerField(
        "most tokens for what is remembered",
        default=600,
        db_default=600,
        help_text="In tokens: the limit of the share above in large windows.",
    )
    summaries = models.BooleanField(
        "summarise long conversations", default=True, help_text="Summarise in the background, before the room is full."
    )
    summary_model = models.ForeignKey(
        "llm.Model",
        verbose_name="model that writes summaries",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Empty: the conversation's model.",
    )
    ceiling = models.PositiveIntegerField(
        "summarise above (the ceiling)",
        null=True,
        blank=True,
        help_text="In tokens. If this and the next number are empty, the shares apply.",
    )
    floor = models.PositiveIntegerField(
        "summarise down to (the floor)",
        null=True,
        blank=True,
        help_text="In tokens. If this and the previous number are empty, the shares apply.",
    )
    ceiling_share = share_field(
        "summarise above this share of the room (the ceiling)", "0.65", "0 to 1, of what a prompt may have."
    )
    floor_share = share_field(
        "summarise down to this share of the room (the floor)", "0.25", "0 to 1, of what a prompt may have."
    )
    keep_recent = models.PositiveIntegerField(
        "newest messages that stay word for word", default=8, help_text="The newest messages that no summary replaces."
    )
    effort = effort_field(help_text="For models that accept one, if neither the person nor the persona chooses.")
    max_cycles = models.PositiveSmallIntegerField(
        "model calls of one turn at most",
        default=6,
        validators=[MinValueValidator(1), MaxValueValidator(20)],
        help_text="1 to 20. The model may call tools after each step.",
    )
    run_max_steps = models.PositiveSmallIntegerField(
        "turns of one run at most",
        default=50,
        validators=[MinValueValidator(1), MaxValueValidator(1_000)],
        help_text="1 to 1,000. A run works through a task's checklist.",
    )
    run_max_tokens = models.PositiveIntegerField(
        "tokens of one run at most",
        default=500_000,
        validators=[MinValueValidator(1_000)],
        help_text="Tokens read and written. A run above the limit starts no other turn.",
    )
    run_max_minutes = models.PositiveSmallIntegerField(
        "minutes of work of one run at most",
        default=60,
        validators=[MinValueValidator(1), MaxValueValidator(1_440)],
        help_text="1 to 1,440. Time that a run waits for a person does not count.",
    )

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["default"], condition=Q(default=True), name="one_default_profile"),
            models.CheckConstraint(condition=Q(max_cycles__gte=1), name="profile_cycles_positive"),
            models.CheckConstraint(
                condition=Q(run_max_steps__gte=1, run_max_tokens__gte=1, run_max_minutes__gte=1),
                name="profile_run_caps_positive",
            ),
            models.CheckConstraint(
                condition=Q(window=None) | Q(window__gt=F("reserved_output") + F("buffer")),
                name="profile_window_has_room",
            ),
            models.CheckConstraint(
                condition=Q(ceiling=None) | Q(floor=None) | Q(floor__lt=F("ceiling")),
                name="profile_floor_below_ceiling",
            ),
            models.CheckConstraint(condition=Q(floor_share__lt=F("ceiling_share")), name="profile_floor_share_below"),
            models.CheckConstraint(
                condition=Q(safety_margin__lt=1) & Q(catch_all_margin__lt=1), name="profile_margins_leave_room"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Raise `ValidationError` with a sentence for each number that a constraint would refuse."""
        problems: dict[str, str] = {}
        reserved = (self.reserved_output or 0) + (self.buffer or 0)
        if self.window is not None and self.window <= reserved:
            problems["window"] = (
                f"The window must be above {reserved:,} tokens, which are kept free for the answer and against "
                "counting errors. Otherwise nothing is left for the prompt."
            )
        if (self.ceiling is None) != (self.floor is None):
            # With one number and one share, a large window could put the ceiling below the floor.
            problems["floor"] = "Enter both a ceiling and a floor, or neither."
        if self.ceiling is not None and self.floor is not None and self.floor >= self.ceiling:
            problems["floor"] = f"The floor must be below the ceiling ({self.ceiling:,}); summarising would never end."
        if self.ceiling is not None and self.window is not None and self.ceiling + self.reserved_output >= self.window:
            room = max(0, self.window - self.reserved_output)
            problems["ceiling"] = (
                "The ceiling and the tokens kept free for the answer must together stay below the window. Choose a "
                f"ceiling below {room:,}."
            )
        if self.floor_share >= self.ceiling_share:
            problems["floor_share"] = "The floor's share must be below the ceiling's share."
        for name in ("safety_margin", "catch_all_margin"):
            if getattr(self, name) >= 1:
                problems[name] = "A margin of the whole window leaves nothing; choose less than 1."
        if problems:
            raise ValidationError(problems)


class PersonaQuerySet(models.QuerySet["Persona"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "PersonaQuerySet":
        """Return the workspace's personas, the user's own, and those shared with the user or the user's groups."""
        shared = shared_with(user, Persona.objects.all(), "shares")
        return self.filter(Q(visibility=Persona.Visibility.WORKSPACE) | Q(owner_id=user.pk) | shared)

    def editable_by(self, user: AbstractBaseUser | AnonymousUser) -> "PersonaQuerySet":
        return self.filter(Q(owner_id=user.pk) | shared_with(user, Persona.objects.all(), "shares", EDITING))


class Persona(WithFace):
    class Visibility(models.TextChoices):
        PRIVATE = "private", _("Only me")
        WORKSPACE = "workspace", _("Everyone in the workspace")

    MAX_NAME = 100
    MAX_INSTRUCTIONS = 100_000  # characters
    MAX_STARTERS = 12
    MAX_STARTER = 300  # characters

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="personas"
    )
    name = models.CharField(max_length=MAX_NAME)
    description = models.CharField(max_length=300, blank=True)
    instructions = models.TextField(blank=True)
    replaces_system_prompt = models.BooleanField(
        default=False, help_text="Send these instructions instead of the system prompt."
    )
    model = models.ForeignKey("llm.Model", null=True, blank=True, on_delete=models.SET_NULL)
    budget_profile = models.ForeignKey(BudgetProfile, null=True, blank=True, on_delete=models.SET_NULL)
    effort = effort_field(help_text="For models that accept one, if the person does not choose.")
    tools = ArrayField(
        models.CharField(max_length=100),
        default=list,
        blank=True,
        help_text="web_search, open_url, tasks, or a tool of a server as server__tool; server__* for all its tools.",
    )
    reminders = models.ManyToManyField(Reminder, blank=True, related_name="personas")
    date_awareness = models.CharField(max_length=10, choices=DateAwareness, default=DateAwareness.DAY)
    memory = models.BooleanField(
        default=True,
        db_default=True,
        help_text="Whether its prompts have what is remembered about the person who asks.",
    )
    starter_messages = ArrayField(models.CharField(max_length=MAX_STARTER), default=list, blank=True)
    visibility = models.CharField(max_length=20, choices=Visibility, default=Visibility.PRIVATE)
    version = models.PositiveIntegerField(default=1, editable=False)
    tokens: "models.JSONField[Any, Any]" = models.JSONField(default=dict, editable=False)  # by tokenizer
    created = models.DateTimeField(auto_now_add=True)
    updated = models.DateTimeField(auto_now=True)

    objects = PersonaQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def token_count(self) -> int | None:
        """Return the tokens of the instructions by the catch-all tokenizer."""
        count: int | None = self.tokens.get(CATCH_ALL)
        return count

    @property
    def tag(self) -> str:
        """Return the entity tag. It changes with the version, and with every update of related rows."""
        return f"{self.version}-{int(self.updated.timestamp() * 1_000_000)}"

    @property
    def own_reminder(self) -> str:
        """Return the texts of the persona's own enabled reminders, without the reminders for every conversation."""
        own = (each for each in self.reminders.all() if each.scope == Reminder.Scope.PERSONA and each.enabled)
        return "\n".join(each.text for each in own)


class PersonaShare(Sharing):
    """Role of a user or a group in a persona.

    The `owner` of a persona has no row. `visibility` shares it with the whole workspace without rows. `username` is the
    name as the sharing user typed it. A name that no user has is stored as well, without a `user`, so that sharing does
    not reveal which user names exist.
    """

    MAX_USERNAME = 150  # as in Django's user model

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    persona = models.ForeignKey(Persona, on_delete=models.CASCADE, related_name="shares")
    username = models.CharField(max_length=MAX_USERNAME, blank=True)

    class Meta:
        ordering: ClassVar = ["created", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["persona", "user"], name="one_share_per_user"),
            models.UniqueConstraint(fields=["persona", "group"], name="one_share_per_group"),
            models.UniqueConstraint(
                fields=["persona", "username"], condition=~Q(username=""), name="one_share_per_username"
            ),
            models.CheckConstraint(
                condition=(Q(group=None) & ~Q(username="")) | (~Q(group=None) & Q(user=None, username="")),
                name="share_with_person_or_group",
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)

    @property
    def name(self) -> str:
        """Return the name of the group or user."""
        return self.group.name if self.group is not None else self.username
