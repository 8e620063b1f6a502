"""The parts of the admin that need several apps: its menu, and worked examples for budget profiles."""

from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from chat.context.types import DocumentBudget, Reserves, Room, document_budget, floored
from chat.lab.profile_trial import run_trials
from chat.models import Conversation
from config.help.guide import place_of_page
from config.help.rendering import address_of
from core import i18n
from core.admin import acting_user
from core.permissions import has_right
from llm.models import Model
from personas.admin import BudgetProfileAdmin
from personas.models import BudgetProfile

# The menu, in the order in which a workspace is set up.
GROUPS = {
    "Workspace": {"accounts.Workspace": "settings"},
    "Models": {"llm.Provider": "dns", "llm.Model": "neurology"},
    "Prompts": {
        "personas.SystemPrompt": "history_edu",
        "personas.SummaryPrompt": "summarize",
        "personas.PromptText": "format_quote",
        "personas.Persona": "face",
        "personas.SavedPrompt": "bookmark",
        "personas.Reminder": "campaign",
        "personas.BudgetProfile": "tune",
    },
    "Tools": {"llm.WebSearch": "travel_explore", "llm.WebAccess": "public", "llm.ToolServer": "build"},
    "Files": {
        "files.File": "description",
        "files.Embedder": "graph_3",
        "files.Reranker": "sort",
        "files.SpeechServer": "mic",
        "projects.Project": "folder",
        "projects.Invitation": "mail",
    },
    "People": {
        "accounts.User": "person",
        "accounts.PeopleGroup": "groups",
        "auth.Group": "admin_panel_settings",
        "accounts.OpenIDProvider": "login",
        "accounts.ApiToken": "key",
        "accounts.Limit": "speed",
        "accounts.AdminRecord": "assignment_ind",
        "audit.Entry": "policy",
    },
    "Webhooks": {"accounts.Webhook": "webhook", "accounts.WebhookDelivery": "outbox"},
    "Tasks": {"projects.Task": "task_alt", "projects.TaskChange": "history", "chat.Run": "play_circle"},
    "Use": {
        "chat.Conversation": "forum",
        "chat.Turn": "bolt",
        "chat.JudgedAnswer": "thumbs_up_down",
        "chat.ModelCall": "payments",
        "chat.Replay": "science",
        "chat.Reading": "menu_book",
        "chat.Share": "link",
        "chat.Import": "upload",
        "chat.Summary": "compress",
        "chat.SummaryJob": "pending_actions",
    },
}

# Django's name, “Groups”, would also fit groups of people.
MODEL_TITLES = {"auth.Group": "Groups of administrators", "chat.Reading": "Full readings"}
# Menu entries outside of the groups, by number.
PLACES = ("Back to the workspace", "Overview", "More", "Set up", "About this page", "All")
# The pages that the menu shows, of forty. The page “All” has every page.
ON_SHOW = frozenset(
    {
        "accounts.Workspace",
        "llm.Provider",
        "llm.Model",
        "personas.SystemPrompt",
        "personas.Persona",
        "llm.WebSearch",
        "llm.ToolServer",
        "accounts.User",
        "accounts.PeopleGroup",
        "chat.JudgedAnswer",
        "chat.ModelCall",
        "chat.Replay",
    }
)

# The example in the design: a window of 8,000 tokens, a system prompt of 300 and a persona of 200.
EXAMPLE_WINDOW = 8_000
EXAMPLE_PROMPTS = (300, 200)


class NavigationItem(TypedDict):
    """A link of Unfold's menu. `active` is False for a link that is never the current page.

    `label`: the rows of the page, as `llm.Model`.
    """

    title: str
    icon: str
    link: str
    active: NotRequired[bool]
    label: NotRequired[str]


class NavigationGroup(TypedDict):
    """A group of links of Unfold's menu."""

    items: list[NavigationItem]
    title: NotRequired[str]
    separator: NotRequired[bool]


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """The limits that follow from a profile's numbers in one window, in tokens."""

    title: str
    window: int
    documents: DocumentBudget
    inline_below: int
    exact_limit: int
    catch_all_limit: int
    ceiling: int
    floor: int


def worked_example(profile: BudgetProfile, title: str, window: int) -> WorkedExample:
    """Return the limits that the context engine computes for this profile in one window."""
    usable = min(window, profile.window or window)
    reserves = Reserves(
        reserved_output=profile.reserved_output,
        expected_user=profile.expected_user,
        buffer=profile.buffer,
        ui_share=profile.ui_share,
        select_margin=profile.select_margin,
    )
    exact, catch_all = (
        Room(usable, profile.reserved_output, profile.buffer, margin).input_limit
        for margin in (profile.safety_margin, profile.catch_all_margin)
    )
    return WorkedExample(
        title=title,
        window=usable,
        documents=document_budget(usable, EXAMPLE_PROMPTS, reserves),
        inline_below=max(0, floored(usable - profile.reserved_output - sum(EXAMPLE_PROMPTS), profile.project_share)),
        exact_limit=max(0, exact),
        catch_all_limit=max(0, catch_all),
        ceiling=profile.ceiling or floored(max(0, exact), profile.ceiling_share),
        floor=profile.floor or floored(max(0, exact), profile.floor_share),
    )


@admin.register(BudgetProfile)
class ExplainedBudgetProfileAdmin(BudgetProfileAdmin):
    change_form_template = "admin/personas/budgetprofile/change_form.html"

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        profile = self.get_object(request, object_id) if object_id else None
        context = {**self._examples(profile or BudgetProfile()), **(extra_context or {})}
        if has_right(acting_user(request), "view", Conversation):
            query = {"profile": object_id or ""}
            context["trials_url"] = reverse("admin:personas_budgetprofile_conversations", query=query)
        return super().changeform_view(request, object_id, form_url, context)

    def get_custom_urls(self) -> Any:
        return (
            ("example/", "personas_budgetprofile_example", self.example_view),
            ("conversations/", "personas_budgetprofile_conversations", self.conversations_view),
        )

    def example_view(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Return a fragment with the example for the numbers in the form, or with their errors."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = self.get_form(request, None)(request.POST)
        form.is_valid()
        errors = [error for name, messages in form.errors.items() if name != "name" for error in messages]
        context = {"errors": errors} if errors else self._examples(form.instance)
        return TemplateResponse(request, "admin/personas/budgetprofile/example.html", context)

    def conversations_view(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Return a fragment with the effect of the numbers on three conversations, without their texts.

        The numbers come from the form. For a person who may only view, they come from the stored `?profile=`.
        """
        if not (self.has_view_permission(request) and has_right(acting_user(request), "view", Conversation)):
            raise PermissionDenied
        if self.has_change_permission(request) or self.has_add_permission(request):
            form = self.get_form(request, None)(request.POST)
            form.is_valid()
            invalid = set(form.errors) - {"name"}
            profile = form.instance
        else:
            invalid = set()
            profile = self.row(request, request.GET.get("profile", ""))
        context = {"incomplete": True} if invalid else {"trials": run_trials(profile)}
        return TemplateResponse(request, "admin/personas/budgetprofile/conversations.html", context)

    def _examples(self, profile: BudgetProfile) -> dict[str, object]:
        examples = [
            worked_example(
                profile, _("A window of %(number)s") % {"number": i18n.grouped(EXAMPLE_WINDOW)}, EXAMPLE_WINDOW
            )
        ]
        model = Model.objects.usable().filter(default=True).first()
        if model is not None:
            examples.append(
                worked_example(profile, _("%(name)s, the default model") % {"name": model.name}, model.context_window)
            )
        return {
            "examples": examples,
            "profile": profile,
            "prompts": EXAMPLE_PROMPTS,
            "example_url": reverse("admin:personas_budgetprofile_example"),
        }


def all_groups(request: HttpRequest) -> list[NavigationGroup]:
    """Return the groups of all pages that the administrator may see. Pages without a group come last, under “More”."""
    pages = {
        f"{app['app_label']}.{page['object_name']}": page
        for app in admin.site.get_app_list(request)
        for page in app["models"]
    }
    grouped = {label for labels in GROUPS.values() for label in labels}
    ungrouped = {label: "table" for label in pages if label not in grouped}
    groups: list[NavigationGroup] = []
    for title, labels in {**GROUPS, PLACES[2]: ungrouped}.items():
        items: list[NavigationItem] = [
            {
                "title": i18n.label(MODEL_TITLES[label]) if label in MODEL_TITLES else pages[label]["name"],
                "icon": icon,
                "link": pages[label]["admin_url"],
                "label": label,
            }
            for label, icon in labels.items()
            if label in pages
        ]
        if items:
            groups.append({"title": i18n.label(title), "separator": True, "items": items})
    return groups


def navigation(request: HttpRequest) -> list[NavigationGroup]:
    """Return Unfold's menu: first links, then the pages of `ON_SHOW` that the administrator may see.

    The page “All” has the rest. An administrator who may see few pages has all of them in the menu.
    """
    above: list[NavigationItem] = [
        {"title": i18n.label(PLACES[0]), "icon": "arrow_back", "link": reverse("chat:home"), "active": False},
        {"title": i18n.label(PLACES[1]), "icon": "monitoring", "link": reverse("admin:index")},
        {"title": i18n.label(PLACES[5]), "icon": "apps", "link": reverse("admin_all")},
        {
            "title": i18n.label(PLACES[4]),
            "icon": "help",
            "link": address_of(place_of_page(request.resolver_match.route if request.resolver_match else "admin/")),
            "active": False,
        },
    ]
    if acting_user(request).is_superuser:
        above.append(
            {"title": i18n.label(PLACES[3]), "icon": "checklist", "link": reverse("setup:start"), "active": False}
        )
    groups = all_groups(request)
    if sum(len(group["items"]) for group in groups) > len(ON_SHOW):
        shown: list[NavigationGroup] = [
            {**group, "items": [each for each in group["items"] if each["label"] in ON_SHOW]} for group in groups
        ]
        groups = [group for group in shown if group["items"]]
    return [{"items": above}, *groups]
