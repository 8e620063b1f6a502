"""What the admin pages of all apps share."""

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
from core.admin_choices import WithChosenRows
from core.audit.models import Entry
from core.audit.origin import origin
from core.audit.services import record
from core.audit.words import WORDS
from core.sentences import Sentence

HISTORY_PAGE = 100  # acts of a row on a page of its history
MOST_COUNTED = 10_000  # rows of a list; further ones are found by searching
_action = cast("Callable[..., Callable[..., Any]]", action)  # annotated by unfold as if it were applied already


class Labelled(tuple[str, str]):
    """A value that has a colour, and its words, as Unfold's lists take it; a row's own page shows the words."""

    def __str__(self) -> str:
        return self[1]


def display(*, label: dict[str, str] | None = None, **options: Any) -> Callable[..., Any]:
    """As Unfold's. `label`: the colours of values, which are words of ours and shown in the reader's language."""

    def decorator(function: Callable[..., Any]) -> Any:
        if label is None:
            return unfold_display(**options)(function)

        @wraps(function)
        def shown(*given: Any) -> Any:
            value = function(*given)
            return Labelled((value, i18n.label(value))) if isinstance(value, str) and value in label else value

        return unfold_display(label=label, **options)(shown)

    return decorator


def column(path: str, name: str) -> Callable[..., Any]:
    """What stands at the end of a path from the row, such as `conversation.owner`."""

    @unfold_display(description=name)
    def value(self: Any, row: Any) -> Any:
        found = reduce(lambda place, step: getattr(place, step, None), path.split("."), row)
        return "–" if found is None else str(found)

    return cast("Callable[..., Any]", value)


class CappedPaginator(Paginator[Any]):
    """Counts no further than `MOST_COUNTED`, so that a list costs the same whatever a table has."""

    template_name = "admin/capped_pagination.html"

    @cached_property
    def capped(self) -> bool:
        return self._counted > MOST_COUNTED

    @cached_property
    def count(self) -> int:
        return min(self._counted, MOST_COUNTED)

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: MOST_COUNTED + 1].count())


class Act:
    """A row of the audit as Django's page of a row's history shows one of its log."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self.action_time = entry.at
        self.code = entry.action
        self.user, self.get_full_name = self, ""

    def get_username(self) -> str:
        return self._entry.actor_name or str(self._entry.get_how_display())

    def get_change_message(self) -> str:
        fields = [(field_in_words(self._entry.object_type, name),) for name in self._entry.changes]
        said = act_in_words(self._entry.action)
        return format_html("{}: {}", said, format_html_join(", ", "{}", fields)) if fields else said


def act_in_words(action: str) -> str:
    """Such as “Token made” for `token.made`, in the reader's language."""
    return i18n.label(WORDS[action]) if action in WORDS else action


def kind_in_words(object_type: str) -> str:
    """Such as “API token” for `accounts.apitoken`; of a kind of row that is no more, this."""
    try:
        return capfirst(str(apps.get_model(object_type)._meta.verbose_name)) if object_type else ""
    except (LookupError, ValueError):
        return object_type


def field_in_words(object_type: str, name: str) -> str:
    """What pages call this field of such a row; as code, where it is none that they show."""
    try:
        field: Any = apps.get_model(object_type)._meta.get_field(name)
        words = field.verbose_name
    except (LookupError, ValueError, FieldDoesNotExist, AttributeError):
        words = name
    return format_html('<code class="quiet">{}</code>', name) if type(words) is str else str(words)


class History:
    """The acts of a row, the newest first, and below them what Django's own log has of before there was an audit."""

    def __init__(self, acts: QuerySet[Entry], log: QuerySet[LogEntry]) -> None:
        self._acts, self._log = acts, log

    @cached_property
    def _recorded(self) -> int:
        return self._acts.count()

    def __len__(self) -> int:
        return self._recorded + self._log.count()

    def __getitem__(self, part: slice) -> list[Act | LogEntry]:
        first, last = (max(0, place - self._recorded) for place in (part.start, part.stop))
        before = list(self._log[first:last])
        for entry in before:
            entry.change_message = in_words(entry.change_message)
        return [*map(Act, self._acts[part]), *before]


class RowAdmin(WithChosenRows, ModelAdmin):  # type: ignore[misc]  # Unfold's own bases differ so
    """`kind`: of the acts in the audit, see `core.audit.actions`."""

    kind = "row"
    paginator: ClassVar[type[Paginator[Any]]] = CappedPaginator
    show_full_result_count = False
    list_per_page = 50
    # Unfold annotates these as empty tuples.
    actions_detail: Any = ()
    actions_list: Any = ()

    def changeform_view(self, request: HttpRequest, *arguments: Any, **options: Any) -> Any:
        """Unfold stores the request in the admin of its model, which would hold the last form of each kind of row."""
        try:
            return super().changeform_view(request, *arguments, **options)
        finally:
            vars(self).pop("request", None)

    def message_user(self, request: HttpRequest, message: Any, *given: Any, **options: Any) -> None:
        text = message if isinstance(message, Sentence) else Sentence(str(message))
        super().message_user(request, str(text), *given, **options)

    def row(self, request: HttpRequest, pk: str) -> Any:
        """Raises Http404 for what is not there or not to be seen in this admin."""
        found = self.get_object(request, pk)
        if found is None:
            raise Http404
        return found

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Nothing by what points at a row: Django lets one search the people by the keys of their sessions."""
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
        return super().lookup_allowed(lookup, value, request)  # type: ignore[arg-type]  # stubs: the request is there

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._recorded(request, obj, "added", message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._recorded(request, obj, "changed", message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """`delete_model` and the services record them."""

    def _recorded(self, request: HttpRequest, row: Any, verb: str, message: Any) -> None:
        """The audit is the one record. What no service has said of this row in this request is said here."""
        stored_as_it_was = verb == "changed" and not message
        if stored_as_it_was or (row._meta.label_lower, str(row.pk)) in (origin().recorded or ()):
            return
        said = [part["changed"].get("fields", ()) for part in message if "changed" in part] if message else []
        with transaction.atomic():
            fields = dict.fromkeys(map(str, chain(*said)))
            record(user=acting(request), action=f"{self.kind}.{verb}", row=row, name=self._name(row), changes=fields)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """What the audit has of this row, after what Django's own log had of it before there was one."""
        if not self.has_view_permission(request):  # which Django asks for only once it has found the row
            raise PermissionDenied
        object_id = object_id.replace("\0", "")  # which PostgreSQL takes for no text
        acts = Entry.objects.filter(object_id=object_id, object_type=self.opts.label_lower).order_by("-id")
        log = LogEntry.objects.filter(object_id=object_id, content_type__app_label=self.opts.app_label)
        log = log.filter(content_type__model=self.opts.model_name).select_related("user").order_by("-action_time")
        listed: Paginator[Any] = Paginator(History(acts, log), HISTORY_PAGE)  # type: ignore[arg-type]  # has length and parts
        page = listed.get_page(request.GET.get("p"))
        context = {
            "action_list": page,
            "pagination_required": page.has_other_pages(),
            "page_range": page.paginator.get_elided_page_range(page.number),
            **(extra_context or {}),
        }
        return super().history_view(request, object_id, context)

    @transaction.atomic
    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        record(user=acting(request), action=f"{self.kind}.deleted", row=obj, name=self._name(obj))
        obj.delete()

    def _name(self, row: Any) -> str:
        """What rows without acts of their own are called may be somebody's words."""
        return "" if self.kind == "row" else str(row)

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """All that were chosen, each as on its own page, or none where one of them may not go."""
        for row in queryset:
            self.delete_model(request, row)

    def back(self, request: HttpRequest, row: Any, said: Sentence | str, level: int = messages.SUCCESS) -> HttpResponse:
        """The end of a dialog: the row's page, which says this."""
        self.message_user(request, said, level)
        return go(reverse(f"admin:{self.opts.label_lower.replace('.', '_')}_change", args=[row.pk]))


class Boxes(forms.CheckboxSelectMultiple):
    """What may be ticked, in columns, each in a few bytes: of rights there are more than a hundred."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        return render_to_string("admin/boxes.html", self.get_context(name, value, attrs))


def in_words(entry: str) -> str:
    """An entry of a history: a sentence of ours, or in Django's form what was changed, by the names of fields."""
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
    """Nothing but a button: what changes something is posted, never followed as a link."""


def button(name: str, *, icon: str, permission: str = "change") -> Callable[..., Any]:
    """A button above a row's page that leads to a page of its own; the method takes (request, object_id)."""
    return _action(description=name, icon=icon, permissions=[permission])


def confirmed(
    name: str,
    *,
    icon: str,
    ask: str,
    explain: str,
    permission: str = "change",
    form: type[Confirmation] = Confirmation,
) -> Callable[..., Any]:
    """A button that asks first, in `form`; the method takes (request, form, object_id) and ends with `go`."""
    dialog = {"title": ask, "description": explain, "form_class": form, "form_submit_text": name}
    return _action(description=name, icon=icon, permissions=[permission], dialog=dialog)


class OneActiveAdmin(RowAdmin):
    """Rows of which at most one is in use, such as the service that searches the web.

    A subclass has the dialogs `use` and `stop_using`, whose texts differ, and ends both with `switch`.
    """

    @display(description="Use", ordering="active", label={"active": "success", "not in use": "warning"})
    def state(self, row: Any) -> str:
        return "active" if row.active else "not in use"

    def store_active(self, user: AbstractUser, row: Any, *, active: bool) -> None:
        """Store that the row is in use or not, by the service of its app."""
        raise NotImplementedError

    def switch(
        self, request: HttpRequest, object_id: str, *, active: bool, done: Callable[[Any], Sentence]
    ) -> HttpResponse:
        """Switch a row on or off, and return to its page, which shows the sentence `done`."""
        row = self.row(request, object_id)
        self.store_active(acting(request), row, active=active)
        return self.back(request, row, done(row))


def go(url: str) -> HttpResponse:
    """The dialog has been posted by htmx, for which this is the way to another page."""
    return HttpResponse(headers={"HX-Redirect": url})


def acting(request: HttpRequest) -> AbstractUser:
    return cast("AbstractUser", request.user)  # the admin site lets nobody else in


STATES = {
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
    """These tables grow without bound: nothing on their pages counts rows."""

    paginator = InfinitePaginator

    def get_paginator(self, request: HttpRequest, queryset: Any, *given: Any, **options: Any) -> Any:
        """The history of one row is no such table."""
        kind = self.paginator if queryset.model is self.model else CappedPaginator
        return kind(queryset, *given, **options)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        """By whole values alone, one column at a time, so that an index finds them: an id is looked up where there are
        ids, any other word in the first of the other columns that has it."""
        names = [name.removeprefix("=") for name in self.search_fields if name.startswith("=")]
        term = search_term.strip()
        if not term or len(names) < len(self.search_fields):
            return super().get_search_results(request, queryset, search_term)
        ids = [name for name in names if name.rpartition("__")[2] == "id"]
        try:
            key = UUID(term)
        except ValueError:
            found = (_with(queryset, name, term) for name in names if name not in ids)
            return next((rows for rows in found if rows.exists()), queryset.none()), False
        wanted = Q(*((name, key) for name in ids), _connector=Q.OR)
        return queryset.filter(wanted) if ids else queryset.none(), False


def _with(rows: QuerySet[Any], name: str, term: str) -> QuerySet[Any]:
    """Those of which this is the value. People are looked up first: by their ids an index finds what is theirs."""
    to_people, _, column = name.rpartition("__")
    if column != get_user_model().USERNAME_FIELD or not to_people:
        return rows.filter(**{f"{name}__iexact": term})
    people = get_user_model()._default_manager.filter(**{f"{column}__iexact": term}).values_list("pk", flat=True)
    return rows.filter(**{f"{to_people}__in": list(people)})
