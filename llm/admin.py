"""Register the admin's pages for providers, models and the services that tools use."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, ClassVar, cast

from django.contrib import admin, messages
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.decorators import method_decorator
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext, gettext_lazy
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from unfold.widgets import UnfoldAdminTextInputWidget

from core import i18n
from core.admin import Confirmation, OneActiveAdmin, RowAdmin, acting_user, button, confirmation_button, display
from core.crypto import secret_state
from core.errors import ModelError, ProductError
from core.net.site import site_origin
from core.sentences import Sentence
from llm import learning, model_facts, services
from llm.forms import (
    FLAG_FIELDS,
    OPERATION_FIELDS,
    PRICE_FIELDS,
    ModelForm,
    ProviderForm,
    ToolServerForm,
    WebSearchForm,
)
from llm.known_models import SOURCE
from llm.model_facts import describe_values, is_retiring_soon
from llm.models import UNKNOWN_WINDOW, Model, OpenApiDocument, Provider, ToolGrant, ToolServer, WebAccess, WebSearch
from llm.oauth import grants
from llm.oauth.grants import NO_GRANTS
from llm.oauth.values import StoredDiscovery
from llm.tokens import CATCH_ALL
from llm.tools import services as tools
from llm.truncation import ReportedCounts, Script
from llm.types.facts import ModelFacts, ModelValues

NAME_REQUIRED = gettext_lazy("Choose a provider and type a name.")
MAX_NAMES = 100  # tool names in one message


class KeyedAdmin(RowAdmin):
    """Base of pages of rows with a write-only key. `general`: the fields that are not secret."""

    general: tuple[str, ...] = ()
    readonly_fields: ClassVar[Any] = ("key_state",)
    actions_detail: Any = ()  # redeclared, since Unfold annotates it as an empty tuple

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the general fields and the fields of the key.

        Users who may not change the row see only whether a key is stored. Others can also remove a stored key.
        """
        # A new row has no values to show before it is stored.
        general = (None, {"fields": [name for name in self.general if obj or name not in self.readonly_fields]})
        if obj and not self.has_change_permission(request, obj):
            return (general, (_("Secret"), {"fields": ("key_state",)}))
        removable = ("clear_api_key",) if obj and secret_state(obj.api_key) != "none" else ()
        return (general, (_("Secret"), {"fields": ("new_api_key", *removable)}))

    @method_decorator(sensitive_post_parameters("new_api_key"))
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().changeform_view(request, *args, **kwargs)

    @display(description="Secret", label={"stored": "success", "lost": "danger", "none": "info"})
    def key_state(self, row: Any) -> str:
        return secret_state(row.api_key)


@admin.register(Provider)
class ProviderAdmin(KeyedAdmin):
    kind = "provider"
    form = ProviderForm
    list_display = ("name", "kind", "address", "key_state", "enabled", "model_count")
    list_filter = ("kind", "enabled")
    search_fields = ("name", "base_url")
    actions = ("test_selected",)
    actions_detail = ("test",)
    readonly_fields = ("provider_models", "key_state")
    general = ("name", "kind", "base_url", "enabled", "silence_timeout", "max_tools")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Provider]:
        rows: QuerySet[Provider] = super().get_queryset(request)
        return rows.annotate(number_of_models=Count("models"))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        return (*fieldsets, (_("Models"), {"fields": ("provider_models",)})) if obj else fieldsets

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.save_provider_form(user=acting_user(request), provider=obj, api_key=form.api_key)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: Any = None) -> HttpResponse:
        return self._redirect_to_empty_provider(request, obj) or super().response_add(request, obj, post_url_continue)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        return self._redirect_to_empty_provider(request, obj) or super().response_change(request, obj)

    def _redirect_to_empty_provider(self, request: HttpRequest, provider: Provider) -> HttpResponse | None:
        """Redirect to the page of a provider without models, which has the button to find models.

        None if it has models.
        """
        if provider.models.exists() or not self.has_change_permission(request, provider):
            return None
        sentence = Sentence(
            "“{provider}” is saved, and has no models yet. Test the connection to choose from its models.",
            provider=str(provider),
        )
        self.message_user(request, sentence, messages.WARNING)
        return HttpResponseRedirect(reverse("admin:llm_provider_change", args=[provider.pk]))

    @display(description="Address")
    def address(self, provider: Provider) -> str:
        return provider.base_url or _("the provider's own")

    @display(description="API key", label={"stored": "success", "lost": "danger", "none": "warning"})
    def key_state(self, provider: Provider) -> str:
        return secret_state(provider.api_key)

    @display(description="Models", ordering="number_of_models")
    def model_count(self, provider: Provider) -> SafeString:
        url = reverse("admin:llm_model_changelist") + f"?provider__id__exact={provider.pk}"
        return format_html('<a href="{}">{}</a>', url, getattr(provider, "number_of_models", 0))

    @display(description="Models")
    def provider_models(self, provider: Provider) -> str:
        context = {"provider": provider, "models": provider.models.order_by("name")}
        return render_to_string("admin/llm/provider/models.html", context)

    @admin.action(description="Test the connection", permissions=["change"])
    def test_selected(self, request: HttpRequest, providers: QuerySet[Provider]) -> None:
        for provider in providers:
            try:
                offered = services.test_connection(provider=provider)
            except ModelError as error:
                self.message_user(request, error.sentence.about(provider), messages.ERROR)
            else:
                self.message_user(
                    request,
                    Sentence(
                        "{provider} answers and offers {offered} models.", provider=str(provider), offered=len(offered)
                    ),
                    messages.SUCCESS,
                )

    @button("Test connection", icon="network_check")
    def test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the models that the provider offers, with their facts. A POST adds the chosen ones."""
        provider = self.row(request, object_id)
        if request.method == "POST":
            return self._add_models(request, provider)
        offered: list[str] = []
        failure: ModelError | None = None
        facts: dict[str, ModelFacts] = {}
        try:
            offered = services.test_connection(provider=provider)
            facts = model_facts.ask_provider(provider, offered).facts
        except ModelError as error:
            failure = error
        context = {
            **self.admin_site.each_context(request),
            "title": _("Connection test of %(name)s") % {"name": provider},
            "opts": self.opts,
            "provider": provider,
            "failure": failure,
            "source": SOURCE,
            "offered": offered,
            "rows": _tested_models(provider, offered, facts),
        }
        return TemplateResponse(request, "admin/llm/provider/test.html", context)

    def _add_models(self, request: HttpRequest, provider: Provider) -> HttpResponse:
        if not request.user.has_perm("llm.add_model"):
            raise PermissionDenied
        names = request.POST.getlist("model")
        for name in names:
            services.upsert_model(user=acting_user(request), provider=provider, name=name)
        if names:
            added = ", ".join(names)
            self.message_user(request, Sentence("Added {added}.", added=added))
        read = model_facts.update_models(provider, try_tools=True)
        if not (names or read):
            self.message_user(
                request,
                Sentence("No model was chosen, and the provider reported no facts about the added models."),
            )
        for model in read:
            words = describe_values(services.known_values(model)) or _("no facts that Glasshouse can read")
            self.message_user(request, f"{model}: {words}.")  # all its parts are already translated
        return HttpResponseRedirect(reverse("admin:llm_provider_change", args=[provider.pk]))


@dataclass(frozen=True, slots=True)
class TestedModel:
    """A model on the page of a connection test.

    `row`: its row, or None if it is not added. `reported`: the provider reported facts. `words`: its known values.
    `differing`: other values that an admin has set. `can_chat`: it is for conversations.
    """

    name: str
    row: Model | None
    offered: bool
    reported: bool
    words: str
    differing: str
    window: int | None
    can_chat: bool


def _tested_models(provider: Provider, offered: list[str], facts: dict[str, ModelFacts]) -> list[TestedModel]:
    """Return the offered and the added models, sorted by name."""
    added = {model.name: model for model in provider.models.all()}
    tested = []
    for name in sorted({*offered, *added}):
        reported = facts.get(name, ModelFacts())
        described = Model(provider=provider, name=name, found=reported)
        values = services.known_values(described)
        row = added.get(name)
        set_by_hand = {field: getattr(row, field) for field in (row.set_by_hand if row else ())}
        differing = {field: value for field, value in set_by_hand.items() if values.get(field, value) != value}
        tested.append(
            TestedModel(
                name=name,
                row=row,
                offered=name in offered,
                reported=bool(reported),
                words=describe_values(values),
                differing=describe_values(cast("ModelValues", differing)),
                window=values.get("context_window"),
                can_chat=services.is_chat_model(described),
            )
        )
    return tested


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, date):
        return date_format(value)
    return "–" if value is None else f"{value:,f}" if isinstance(value, Decimal) else f"{value:,}"


def render_suggestion(model: Model) -> str:
    """Return a fragment of the form with the known values of a model and their source."""
    known_values = services.known_values(model)
    source = _("its provider") if model.found else SOURCE
    context = {
        "model": model,
        "known": known_values,
        "words": describe_values(known_values),
        "source": source,
        "window": UNKNOWN_WINDOW,
    }
    return render_to_string("admin/llm/model/suggestion.html", context)


DEVIATION_TEXTS = {  # sentences about learnt deviations, by the field; see `llm.services.learn_fact`
    "whole_answers": gettext_lazy("It refused to stream on %(day)s."),
    "untagged_reasoning": gettext_lazy("Its reasoning came without an opening tag on %(day)s."),
    "own_effort": gettext_lazy("It refused the least effort of reasoning on %(day)s, and accepted this one."),
}
DISPLAY_FIELDS = ("display_name", "description", "icon", "colour", "order", "hidden")
LIMITS_IN_FORCE = ("window_in_force", "images_in_force")
USAGE_FIELDS = ("is_default", "token_counting", "read_shares", "measured_ratio", "ratio_samples")
# Columns of the list that are left out if no row has a value for this field. Then the list fits its page.
OPTIONAL_COLUMNS = {"retirement": "retires_on", "fallback": "fallback"}
SOURCE_LABELS = {  # labels for windows that are not learnt, by `llm.learning.window_source`
    "typed": gettext_lazy("typed"),
    "server": gettext_lazy("served"),
    "known": gettext_lazy("known"),
    "default": gettext_lazy("assumed"),
}
SCRIPT_LABELS: dict[Script, Any] = {
    "latin": gettext_lazy("Latin"),
    "cjk": gettext_lazy("Chinese, Japanese and Korean"),
    "other": gettext_lazy("other scripts, digits and symbols"),
}


@admin.register(Model)
class ModelRowAdmin(RowAdmin):
    empty_words = "No models yet. Add a provider first, then choose its models."
    kind = "model"
    form = ModelForm
    list_display = ("name", "is_default", "provider", "window", "abilities", "prices", "enabled", *OPTIONAL_COLUMNS)
    list_filter = ("provider", "enabled", "hidden")
    list_select_related = ("provider", "fallback")
    autocomplete_fields = ("fallback",)
    search_fields = ("name", "display_name", "provider__name")
    actions_detail = ("make_default", "take_found", "test_reading", "forget_learnt")
    readonly_fields = ("known", "reported_facts", "learnt_deviations", *LIMITS_IN_FORCE, *USAGE_FIELDS)
    fieldsets = (
        (None, {"fields": ("provider", "name", "known", "enabled", "fallback")}),
        ("For people", {"fields": DISPLAY_FIELDS}),
        ("Limits", {"fields": ("context_window", "max_output", "max_images", *LIMITS_IN_FORCE, "tokenizer")}),
        ("Abilities", {"fields": ("vision", "tools", "reasoning", "several_system_messages")}),
        ("Reasoning", {"fields": ("efforts", "effort", "own_effort")}),
        (
            "Deviations of its server",
            {"fields": ("written_calls", "whole_answers", "untagged_reasoning", "learnt_deviations")},
        ),
        ("Price in US dollars per million tokens", {"fields": PRICE_FIELDS}),
        ("Reported by the provider", {"fields": ("reported_facts",)}),
        ("In use", {"fields": USAGE_FIELDS}),
    )

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Return the columns, without those for which no row has a value."""
        missing = {
            column for column, field in OPTIONAL_COLUMNS.items() if not Model.objects.exclude(**{field: None}).exists()
        }
        return [column for column in super().get_list_display(request) if column not in missing]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj:
            return self.fieldsets
        # A new row has no values in force yet.
        return [
            (title, {"fields": [name for name in options["fields"] if name not in LIMITS_IN_FORCE]})
            for title, options in self.fieldsets[:-2]
        ]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        if obj is None and "name" in form.base_fields:
            attributes = {
                "hx-get": reverse("admin:llm_model_suggestion"),
                "hx-include": "#id_provider",
                "hx-trigger": "input changed delay:300ms, change from:#id_provider",
                "hx-target": "#suggestion",
            }
            form.base_fields["name"].widget = UnfoldAdminTextInputWidget(attrs=attributes)
        return form

    def get_custom_urls(self) -> Any:
        return (("suggestion/", "llm_model_suggestion", self.suggestion_view),)

    def suggestion_view(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Return the suggestion for the typed name, as a fragment of the form."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        provider_id = request.GET.get("provider", "")
        providers = {str(provider.pk): provider for provider in Provider.objects.all()}
        name = request.GET.get("name", "").strip()
        if provider_id not in providers or not name:
            return HttpResponse(NAME_REQUIRED)
        return HttpResponse(render_suggestion(Model(provider=providers[provider_id], name=name)))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        left_empty = form.left_empty
        services.save_model_form(user=acting_user(request), model=obj, typed=form.typed, left_empty=left_empty)
        if not change and model_facts.update_models(obj.provider, names=[obj.name], try_tools=True):
            obj.refresh_from_db()
        filled = services.select_values(services.known_values(obj), left_empty)
        if filled:
            source = _("its provider") if obj.found else SOURCE
            words = describe_values(filled)
            self.message_user(
                request,
                Sentence("{obj}: {words}, from {source}. Correct wrong values.", obj=obj, words=words, source=source),
            )
        if "context_window" in left_empty and "context_window" not in filled:
            warning = Sentence(
                "{obj}: its window is not known, so it is {unknown_window} tokens until you enter the real one.",
                obj=obj,
                unknown_window=UNKNOWN_WINDOW,
            )
            self.message_user(request, warning, messages.WARNING)

    @display(description="Known values")
    def known(self, model: Model) -> str:
        content = render_suggestion(model) if model.provider_id else NAME_REQUIRED
        return format_html('<div id="suggestion" aria-live="polite">{}</div>', content)

    @display(description="Reported")
    def reported_facts(self, model: Model) -> str:
        labels = {field.name: field.verbose_name for field in model._meta.fields}
        rows = [
            {
                "label": labels[name],
                "reported": _format_value(value),
                "used": _format_value(getattr(model, name)),
                "by_hand": name in model.set_by_hand,
            }
            for name, value in services.reported_values(model).items()
            if value is not None
        ]
        return render_to_string("admin/llm/model/found.html", {"model": model, "rows": rows})

    @display(description="Learnt from its answers")
    def learnt_deviations(self, model: Model) -> str:
        if not model.learnt_on:
            return _("Nothing.")
        return " ".join(
            str(DEVIATION_TEXTS[name]) % {"day": date_format(date.fromisoformat(day))}
            for name, day in model.learnt_on.items()
            if name in DEVIATION_TEXTS
        )

    @display(description="Token counts")
    def token_counting(self, model: Model) -> str:
        if model.tokenizer:
            return str(Sentence("Exact, by the tokenizer {tokenizer}.", tokenizer=model.tokenizer))
        return str(
            Sentence(
                "Estimated with {catch_all}. Near the window, the provider's own count is used if there is one.",
                catch_all=CATCH_ALL,
            )
        )

    @display(description="Tokens that its provider reports")
    def read_shares(self, model: Model) -> str:
        counts = ReportedCounts.from_json(model.reported_counts)
        lines = []
        for script, label in SCRIPT_LABELS.items():
            shares = [read / counted for counted, read in counts.scripts.get(script, ()) if counted]
            if shares:
                numbers = {"least": f"{min(shares):.2f}", "most": f"{max(shares):.2f}", "count": len(shares)}
                lines.append(f"{label}: " + _("%(least)s to %(most)s, in %(count)s prompts") % numbers)
        if not lines:
            return gettext("Nothing yet, since the model has not answered a prompt with only text.")
        return _("Per token of our own count, by script. %(lines)s.") % {"lines": "; ".join(lines)}

    @display(description="Window in force")
    def window_in_force(self, model: Model) -> str:
        tokens = _("%(number)s tokens") % {"number": i18n.grouped(model.window)}
        return f"{tokens}, {learning.describe_window_source(model)}"

    @display(description="Image limit in force")
    def images_in_force(self, model: Model) -> str:
        if model.image_limit is None:
            return _("no limit is known")
        learnt = model.learnt_max_images == model.image_limit
        evidence = learning.describe_evidence(learning.Evidence.from_json(model.images_evidence)) if learnt else ""
        return ", ".join(filter(None, [i18n.grouped(model.image_limit), evidence]))

    @display(description="Retires", ordering="retires_on", label={"soon": "danger", "planned": "warning"})
    def retirement(self, model: Model) -> tuple[str, str] | None:
        if model.retires_on is None:
            return None
        words = _("retires on %(day)s") % {"day": date_format(model.retires_on)}
        return "soon" if is_retiring_soon(model) else "planned", words

    @display(description="Window", ordering="context_window")
    def window(self, model: Model) -> SafeString:
        """Return the window in force, with a label of its source. The tooltip explains the source."""
        source = SOURCE_LABELS.get(learning.window_source(model), _("learnt"))
        explanation = learning.describe_window_source(model)
        return format_html('<span title="{}">{} ({})</span>', explanation, i18n.grouped(model.window), source)

    @display(description="Token ratio")
    def measured_ratio(self, model: Model) -> str:
        return f"{model.token_ratio:.2f}"

    @display(description="Abilities")
    def abilities(self, model: Model) -> str:
        names = [_(name) for name in ("vision", "tools", "reasoning") if getattr(model, name)]
        return ", ".join(names) or _("text only")

    @display(description="$ per million in / out")
    def prices(self, model: Model) -> str:
        texts = ["–" if price is None else f"{price:.2f}" for price in (model.input_price, model.output_price)]
        return " / ".join(texts)

    @display(description="Default", ordering="default", label={"default": "success"})
    def is_default(self, model: Model) -> str | None:
        return "default" if model.default else None

    @confirmation_button(
        "Make default",
        icon="check_circle",
        ask="Make this the workspace's default model?",
        explain="It answers if neither the person nor the persona chooses another model.",
    )
    def make_default(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        model = self.row(request, object_id)
        services.set_default_model(user=acting_user(request), model=model)
        return self.back(request, model, Sentence("{model} is now the default model.", model=model))

    @confirmation_button(
        "Use reported values",
        icon="sync",
        ask="Use the values that the provider reported for this model?",
        explain="They replace the values that an admin has set. Later reports of the provider replace them again.",
    )
    def take_found(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        model = self.row(request, object_id)
        model_facts.use_reported_values(user=acting_user(request), model=model)
        return self.back(request, model, Sentence("{model} now has the values that its provider reports.", model=model))

    @confirmation_button(
        "Test reading",
        icon="network_check",
        ask="Ask this model for a word from the beginning of a long prompt?",
        explain="Glasshouse sends a prompt that nearly fills the window, which may cost money. A server that cuts "
        "prompts cannot know the word. The test changes nothing.",
    )
    def test_reading(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        model = self.row(request, object_id)
        try:
            result = model_facts.test_reading(model)
        except ProductError as error:
            return self.back(request, model, error.sentence.about(model), messages.ERROR)
        return self.back(request, model, f"{model}: {result.sentence}", result.level)

    @confirmation_button(
        "Reset learnt facts",
        icon="restart_alt",
        ask="Reset the learnt facts of this model?",
        explain="The window and the image limit of this page then apply. Glasshouse learns again from later answers: "
        "whether the server streams, how the reasoning begins, and the effort for titles.",
    )
    def forget_learnt(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        model = self.row(request, object_id)
        learning.forget_learnt(user=acting_user(request), model=model)
        return self.back(request, model, Sentence("The learnt facts of {model} are reset.", model=model))


@admin.register(WebSearch)
class WebSearchAdmin(OneActiveAdmin, KeyedAdmin):  # type: ignore[misc]  # Unfold's own bases differ so
    kind = "web_search"
    form = WebSearchForm
    list_display = ("name", "kind", "address", "key_state", "state")
    list_filter = ("kind",)
    search_fields = ("name", "base_url")
    actions_detail = ("try_it", "use", "stop_using")
    general = ("name", "kind", "base_url", "state")
    readonly_fields = ("key_state", "state")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        tools.store_web_search(user=acting_user(request), web_search=obj, api_key=form.api_key)

    @display(description="Address")
    def address(self, web_search: WebSearch) -> str:
        own = {WebSearch.Kind.BRAVE: _("Brave's own"), WebSearch.Kind.DUCKDUCKGO: _("DuckDuckGo's own")}
        return web_search.base_url or own.get(WebSearch.Kind(web_search.kind), "–")

    def store_active(self, user: AbstractUser, row: Any, *, active: bool) -> None:
        tools.set_web_search_active(user=user, web_search=row, active=active)

    @confirmation_button(
        "Try a search",
        icon="network_check",
        ask="Search the web with this service now?",
        explain="Glasshouse sends one query, as for an answer. A paid service may charge for it.",
    )
    def try_it(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        web_search = self.row(request, object_id)
        try:
            results = tools.try_web_search(web_search=web_search)
        except ProductError as error:
            return self.back(request, web_search, error.sentence.about(web_search), messages.ERROR)
        return self.back(
            request,
            web_search,
            Sentence("{web_search} answers: {found} results.", web_search=web_search, found=results),
        )

    @confirmation_button(
        "Search with this",
        icon="check_circle",
        ask="Search the web with this service?",
        explain="It replaces the active service.",
    )
    def use(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self.switch(
            request,
            object_id,
            active=True,
            done=lambda row: Sentence("Answers now search the web with {web_search}.", web_search=row),
        )

    @confirmation_button(
        "Stop searching",
        icon="block",
        ask="Stop searching the web with this service?",
        explain="If it is the active service, answers no longer search the web.",
    )
    def stop_using(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self.switch(
            request,
            object_id,
            active=False,
            done=lambda row: Sentence("Answers no longer search the web with {web_search}.", web_search=row),
        )


@admin.register(WebAccess)
class WebAccessAdmin(RowAdmin):
    """Page of the only row. The list redirects to it."""

    kind = "web_access"
    list_display = ("__str__", "allowed_hosts", "denied_hosts")
    fields = ("allowed_hosts", "denied_hosts")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and not WebAccess.objects.exists()

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        tools.store_web_access(user=acting_user(request), web_access=obj)


def _sign_in_rows(discovery: StoredDiscovery) -> list[tuple[str, str]]:
    """Return the results of a discovery as (label, text) pairs."""
    registration = discovery["registration_endpoint"]
    if not registration:
        registration = (
            _("with the address of a document") if discovery["documents"] else _("by hand: enter a client ID")
        )
    moment = parse_datetime(discovery["at"])
    return [
        (_("Issuer"), discovery["issuer"]),
        (_("People sign in at"), discovery["authorization_endpoint"]),
        (_("Tokens come from"), discovery["token_endpoint"]),
        (_("Clients register"), registration),
        (_("Tokens are revoked at"), discovery["revocation_endpoint"] or _("nowhere")),
        (_("Resource"), discovery["resource"] or "–"),
        (_("Permissions"), discovery["scope"] or "–"),
        (_("Read from"), ", ".join(discovery["sources"])),
        (_("When"), date_format(localtime(moment), "DATETIME_FORMAT") if moment is not None else discovery["at"]),
    ]


@admin.register(ToolServer)
class ToolServerAdmin(KeyedAdmin):
    kind = "tool_server"
    form = ToolServerForm
    list_display = ("name", "kind", "address", "access", "key_state", *FLAG_FIELDS, "enabled")
    list_filter = ("kind", "access", *FLAG_FIELDS, "enabled")
    search_fields = ("name", "base_url", "command")
    actions_detail = ("list_tools", "find_sign_in")
    general = (
        *("name", "kind", "base_url", "command", "access", "secret_name", "client_id", "issuer", "scope"),
        *(*FLAG_FIELDS, "own_network", "enabled"),
    )
    readonly_fields = ("key_state", "stored_document", "last_listing", "discovered_sign_in")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields. A stored server also has its document, its last listing and its discovered sign-in."""
        fieldsets = super().get_fieldsets(request, obj)
        document = OpenApiDocument.objects.filter(server=obj).exists() if obj else False
        shown = ("stored_document",) if document else ()
        if self.has_change_permission(request, obj):
            chosen = OPERATION_FIELDS if document else ()
            fields = (*shown, "document_file", "document_address", *chosen)
            fieldsets = (*fieldsets, (_("OpenAPI document"), {"fields": fields}))
        elif document:
            fieldsets = (*fieldsets, (_("OpenAPI document"), {"fields": shown}))
        if obj:
            fieldsets = (*fieldsets, (_("Tools"), {"fields": ("last_listing",)}))
        if obj and obj.access == ToolServer.Access.PERSON:
            fieldsets = (*fieldsets, (_("Sign-in"), {"fields": ("discovered_sign_in",)}))
        return fieldsets

    def has_add_permission(self, request: HttpRequest) -> bool:
        return acting_user(request).is_superuser

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return acting_user(request).is_superuser

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        tools.store_tool_server(
            user=acting_user(request), tool_server=obj, api_key=form.api_key, document=form.document
        )

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: Any = None) -> HttpResponse:
        if obj.kind != ToolServer.Kind.OPENAPI:
            return super().response_add(request, obj, post_url_continue)
        sentence = Sentence("“{tool_server}” is saved. Choose the operations that become tools.", tool_server=str(obj))
        self.message_user(request, sentence, messages.WARNING)
        return HttpResponseRedirect(reverse("admin:llm_toolserver_change", args=[obj.pk]))

    @display(description="Stored")
    def stored_document(self, tool_server: ToolServer) -> str:
        row = OpenApiDocument.objects.filter(server=tool_server).defer("content").first()
        if row is None:
            return ""
        problems = [(each["key"], Sentence.load(each["problem"])) for each in row.operations if each["problem"]]
        return render_to_string("admin/llm/tool_server/document.html", {"document": row, "problems": problems})

    @display(description="Address")
    def address(self, tool_server: ToolServer) -> str:
        return tool_server.command if tool_server.kind == ToolServer.Kind.STDIO else tool_server.base_url

    @display(description="Last listing")
    def last_listing(self, tool_server: ToolServer) -> str:
        listing = tools.last_listing(tool_server, NO_GRANTS)
        return render_to_string("admin/llm/tool_server/listed.html", {"listing": listing, "row": tool_server})

    @display(description="Last discovery")
    def discovered_sign_in(self, tool_server: ToolServer) -> str:
        """Return the results of the newest discovery, and the number of people who are signed in."""
        context = {
            "sign_in": tool_server.sign_in,
            "rows": _sign_in_rows(tool_server.sign_in) if tool_server.sign_in else (),
            "people": ToolGrant.objects.filter(tool_server=tool_server, ended="").count(),
        }
        return render_to_string("admin/llm/tool_server/sign_in.html", context)

    @confirmation_button(
        "Find its sign-in",
        icon="passkey",
        ask="Ask this server where people sign in?",
        explain="Glasshouse reads the public documents of the server and of its sign-in server. It signs nobody in, "
        "and registers nothing.",
    )
    def find_sign_in(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        tool_server = self.row(request, object_id)
        try:
            discovery = grants.discover(tool_server=tool_server)
        except ProductError as error:
            return self.back(request, tool_server, error.sentence.about(tool_server), messages.ERROR)
        sentence = Sentence(
            "People sign in to {tool_server} at {issuer}. If you create a client there by hand, its redirect address "
            "is {address}.",
            tool_server=tool_server,
            issuer=discovery.issuer,
            address=f"{site_origin(request)}{reverse('settings:tools-return')}",
        )
        return self.back(request, tool_server, sentence)

    @confirmation_button(
        "List its tools",
        icon="build",
        ask="Ask this server for its tools now?",
        explain="Glasshouse connects to the server. If it is a command, Glasshouse starts it and ends it afterwards.",
    )
    def list_tools(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        tool_server = self.row(request, object_id)
        try:
            listing = tools.try_tool_server(user=acting_user(request), tool_server=tool_server)
        except ProductError as error:
            return self.back(request, tool_server, error.sentence.about(tool_server), messages.ERROR)
        names = [tool.definition.name for tool in listing.tools]
        more = [f"… ({len(names):,})"] if len(names) > MAX_NAMES else []
        offered = ", ".join(names[:MAX_NAMES] + more) or _("no tools")  # the page below lists all of them
        return self.back(
            request, tool_server, Sentence("{tool_server} offers: {offered}.", tool_server=tool_server, offered=offered)
        )
