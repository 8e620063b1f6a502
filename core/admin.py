"""Base classes, columns and buttons that the admin pages of all apps share."""

import json
from collections.abc import Callable
from functools import reduce, wraps
from itertools import chain
from typing import Any, ClassVar, cast
from uuid import UUID

from django import forms
from django.apps import apps
from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import FieldDoesNotExist, PermissionDenied
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext
from unfold.admin import ModelAdmin
from unfold.decorators import action
from unfold.decorators import display as unfold_display
from unfold.forms import BaseDialogForm
from unfold.paginator import InfinitePaginator

from core import i18n
from core.admin_choices import RowSelectMixin
from core.audit.models import Entry
from core.audit.origin import current_origin
from core.audit.services import record
from core.audit.words import ACTION_LABELS
from core.sentences import Sentence

HISTORY_PAGE = 100  # entries on one page of a row's history
MAX_COUNTED = 10_000  # rows that a list counts and shows; users find further rows by searching
_action = cast("Callable[..., Callable[..., Any]]", action)  # Unfold annotates the decorator's result


class ColouredLabel(tuple[str, str]):
    """A coloured value and its label, in the form that Unfold's lists expect. A row's own page shows the label."""

    def __str__(self) -> str:
        return self[1]


def display(*, label: dict[str, str] | None = None, **options: Any) -> Callable[..., Any]:
    """Mark a method as a column, as Unfold's decorator does. `label`: the colours by value.

    The column shows these values in the reader's language.
    """

    def decorator(function: Callable[..., Any]) -> Any:
        if label is None:
            return unfold_display(**options)(function)

        @wraps(function)
        def column(*arguments: Any) -> Any:
            value = function(*arguments)
            return ColouredLabel((value, i18n.label(value))) if isinstance(value, str) and value in label else value

        return unfold_display(label=label, **options)(column)

    return decorator


def column(path: str, name: str) -> Callable[..., Any]:
    """Return a column of the value at the end of a path from the row, such as `conversation.owner`."""

    @unfold_display(description=name)
    def show(self: Any, row: Any) -> Any:
        value = reduce(lambda source, name: getattr(source, name, None), path.split("."), row)
        return "–" if value is None else str(value)

    return cast("Callable[..., Any]", show)


class CappedPaginator(Paginator[Any]):
    """Count no further than `MAX_COUNTED`, so that the cost of a list does not grow with its table."""

    template_name = "admin/capped_pagination.html"

    @cached_property
    def capped(self) -> bool:
        return self._counted > MAX_COUNTED

    @cached_property
    def count(self) -> int:
        return min(self._counted, MAX_COUNTED)

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: MAX_COUNTED + 1].count())


class AuditLogEntry:
    """An audit entry with the attributes of Django's `LogEntry`, for the history page of a row."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self.action_time = entry.at
        self.code = entry.action
        self.user = self
        self.get_full_name = ""

    def get_username(self) -> str:
        return self._entry.actor_name or str(self._entry.get_how_display())

    def get_change_message(self) -> str:
        fields = [(field_label(self._entry.object_type, name),) for name in self._entry.changes]
        words = action_label(self._entry.action)
        return format_html("{}: {}", words, format_html_join(", ", "{}", fields)) if fields else words


def action_label(action: str) -> str:
    """Return the label of an action in the reader's language, such as “API token created” for `token.made`."""
    return i18n.label(ACTION_LABELS[action]) if action in ACTION_LABELS else action


def kind_label(object_type: str) -> str:
    """Return the name of a model, such as “API token” for `accounts.apitoken`, or `object_type` if it was removed."""
    try:
        return capfirst(str(apps.get_model(object_type)._meta.verbose_name)) if object_type else ""
    except (LookupError, ValueError):
        return object_type


def field_label(object_type: str, name: str) -> str:
    """Return the verbose name of a field, or its name as code if it has no translated one."""
    try:
        field: Any = apps.get_model(object_type)._meta.get_field(name)
        words = field.verbose_name
    except (LookupError, ValueError, FieldDoesNotExist, AttributeError):
        words = name
    return format_html('<code class="quiet">{}</code>', name) if type(words) is str else str(words)


class RowHistory:
    """The audit entries of a row, newest first, then the entries of Django's own log from before the audit."""

    def __init__(self, acts: QuerySet[Entry], log: QuerySet[LogEntry]) -> None:
        self._acts = acts
        self._log = log

    @cached_property
    def _recorded(self) -> int:
        return self._acts.count()

    def __len__(self) -> int:
        return self._recorded + self._log.count()

    def __getitem__(self, part: slice) -> list[AuditLogEntry | LogEntry]:
        first, last = (max(0, place - self._recorded) for place in (part.start, part.stop))
        older = list(self._log[first:last])
        for entry in older:
            entry.change_message = translate_log_message(entry.change_message)
        return [*map(AuditLogEntry, self._acts[part]), *older]


class RowAdmin(RowSelectMixin, ModelAdmin):  # type: ignore[misc]  # Unfold's own base classes conflict in the same way
    """The base of all model admins. `kind`: the prefix of its acts in the audit, see `core.audit.actions`.

    `empty_words`: what an empty list says. `add_words`: the words of its button, if “Add” and the name do not fit.
    """

    kind = "row"
    empty_words = ""
    add_words = ""
    paginator: ClassVar[type[Paginator[Any]]] = CappedPaginator
    show_full_result_count = False
    list_per_page = 50
    # Unfold annotates these as empty tuples.
    actions_detail: Any = ()
    actions_list: Any = ()

    def changeform_view(self, request: HttpRequest, *arguments: Any, **options: Any) -> Any:
        """Show the form of a row, and drop the request that Unfold stores on the model admin.

        Otherwise each model admin would keep its last request in memory.
        """
        try:
            return super().changeform_view(request, *arguments, **options)
        finally:
            self.__dict__.pop("request", None)

    def message_user(self, request: HttpRequest, message: Any, *arguments: Any, **options: Any) -> None:
        text = message if isinstance(message, Sentence) else Sentence(str(message))
        super().message_user(request, str(text), *arguments, **options)

    def row(self, request: HttpRequest, pk: str) -> Any:
        """Return the row with this id. Raises Http404 if this admin shows no such row."""
        row = self.get_object(request, pk)
        if row is None:
            raise Http404
        return row

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Refuse lookups through reverse relations: Django would allow a search for users by their session keys."""
        model: Any = self.model
        for part in lookup.split("__"):
            try:
                field = model._meta.get_field(part)
            except FieldDoesNotExist:
                break
            if field.auto_created and not field.concrete:
                return False
            model = field.related_model
            if model is None:
                break
        return super().lookup_allowed(lookup, value, request)  # type: ignore[arg-type]  # the stubs require a request

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._recorded(request, obj, "added", message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._recorded(request, obj, "changed", message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Log nothing, since `delete_model` and the services record deletions."""

    def _recorded(self, request: HttpRequest, row: Any, verb: str, message: Any) -> None:
        """Record the change in the audit, unless a service recorded it in this request. Django's log gets no entry."""
        nothing_changed = verb == "changed" and not message
        if nothing_changed or (row._meta.label_lower, str(row.pk)) in (current_origin().recorded or ()):
            return
        names = [part["changed"].get("fields", ()) for part in message if "changed" in part] if message else []
        with transaction.atomic():
            fields = dict.fromkeys(map(str, chain(*names)))
            record(
                user=acting_user(request), action=f"{self.kind}.{verb}", row=row, name=self._name(row), changes=fields
            )

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Show the audit entries of this row, then the older entries of Django's own log."""
        if not self.has_view_permission(request):  # Django checks this only after it has found the row
            raise PermissionDenied
        object_id = object_id.replace("\0", "")  # PostgreSQL refuses NUL in text
        acts = Entry.objects.filter(object_id=object_id, object_type=self.opts.label_lower).order_by("-id")
        log = LogEntry.objects.filter(object_id=object_id, content_type__app_label=self.opts.app_label)
        log = log.filter(content_type__model=self.opts.model_name).select_related("user").order_by("-action_time")
        paginator: Paginator[Any] = Paginator(RowHistory(acts, log), HISTORY_PAGE)  # type: ignore[arg-type]  # it has a length and slices
        page = paginator.get_page(request.GET.get("p"))
        context = {
            "action_list": page,
            "pagination_required": page.has_other_pages(),
            "page_range": page.paginator.get_elided_page_range(page.number),
            **(extra_context or {}),
        }
        return super().history_view(request, object_id, context)

    @transaction.atomic
    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        record(user=acting_user(request), action=f"{self.kind}.deleted", row=obj, name=self._name(obj))
        obj.delete()

    def _name(self, row: Any) -> str:
        """Return the name for the audit. It is empty without a `kind`, since the name may be text of a user."""
        return "" if self.kind == "row" else str(row)

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete all chosen rows, each as on its own page. If one cannot be deleted, delete none."""
        for row in queryset:
            self.delete_model(request, row)

    def back(
        self, request: HttpRequest, row: Any, message: Sentence | str, level: int = messages.SUCCESS
    ) -> HttpResponse:
        """Return the response that ends a dialog: it opens the row's page with this message."""
        self.message_user(request, message, level)
        return htmx_redirect(reverse(f"admin:{self.opts.label_lower.replace('.', '_')}_change", args=[row.pk]))


class CheckboxColumns(forms.CheckboxSelectMultiple):
    """Checkboxes in columns. Each has little markup, since there are more than a hundred rights."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        return render_to_string("admin/boxes.html", self.get_context(name, value, attrs))


def translate_log_message(entry: str) -> str:
    """Return a log message, a sentence or Django's JSON of changed fields, in the reader's language."""
    if not entry.startswith("["):
        return gettext(entry) if entry else ""
    changes = json.loads(entry)
    for about in (each for change in changes for each in change.values()):
        if "name" in about:
            about["name"] = i18n.label(about["name"])
        if "fields" in about:
            about["fields"] = [i18n.label(name) for name in about["fields"]]
    return json.dumps(changes)


class ReadOnlyAdmin(RowAdmin):
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class Confirmation(BaseDialogForm):
    """A dialog that only has a button. It exists since a change needs a POST, which a link does not send."""


def button(name: str, *, icon: str, permission: str = "change") -> Callable[..., Any]:
    """Make the method a button on a row's page. The button opens another page. It takes (request, object_id)."""
    return _action(description=name, icon=icon, permissions=[permission])


def confirmation_button(
    name: str,
    *,
    icon: str,
    ask: str,
    explain: str,
    permission: str = "change",
    form: type[Confirmation] = Confirmation,
) -> Callable[..., Any]:
    """Make the method a button with a confirmation. It takes (request, form, object_id), returns `htmx_redirect()`."""
    dialog = {"title": ask, "description": explain, "form_class": form, "form_submit_text": name}
    return _action(description=name, icon=icon, permissions=[permission], dialog=dialog)


class OneActiveAdmin(RowAdmin):
    """The admin of a table in which at most one row is active, such as the web search services.

    A subclass defines the dialogs `use` and `stop_using` with its own texts. Both return `switch(...)`.
    """

    @display(description="Use", ordering="active", label={"active": "success", "not in use": "warning"})
    def state(self, row: Any) -> str:
        return "active" if row.active else "not in use"

    def store_active(self, user: AbstractUser, row: Any, *, active: bool) -> None:
        """Store whether the row is active, through the service of its app."""
        raise NotImplementedError

    def switch(
        self, request: HttpRequest, object_id: str, *, active: bool, done: Callable[[Any], Sentence]
    ) -> HttpResponse:
        """Switch a row on or off. Then open its page, which shows the sentence `done`."""
        row = self.row(request, object_id)
        self.store_active(acting_user(request), row, active=active)
        return self.back(request, row, done(row))


def htmx_redirect(url: str) -> HttpResponse:
    """Return a response that makes htmx, which posted the dialog, open another page."""
    return HttpResponse(headers={"HX-Redirect": url})


def acting_user(request: HttpRequest) -> AbstractUser:
    return cast("AbstractUser", request.user)  # the admin site admits no other users


STATE_COLOURS = {
    "idle": "default",
    "queued": "info",
    "running": "info",
    "answering": "info",
    "summarising": "info",
    "drafting": "info",
    "checking": "info",
    "ready": "warning",
    "waiting": "warning",
    "done": "success",
    "stopped": "warning",
    "interrupted": "warning",
    "failed": "danger",
}


class RecordAdmin(ReadOnlyAdmin):
    """The admin of a table that grows without bound. So no page counts its rows."""

    paginator = InfinitePaginator

    def get_paginator(self, request: HttpRequest, queryset: Any, *arguments: Any, **options: Any) -> Any:
        """Return the paginator. Other querysets, such as the history of one row, are bounded and may be counted."""
        kind = self.paginator if queryset.model is self.model else CappedPaginator
        return kind(queryset, *arguments, **options)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        """Search for whole values, one column at a time, so that an index can be used.

        An id is looked up in all id columns. Any other term is looked up in the other columns; the first column with a
        match counts.
        """
        names = [name.removeprefix("=") for name in self.search_fields if name.startswith("=")]
        term = search_term.strip()
        if not term or len(names) < len(self.search_fields):
            return super().get_search_results(request, queryset, search_term)
        ids = [name for name in names if name.rpartition("__")[2] == "id"]
        try:
            key = UUID(term)
        except ValueError:
            matches = (_rows_with_value(queryset, name, term) for name in names if name not in ids)
            return next((rows for rows in matches if rows.exists()), queryset.none()), False
        any_id = Q(*((name, key) for name in ids), _connector=Q.OR)
        return queryset.filter(any_id) if ids else queryset.none(), False


def _rows_with_value(rows: QuerySet[Any], name: str, term: str) -> QuerySet[Any]:
    """Return the rows with this value. Users are looked up first, so that an index finds the rows by user id."""
    to_people, _, column = name.rpartition("__")
    if column != get_user_model().USERNAME_FIELD or not to_people:
        return rows.filter(Q((f"{name}__iexact", term)))
    people = get_user_model()._default_manager.filter(Q((f"{column}__iexact", term))).values_list("pk", flat=True)
    return rows.filter(Q((f"{to_people}__in", list(people))))
