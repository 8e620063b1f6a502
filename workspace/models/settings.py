"""The settings of the workspace, which administrators edit.

Each process caches the row for one version of the workspace (`workspace.models.version`). The query for a session also
returns the version, so a signed-in person's page needs no query for the settings.
"""

import hashlib
import re
from functools import cached_property
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import DatabaseError, InterfaceError, models
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from core.sentences import Sentence
from workspace.models import colours
from workspace.models.version import VersionedCache

DOMAIN = re.compile(r"([\w-]+\.)+[\w-]+")


# The messages that a new workspace suggests.
SUGGESTIONS = (
    _("Explain in three sentences what a language model can do, and what it cannot."),
    _("Summarise this text in five points:"),
    _("Write a friendly reply to this message:"),
    _("Make a plan for a project of four weeks, as a table."),
)


class DateAwareness(models.TextChoices):
    DAY = "day", _("The day")
    MINUTE = "minute", _("Day and time to the minute")
    OFF = "off", _("No date")


def all_languages() -> list[str]:
    return [code for code, _name in settings.LANGUAGES]


def days(name: Any, most: int, least: int = 1, **options: Any) -> "models.PositiveSmallIntegerField[int, int]":
    validators = [MinValueValidator(least), MaxValueValidator(most)]
    return models.PositiveSmallIntegerField(name, validators=validators, **options)


class Workspace(models.Model):
    """The settings, in one row. Without the row the defaults apply.

    `logo`: a PNG from `workspace.services`, or empty. `setup`: the first administrator's progress with the setup
    (`workspace.setup`).
    """

    ONLY = 1  # the id of the row
    MAX_NAME = 60  # characters
    MAX_NOTICE = 500  # characters
    MAX_ABOUT = 200  # characters
    MAX_SUGGESTIONS = 4
    MAX_SUGGESTION = 200  # characters
    MAX_ANSWERING = 1_500  # characters

    class SecondFactor(models.TextChoices):
        NOBODY = "nobody", _("Nobody has to have one")
        ADMINISTRATORS = "administrators", _("Administrators have to have one")
        EVERYBODY = "everybody", _("Everybody has to have one")

    class Setup(models.TextChoices):
        NEW = "new", "Not begun"
        OPEN = "open", "Begun"
        DONE = "done", "Done or dismissed"

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY, editable=False)
    name = models.CharField(
        "name",
        max_length=MAX_NAME,
        default="Glasshouse",
        help_text="Shown in the sidebar, on the sign-in page, in page titles and in the admin.",
    )
    logo = models.BinaryField(default=bytes, editable=False)
    accent = models.CharField(
        "accent colour",
        max_length=7,
        blank=True,
        help_text=(
            "The colour of buttons and links, such as #0f6b5c; empty: the default. "
            "It must be readable on light pages. The colour for dark pages and the "
            "tints are derived from it."
        ),
    )
    notice = models.TextField(
        "notice at the foot of pages",
        blank=True,
        max_length=MAX_NOTICE,
        help_text="At most 500 characters; addresses become links. Also on the sign-in page and on shared pages.",
    )
    about = models.CharField(
        "what it is for",
        max_length=MAX_ABOUT,
        blank=True,
        default="",
        db_default="",
        help_text="One sentence on the sign-in page and above a person's first message. Empty: a general one.",
    )
    suggestions = models.TextField(
        "suggestions on the empty page",
        blank=True,
        default="",
        db_default="",
        max_length=MAX_SUGGESTIONS * (MAX_SUGGESTION + 2),
        help_text="Messages that a click writes into the field, one a line, at most four. Empty: general ones.",
    )
    languages = ArrayField(
        models.CharField(max_length=10),
        verbose_name="languages offered",
        default=all_languages,
        help_text="The languages that people can choose, and that pages use if a browser asks for them.",
    )
    default_language = models.CharField(
        "default language",
        max_length=10,
        choices=settings.LANGUAGES,
        default="en",
        help_text="The language if the person has not chosen one and the browser asks for none of these.",
    )
    date_awareness = models.CharField(
        "date in prompts without a persona",
        max_length=10,
        choices=DateAwareness,
        default=DateAwareness.DAY,
        help_text="What the model learns about the time of a message. Personas have their own setting.",
    )
    task_tools = models.BooleanField(
        "task tools without a persona",
        default=False,
        help_text=(
            "Models that call tools may list, create and mark the person's tasks. Personas have their own setting."
        ),
    )
    today_tasks = models.BooleanField(
        "today's tasks in prompts",
        default=True,
        help_text="Each prompt lists the person's tasks of the day. Off: only tasks that the person mentions with @ID.",
    )
    search_approval = models.BooleanField(
        "ask before each web search",
        default=False,
        db_default=False,
        help_text=(
            "A model's web search waits until the owner of the conversation allows "
            "it. Off: people decide in their settings. The search terms are sent to "
            "the search service."
        ),
    )
    memory = models.BooleanField(
        "memory",
        default=True,
        db_default=True,
        help_text=(
            "People may write a profile for the models, and models may propose facts about people who allow it. Off: "
            "nothing of it is sent, and nothing new is stored."
        ),
    )
    memory_unasked = models.BooleanField(
        "facts kept without asking",
        default=False,
        db_default=False,
        help_text="People may choose that facts which a model proposes are kept without asking them.",
    )
    memory_answering = models.TextField(
        "how models should answer by default",
        blank=True,
        default="",
        db_default="",
        max_length=MAX_ANSWERING,
        help_text="For people who have not written how models should answer them. At most 1,500 characters.",
    )
    memory_days = days(
        "days that facts are kept",
        3650,
        least=0,
        default=0,
        db_default=0,
        help_text=(
            "Days after a fact was last used; 0 is for ever. Then it is forgotten, unless it or its person is under a "
            "legal hold."
        ),
    )
    citation_model = models.ForeignKey(
        "llm.Model",
        verbose_name="model that checks citations",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text=(
            "Empty: only rules check citations. The model is called once for each "
            "answer with citations. It says for each sentence whether the cited "
            "passage supports it, and the answer ends after that."
        ),
    )
    sharing = models.BooleanField(
        "links to conversations",
        default=True,
        help_text=(
            "Whether people may share conversations by link. Off: existing links do not work until it is on again."
        ),
    )
    session_days = days(
        "days until a browser is signed out",
        365,
        default=14,
        help_text="1 to 365 days without use. It applies to a browser from its next visit on.",
    )
    session_most_days = days(
        "days until a browser is signed out, used or not",
        3650,
        default=90,
        db_default=90,
        help_text="1 to 3650 days after the sign-in. It applies to a browser from its next visit on.",
    )
    password_length = models.PositiveSmallIntegerField(
        "least length of a password",
        default=10,
        validators=[MinValueValidator(8), MaxValueValidator(64)],
        help_text="8 to 64 characters, for new passwords.",
    )
    sign_up = models.BooleanField(
        "people sign up by themselves",
        default=False,
        db_default=False,
        help_text="With a confirmed e-mail address. It needs the setting EMAIL_URL of the installation.",
    )
    sign_up_domains = models.CharField(
        "domains of those who sign up",
        max_length=500,
        blank=True,
        default="",
        db_default="",
        help_text="Domains such as example.org, separated by commas. Other domains are refused. Empty: all domains.",
    )
    second_factor = models.CharField(
        "second factor",
        max_length=20,
        choices=SecondFactor,
        default=SecondFactor.NOBODY,
        db_default=SecondFactor.NOBODY,
        help_text=(
            "People who need a second factor and have none can open only the page to set it up. API tokens still work."
        ),
    )
    api_conversation_days = days(
        "days that requests of programs are kept",
        3650,
        least=0,
        null=True,
        blank=True,
        help_text=(
            "Days for conversations of programs in the OpenAI protocol, with their "
            "images; 0 is for ever. Empty: the setting API_CONVERSATION_DAYS of the "
            "installation."
        ),
    )
    page_reader = models.ForeignKey(
        "llm.Model",
        verbose_name="model that reads scans",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=(
            "Reads scanned pages instead of Tesseract. It must see images. Each "
            "page is a model call of the file's owner. If it fails, Tesseract reads "
            "the page if it is installed."
        ),
    )
    conversation_days = days(
        "days that conversations are kept",
        3650,
        least=0,
        default=0,
        db_default=0,
        help_text=(
            "Days after the last message; 0 is for ever. Then conversations are "
            "erased, with files that nothing else uses, unless they or their owner "
            "are under a legal hold."
        ),
    )
    setup = models.CharField(max_length=10, choices=Setup, default=Setup.NEW, editable=False)

    class Meta:
        app_label = "accounts"
        verbose_name = "workspace settings"
        verbose_name_plural = "workspace settings"
        constraints: ClassVar = [models.CheckConstraint(condition=Q(id=1), name="one_workspace")]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        problems: dict[str, str] = {}
        self.accent = self.accent.lower()
        if self.accent and not colours.HEX.fullmatch(self.accent):
            problems["accent"] = gettext("Write a colour as # and six digits, such as #0f6b5c, or leave it empty.")
        elif self.accent and (contrast := colours.least_contrast(self.accent)) < colours.READABLE:
            nearest = colours.darken_to_readable(self.accent)
            unreadable = Sentence(
                "{accent} can hardly be read on light pages: its contrast is {found} to 1, and 4.5 is "
                "needed. The nearest colour that can is {nearest}.",
                accent=self.accent,
                found=f"{contrast:.1f}",
                nearest=nearest,
            )
            problems["accent"] = str(unreadable)
        lines = [line for each in self.suggestions.splitlines() if (line := each.strip())]
        self.suggestions = "\n".join(lines)
        if len(lines) > self.MAX_SUGGESTIONS or any(len(line) > self.MAX_SUGGESTION for line in lines):
            problems["suggestions"] = gettext("Write at most four lines of at most 200 characters each.")
        self.languages = [code for code in all_languages() if code in self.languages]
        if not self.languages:
            problems["languages"] = gettext("Offer at least one language.")
        elif self.default_language not in self.languages:
            problems["default_language"] = gettext("The default language must be among those that are offered.")
        if self.page_reader is not None and not self.page_reader.vision:
            problems["page_reader"] = gettext("Choose a model that sees images.")
        if self.sign_up and not settings.EMAIL_URL:
            problems["sign_up"] = gettext("Set EMAIL_URL first: new people confirm their address by mail.")
        if any(not DOMAIN.fullmatch(each) for each in self.sign_up_domain_names):
            problems["sign_up_domains"] = gettext("Write domains such as example.org, separated by commas.")
        if problems:
            raise ValidationError(problems)

    @property
    def purpose(self) -> str:
        """Return the sentence that says what the workspace is for."""
        return self.about or gettext("Ask AI models here, and see what each of them reads before it answers.")

    @property
    def suggested_messages(self) -> list[str]:
        """Return the messages that the empty page suggests, the product's own in the reader's language by default."""
        return self.suggestions.splitlines() or [str(each) for each in SUGGESTIONS]

    @property
    def sign_up_domain_names(self) -> list[str]:
        return [each.strip().lower() for each in self.sign_up_domains.split(",") if each.strip()]

    @property
    def offered_languages(self) -> list[tuple[str, str]]:
        """Return the codes and names of the offered languages. Each name is in its own language."""
        return [(code, name) for code, name in settings.LANGUAGES if code in self.languages]

    @cached_property
    def colours(self) -> colours.Accent | None:
        """Return the colours of the accent; None if the product's own apply."""
        return colours.accent(self.accent) if self.accent else None

    @cached_property
    def logo_name(self) -> str:
        """Return a name from the hash of the logo, so that browsers may cache it forever; empty without a logo."""
        return hashlib.sha256(bytes(self.logo)).hexdigest()[:32] if self.logo else ""


def _read() -> Workspace:
    return Workspace.objects.first() or Workspace()


_cache = VersionedCache(_read)


def workspace_at(version: UUID | None = None) -> Workspace:
    """Return the settings of this version or a later one. Without a version, a query reads it.

    Do not change the row, since other requests share it.
    """
    return _cache.get(version)


def workspace_of(request: HttpRequest) -> Workspace:
    """Return the settings for a page. While the database is unavailable, return the settings that were read last."""
    workspace: Workspace | None = getattr(request, "workspace", None)
    if workspace is None:
        try:
            workspace = workspace_at(version_of(request))
        except (DatabaseError, InterfaceError):
            workspace = workspace_as_last_read()
        request.workspace = workspace  # type: ignore[attr-defined]  # so that a page uses the same settings throughout
    return workspace


def workspace_as_last_read() -> Workspace:
    """Return the settings that this process read last, without a query."""
    return _cache.last or Workspace()


def version_of(request: HttpRequest) -> UUID | None:
    """Return the version of the workspace that came with the session; None if there is no session or no version."""
    session = getattr(request, "session", None)
    if session is None:
        return None
    session.get(SESSION_KEY)  # the session is loaded when a key is read
    version: UUID | None = getattr(session, "workspace_version", None)
    return version
