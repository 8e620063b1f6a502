"""The services that tools use, as administrators set them up."""

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_post_parameters
from unfold.decorators import display

from llm import tool_services
from llm.administration import Confirmation, RowAdmin, acting, confirmed, go
from llm.errors import ProductError
from llm.models import ToolServer, WebSearch
from llm.tool_forms import ToolServerForm, WebSearchForm


class KeyedAdmin(RowAdmin):
    """A row with a write-only key; `general` are the fields that are not secret."""

    general: tuple[str, ...] = ()
    readonly_fields: ClassVar[Any] = ("key_state",)
    actions_detail: Any = ()  # again, as unfold annotates it as an empty tuple

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Whoever may only look sees whether there is a key; the switch is there when there is one to remove."""
        # What a new row has become is known once it is stored.
        general = (None, {"fields": [name for name in self.general if obj or name not in self.readonly_fields]})
        if obj and not self.has_change_permission(request, obj):
            return (general, ("Secret", {"fields": ("key_state",)}))
        removable = ("clear_api_key",) if obj and obj.api_key else ()
        return (general, ("Secret", {"fields": ("new_api_key", *removable)}))

    @method_decorator(sensitive_post_parameters("new_api_key"))
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().changeform_view(request, *args, **kwargs)

    @display(description="Secret", label={"stored": "success", "none": "info"})
    def key_state(self, row: Any) -> str:
        return "stored" if row.api_key else "none"


@admin.register(WebSearch)
class WebSearchAdmin(KeyedAdmin):
    form = WebSearchForm
    list_display = ("name", "kind", "address", "key_state", "state")
    list_filter = ("kind",)
    search_fields = ("name", "base_url")
    actions_detail = ("try_it", "use", "stop_using")
    general = ("name", "kind", "base_url", "state")
    readonly_fields = ("key_state", "state")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        tool_services.store_web_search(user=acting(request), web_search=obj, api_key=form.api_key)

    @display(description="Address")
    def address(self, web_search: WebSearch) -> str:
        return web_search.base_url or "Brave's own"

    @display(description="Use", ordering="active", label={"active": "success", "not in use": "warning"})
    def state(self, web_search: WebSearch) -> str:
        return "active" if web_search.active else "not in use"

    @confirmed(
        "Try a search",
        icon="network_check",
        ask="Search the web with this service now?",
        explain="One query is sent, as an answer would send it. A paid service may count it.",
    )
    def try_it(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        web_search = self.row(request, object_id)
        try:
            found = tool_services.try_web_search(web_search=web_search)
        except ProductError as error:
            self.message_user(request, f"{web_search}: {error.detail}", messages.ERROR)
        else:
            self.message_user(request, f"{web_search} answers: {found} results.", messages.SUCCESS)
        return self._back(web_search)

    @confirmed(
        "Search with this",
        icon="check_circle",
        ask="Search the web with this service?",
        explain="It takes the place of the one in use until now.",
    )
    def use(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        web_search = self.row(request, object_id)
        tool_services.use_web_search(user=acting(request), web_search=web_search, active=True)
        self.message_user(request, f"Answers now search the web with {web_search}.", messages.SUCCESS)
        return self._back(web_search)

    @confirmed(
        "Stop searching",
        icon="block",
        ask="Stop searching the web with this service?",
        explain="If it is the one in use, answers no longer search the web.",
    )
    def stop_using(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        web_search = self.row(request, object_id)
        tool_services.use_web_search(user=acting(request), web_search=web_search, active=False)
        self.message_user(request, f"Answers no longer search the web with {web_search}.", messages.SUCCESS)
        return self._back(web_search)

    def _back(self, web_search: WebSearch) -> HttpResponse:
        return go(reverse("admin:llm_websearch_change", args=[web_search.pk]))


@admin.register(ToolServer)
class ToolServerAdmin(KeyedAdmin):
    form = ToolServerForm
    list_display = ("name", "kind", "address", "key_state", "approval_required", "enabled")
    list_filter = ("kind", "approval_required", "enabled")
    search_fields = ("name", "base_url", "command")
    actions_detail = ("list_tools",)
    general = ("name", "kind", "base_url", "command", "secret_name", "approval_required", "enabled")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return acting(request).is_superuser

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return acting(request).is_superuser

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        tool_services.store_tool_server(user=acting(request), tool_server=obj, api_key=form.api_key)

    @display(description="Address")
    def address(self, tool_server: ToolServer) -> str:
        return tool_server.base_url if tool_server.kind == ToolServer.Kind.HTTP else tool_server.command

    @confirmed(
        "List its tools",
        icon="build",
        ask="Ask this server for its tools now?",
        explain="A process is started for it, and ended.",
    )
    def list_tools(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        tool_server = self.row(request, object_id)
        try:
            names = tool_services.try_tool_server(tool_server=tool_server)
        except ProductError as error:
            self.message_user(request, f"{tool_server}: {error.detail}", messages.ERROR)
        else:
            self.message_user(request, f"{tool_server} offers: {', '.join(names) or 'no tools'}.", messages.SUCCESS)
        return go(reverse("admin:llm_toolserver_change", args=[tool_server.pk]))
