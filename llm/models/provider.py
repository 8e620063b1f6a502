"""Providers, their models, web searches and tool servers, as an administrator sets them up.

The rows are authoritative. Known data about models only suggests values for them.
"""

import shlex
from decimal import Decimal
from typing import Any, ClassVar
from urllib.parse import urlsplit

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q, TextChoices, Value
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from core.crypto import EncryptedTextField
from core.faces import WithFace
from core.net.url_safety import is_http
from llm.providers import OPENAI_URL
from llm.types.model_call import Prices

# Maximum number of tools in one request, by kind of provider. OpenAI, Azure, Groq and others accept 128.
KNOWN_TOOL_LIMITS = {"openai": 128, "responses": 128}
UNKNOWN_WINDOW = 4096  # tokens of a model whose window is unknown; every model in use has as many


def validate_base_url(url: str) -> None:
    # Django's URLField refuses the address of another container, such as http://ollama:11434/v1.
    if not is_http(url):
        raise ValidationError(gettext("Begin with http:// or https:// and a host, as in http://127.0.0.1:11434/v1."))


class Provider(models.Model):
    """A server of models, with its address and key."""

    class Kind(TextChoices):
        OPENAI = "openai", "OpenAI or compatible (Chat Completions)"
        RESPONSES = "responses", "OpenAI or compatible (Responses)"
        ANTHROPIC = "anthropic", "Anthropic"
        OLLAMA = "ollama", "Ollama"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=Kind, default=Kind.OPENAI)
    base_url = models.CharField(
        "base URL",
        max_length=200,
        blank=True,
        validators=[validate_base_url],
        help_text="Empty: the provider's own address. For example http://127.0.0.1:8001/v1 for vLLM.",
    )
    api_key = EncryptedTextField("API key", blank=True, default="")
    enabled = models.BooleanField(default=True)
    silence_timeout = models.PositiveIntegerField(
        "longest silence",
        default=120,
        validators=[MinValueValidator(1)],
        help_text="Seconds without data from the provider after which an answer fails.",
    )
    max_tools = models.PositiveIntegerField(
        "most tools",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=(
            "Maximum number of tools in one request. Empty: 128 with OpenAI's protocols, no limit with the others."
        ),
    )
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def tool_limit(self) -> int | None:
        """Return how many tools one request may define, or None if no limit is known."""
        return self.max_tools or KNOWN_TOOL_LIMITS.get(self.kind)

    @property
    def protocol(self) -> str:
        """Return the protocol to speak.

        At OpenAI itself, reasoning models call tools only in the Responses protocol.
        """
        is_openai = urlsplit(self.base_url or OPENAI_URL).hostname == urlsplit(OPENAI_URL).hostname
        return str(self.Kind.RESPONSES if self.kind == self.Kind.OPENAI and is_openai else self.kind)

    @property
    def append_only(self) -> bool:
        """Return whether later calls of a turn must only add to the earlier ones.

        Anthropic's signature of a thought covers the whole prompt before it. The cache of OpenAI's newer models serves
        only a prefix that ends where an earlier call ended.
        """
        return self.protocol in (self.Kind.ANTHROPIC, self.Kind.RESPONSES)


class Effort(TextChoices):
    """Effort of reasoning before an answer, in the words of OpenAI's protocol. No model accepts all efforts."""

    NONE = "none", _("no reasoning")
    MINIMAL = "minimal", _("minimal")
    LOW = "low", _("low")
    MEDIUM = "medium", _("medium")
    HIGH = "high", _("high")
    XHIGH = "xhigh", _("very high")
    MAX = "max", _("maximal")


# The choice of `own_effort` to send no effort, instead of the least one.
UNSPECIFIED = "unsaid"
OWN_EFFORTS = [*Effort.choices, (UNSPECIFIED, _("not said"))]

# Efforts to offer for a reasoning model whose efforts are unknown.
DEFAULT_EFFORTS = (Effort.NONE.value, Effort.MEDIUM.value)
MAX_EFFORT_LENGTH = 10  # characters


def effort_field(*, help_text: str) -> "models.CharField[str, str]":
    """Return a field for an effort. Empty leaves the choice to the next level, see `TurnContext.effort`."""
    return models.CharField(
        "effort of reasoning",
        max_length=MAX_EFFORT_LENGTH,
        choices=Effort,
        blank=True,
        default="",
        help_text=help_text,
    )


class ModelQuerySet(models.QuerySet["Model"]):
    def usable(self) -> "ModelQuerySet":
        return self.filter(enabled=True, provider__enabled=True).select_related("provider")


def price_field(name: str, help_text: str) -> "models.DecimalField[Any, Any]":
    not_negative = MinValueValidator(Decimal(0))
    return models.DecimalField(
        name, max_digits=14, decimal_places=6, null=True, blank=True, validators=[not_negative], help_text=help_text
    )


class Model(WithFace):
    """One model of a provider. Windows and outputs are in tokens, prices in US dollars per million tokens.

    `token_ratio`: the tokens of prompts that the provider reports, divided by our count (`llm.services.learn_ratio`).
    Learnt limits are stored with their evidence (`llm.learning.Evidence`). An admin can delete them. `found`: the facts
    that the provider last reported (`llm.types.facts.ModelFacts`). The fields of the model follow these facts, except
    the fields that `set_by_hand` names. `learnt_on`: the day on which an answer proved a deviation, by its field.
    """

    class Tokenizer(TextChoices):
        CATCH_ALL = "", "Unknown (catch-all, with a safety margin)"
        O200K = "o200k_base", "o200k_base (GPT-4o and newer)"
        CL100K = "cl100k_base", "cl100k_base (GPT-4, GPT-3.5)"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="models")
    name = models.CharField(max_length=200, help_text="The provider's own name, such as gpt-5 or llama3.2:3b.")
    display_name = models.CharField(
        "name for people",
        max_length=100,
        blank=True,
        default="",
        db_default="",
        help_text="What people read instead of the provider's name. Empty: that name.",
    )
    description = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="What it is good for, in one sentence."
    )
    order = models.PositiveSmallIntegerField(
        "place in the list", default=100, db_default=100, help_text="Smaller numbers come first, then names."
    )
    hidden = models.BooleanField(
        "not offered to people",
        default=False,
        db_default=False,
        help_text="It is in no list of choices. Personas, programs and conversations that have it go on using it.",
    )
    context_window = models.PositiveIntegerField(
        "window",
        default=UNKNOWN_WINDOW,
        validators=[MinValueValidator(256)],
        help_text="In tokens: the room for prompt and answer together.",
    )
    max_output = models.PositiveIntegerField(
        "longest answer",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="In tokens; empty: the model's own limit, or the remaining room.",
    )
    learnt_window = models.PositiveIntegerField(
        null=True, blank=True, help_text="A window smaller than the configured one, proven by its server."
    )
    window_evidence: "models.JSONField[Any, Any]" = models.JSONField(default=dict, db_default={}, editable=False)
    max_images = models.PositiveSmallIntegerField(
        "most images",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="The maximum in one prompt. Older images are left out. Empty: no limit is known.",
    )
    learnt_max_images = models.PositiveSmallIntegerField(null=True, blank=True, editable=False)
    images_evidence: "models.JSONField[Any, Any]" = models.JSONField(default=dict, db_default={}, editable=False)
    tokenizer = models.CharField(max_length=20, choices=Tokenizer, blank=True, default=Tokenizer.CATCH_ALL)
    vision = models.BooleanField("sees images", default=False, help_text="It gets the pictures of messages.")
    tools = models.BooleanField("calls tools", default=False, help_text="It can call tools.")
    reasoning = models.BooleanField("reasons", default=False, help_text="It can reason before it answers.")
    efforts = ArrayField(
        models.CharField(max_length=MAX_EFFORT_LENGTH, choices=Effort),
        verbose_name="efforts of reasoning",
        default=list,
        blank=True,
        help_text=(
            "The efforts that its provider accepts. Empty: off and on for a model that reasons, otherwise no choice."
        ),
    )
    effort = effort_field(help_text="The effort without a choice; empty: the provider's default.")
    several_system_messages = models.BooleanField(
        "takes several system messages",
        default=True,
        help_text="Off: all system messages are joined into one at the start.",
    )
    # Deviations of its server from the protocol. The first comes from a trial call, the others from answers.
    written_calls = models.BooleanField(
        "writes tool calls as text",
        default=False,
        db_default=False,
        help_text="Tool calls in its text are run. “Test connection” detects this.",
    )
    whole_answers = models.BooleanField(
        "answers only whole",
        default=False,
        db_default=False,
        help_text="Its server does not stream, so an answer arrives in one piece.",
    )
    untagged_reasoning = models.BooleanField(
        "reasons without an opening tag",
        default=False,
        db_default=False,
        help_text="Its text begins with reasoning that ends with a closing tag, without an opening tag.",
    )
    own_effort = models.CharField(
        "effort for titles and summaries",
        max_length=MAX_EFFORT_LENGTH,
        choices=OWN_EFFORTS,
        blank=True,
        default="",
        db_default="",
        help_text="The effort for Glasshouse's own calls. Empty: the lowest that the model accepts.",
    )
    learnt_on: "models.JSONField[Any, Any]" = models.JSONField(default=dict, db_default={}, editable=False)
    fallback = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="The model to use if the provider of this one is down or over its limit.",
    )
    default = models.BooleanField(default=False)
    enabled = models.BooleanField(default=True)
    input_price = price_field("price of prompts", "Empty, here or for answers: calls have no cost.")
    output_price = price_field("price of answers", "Reasoning included.")
    cached_input_price = price_field("price of what the provider had in its cache", "Empty: the price of prompts.")
    cache_write_price = price_field("price of what it put into its cache", "Empty: the price of prompts.")
    token_ratio = models.FloatField(
        default=1.0, editable=False, validators=[MinValueValidator(0.5), MaxValueValidator(2.0)]
    )
    ratio_samples = models.PositiveIntegerField(default=0, editable=False)
    found = models.JSONField(default=dict, editable=False)
    found_at = models.DateTimeField("found", null=True, editable=False)
    set_by_hand = models.JSONField(default=list, editable=False)
    retires_on = models.DateField(null=True, editable=False)
    # Counts of its newest calls, see `llm.truncation.ReportedCounts`.
    reported_counts: "models.JSONField[Any, Any]" = models.JSONField(default=dict, db_default={}, editable=False)
    created = models.DateTimeField(auto_now_add=True)

    objects = ModelQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["provider__name", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["provider", "name"], name="model_name_once_per_provider"),
            models.UniqueConstraint(fields=["default"], condition=Q(default=True), name="one_default_model"),
            models.CheckConstraint(condition=Q(context_window__gte=256), name="model_window_usable"),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        self.efforts = [each for each in Effort.values if each in (self.efforts or ())]
        if self.effort and self.effort not in self.offered_efforts:
            raise ValidationError({"effort": "Choose one of the efforts that it takes, or leave it empty."})
        fallback = self.fallback
        visited = set()
        while fallback is not None and fallback.pk not in visited:
            if fallback.pk == self.pk:
                sentence = "A model cannot be its own fallback, directly or through others. Choose another model."
                raise ValidationError({"fallback": sentence})
            visited.add(fallback.pk)
            fallback = fallback.fallback

    @property
    def usable(self) -> bool:
        return self.enabled and self.provider.enabled

    @property
    def label(self) -> str:
        """Return the name that people read."""
        return self.display_name or self.name

    @property
    def face_name(self) -> str:
        return self.label

    @property
    def offered_efforts(self) -> list[str]:
        """Return the efforts of reasoning that can be chosen, from the least to the greatest."""
        accepted = self.efforts or (DEFAULT_EFFORTS if self.reasoning else ())
        return [each for each in Effort.values if each in accepted]

    @property
    def least_effort(self) -> str | None:
        """Return the effort for Glasshouse's own requests, such as titles and summaries; None to send no effort."""
        if self.own_effort:
            return None if self.own_effort == UNSPECIFIED else self.own_effort
        return next(iter(self.offered_efforts), None)

    @property
    def own_efforts(self) -> list[str | None]:
        """Return the efforts to try for Glasshouse's own requests: the least, the next, and no effort."""
        least = self.least_effort
        if least is None:
            return [None]
        order = [each.value for each in Effort]
        greater = [each for each in self.offered_efforts if order.index(each) > order.index(least)]
        return [least, *greater[:1], None]

    @property
    def window(self) -> int:
        """Return the window in force, in tokens: the smaller of the row's window and the learnt window."""
        return min(self.context_window, self.learnt_window or self.context_window)

    @property
    def image_limit(self) -> int | None:
        """Return the maximum number of images in one prompt: the smaller of the row's and the learnt one, or None."""
        limits = [limit for limit in (self.max_images, self.learnt_max_images) if limit is not None]
        return min(limits, default=None)

    @property
    def prices(self) -> Prices | None:
        """Return the prices, or None if prompts or answers have no price.

        A missing price of the cache is the price of prompts.
        """
        row_prices = (self.input_price, self.output_price, self.cached_input_price, self.cache_write_price)
        prompt, answer, cached, written = (price if price is not None and price >= 0 else None for price in row_prices)
        if prompt is None or answer is None:
            return None
        return Prices(prompt, answer, prompt if cached is None else cached, prompt if written is None else written)


class WebSearch(models.Model):
    """A service that searches the web. Answers search with the active service. Without one, they do not search."""

    class Kind(TextChoices):
        SEARXNG = "searxng", "SearXNG or compatible"
        BRAVE = "brave", "Brave Search"
        DUCKDUCKGO = "duckduckgo", "DuckDuckGo, without a key"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=Kind, default=Kind.SEARXNG)
    base_url = models.CharField(
        "base URL",
        max_length=200,
        blank=True,
        validators=[validate_base_url],
        help_text=(
            "For example http://searxng:8080, with JSON output enabled. Empty: the address of Brave or DuckDuckGo. "
            "DuckDuckGo refuses many queries from one address: for a company, use one of the others."
        ),
    )
    api_key = EncryptedTextField("API key", blank=True, default="")
    active = models.BooleanField(default=False, editable=False)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "web search"
        verbose_name_plural = "web search"
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["active"], condition=Q(active=True), name="one_active_web_search"),
            models.CheckConstraint(
                condition=~Q(kind="searxng", base_url=""),
                name="web_search_has_address",
                violation_error_message="SearXNG has no address of its own. Enter the base URL of your server.",
            ),
        ]

    def __str__(self) -> str:
        return self.name


def validate_command(command: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValidationError(gettext("A quotation mark is not closed.")) from error
    if not words:
        raise ValidationError(gettext("Name the program to start."))


class ToolServer(models.Model):
    """A server whose tools models may call: an MCP server, or one that an OpenAPI document describes."""

    class Kind(TextChoices):
        HTTP = "http", "Streamable HTTP"
        SSE = "sse", "HTTP with SSE (the older transport)"
        STDIO = "stdio", "A process of this machine (stdio)"
        OPENAPI = "openapi", "An API with an OpenAPI document"

    class Access(TextChoices):
        NONE = "none", "Nobody signs in"
        HEADER = "header", "The workspace, with the secret below"
        PERSON = "person", "Each person, at the server (OAuth)"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(
        max_length=24,
        unique=True,
        validators=[RegexValidator(r"^[A-Za-z0-9-]+\Z", "Use only letters without accents, digits and hyphens.")],
        help_text=(
            "Models see its tools as this name, two underscores and the tool's "
            "name. A persona names the tools that it may use."
        ),
    )
    kind = models.CharField(max_length=20, choices=Kind, default=Kind.HTTP)
    base_url = models.CharField(
        "URL",
        max_length=200,
        blank=True,
        validators=[validate_base_url],
        help_text=(
            "The address, such as https://tools.example/mcp; with SSE mostly https://tools.example/sse. "
            "For an API: the address that its paths follow; empty: the first server of its document."
        ),
    )
    command = models.CharField(
        max_length=500,
        blank=True,
        validators=[validate_command],
        help_text="A program and its arguments. It runs with the rights of the worker.",
    )
    access = models.CharField(
        "who signs in",
        max_length=10,
        choices=Access,
        default=Access.HEADER,
        db_default="header",
        help_text=(
            "With OAuth, each person signs in to the server once, and its tools act with this person's rights there."
        ),
    )
    secret_name = models.CharField(
        max_length=100,
        default="Authorization",
        validators=[RegexValidator(r"^[A-Za-z0-9_-]+\Z", "Use only letters, digits, hyphens and underscores.")],
        help_text="The HTTP header with the secret; for a process, the environment variable.",
    )
    api_key = EncryptedTextField("secret", blank=True, default="")
    client_id = models.CharField(
        "client ID",
        max_length=500,
        blank=True,
        default="",
        db_default="",
        help_text=(
            "Of the client that you made at the sign-in server; enter its secret below. Empty: Glasshouse registers "
            "itself there."
        ),
    )
    issuer = models.CharField(
        "issuer of the sign-in",
        max_length=200,
        blank=True,
        default="",
        db_default="",
        validators=[validate_base_url],
        help_text=(
            "The address of the sign-in server. Enter it with a client ID, if it is in a private network, or if the "
            "tool server does not name it."
        ),
    )
    scope = models.CharField(
        "permissions to ask for",
        max_length=500,
        blank=True,
        default="",
        db_default="",
        help_text="Scopes of OAuth with spaces between them. Empty: as the server wants.",
    )
    # The newest discovery of its sign-in, see `llm.oauth.values.StoredDiscovery`.
    sign_in: "models.JSONField[Any, Any]" = models.JSONField(null=True, editable=False)
    approval_required = models.BooleanField(
        "ask before each call",
        default=True,
        help_text=(
            "Each call of its tools waits until the owner of the conversation "
            "allows it. For tools that change or send something or cost money."
        ),
    )
    reaches_out = models.BooleanField(
        "reaches out",
        default=True,
        help_text=(
            "Its tools use the internet or an outside service. Projects with the web switched off do not offer them."
        ),
    )
    own_network = models.BooleanField(
        "in the own network",
        default=False,
        db_default=False,
        help_text="Requests to an API may go to private addresses, too. Off: to public addresses only.",
    )
    # Keys of operations of the OpenAPI document (`llm.tools.openapi.Operation.key`).
    operations: "models.JSONField[Any, Any]" = models.JSONField(
        "operations that are tools", default=list, db_default=Value([], models.JSONField()), blank=True
    )
    unasked: "models.JSONField[Any, Any]" = models.JSONField(
        "operations that may change something without asking",
        default=list,
        db_default=Value([], models.JSONField()),
        blank=True,
        help_text="If each call of the server asks, these ask, too.",
    )
    tools = models.JSONField(null=True, editable=False)  # the last listing, see `llm.tools.servers.StoredServerTool`
    # Problems of the same listing, see `llm.tools.mcp.StoredProblem`.
    problems: "models.JSONField[Any, Any]" = models.JSONField(
        default=list, db_default=Value([], models.JSONField()), editable=False
    )
    enabled = models.BooleanField(default=True)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "tool server"
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=~Q(kind__in=["http", "sse", "openapi"], base_url="") & ~Q(kind="stdio", command=""),
                name="tool_server_reachable",
                violation_error_message="Enter the URL of a server, or the command of a process.",
            ),
            models.CheckConstraint(
                condition=~Q(access="person", kind="stdio"),
                name="tool_server_sign_in_over_http",
                violation_error_message="People can sign in to servers only, not to a process. Choose another access.",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class OpenApiDocument(models.Model):
    """The OpenAPI document of a tool server.

    `content` is the document as JSON text. `operations` is a list of `llm.tools.openapi.OperationLine`, from which an
    admin chooses.
    """

    server = models.OneToOneField(ToolServer, on_delete=models.CASCADE, primary_key=True, related_name="document")
    title = models.CharField(max_length=400, blank=True)
    address = models.CharField(max_length=2_000, blank=True, help_text="Where it was fetched; empty if uploaded.")
    content = models.TextField()
    operations: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "OpenAPI document"

    def __str__(self) -> str:
        return self.title
