"""The admin of groups of people: their members, and what they may use."""

from typing import Any, cast

from django import forms
from django.contrib import admin
from django.db.models import Count, ManyToManyField, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from accounts.groups import services
from accounts.models import PeopleGroup, Right
from core import i18n
from core.admin import CheckboxColumns, RowAdmin, acting_user, display

MAX_IN_FORM = 300  # members; Django accepts at most a thousand fields in one form


class PeopleGroupForm(forms.ModelForm[PeopleGroup]):
    may = forms.MultipleChoiceField(
        choices=Right.choices,
        required=False,
        widget=CheckboxColumns(),
        help_text="People have the rights of all their groups.",
    )


@admin.register(PeopleGroup)
class PeopleGroupAdmin(RowAdmin):
    empty_words = "No groups yet."
    kind = "people_group"
    form = PeopleGroupForm
    list_display = ("name", "size", "models_of_it", "tool_servers_of_it", "may_do", "claim")
    search_fields = ("name", "claim", "=members__username")
    search_help_text = "A part of a name or a claim, or the user name of a member"
    autocomplete_fields = ("members", "managers")
    readonly_fields = ("size",)
    fieldsets = (
        (None, {"fields": ("name", "claim", "members", "managers")}),
        ("May use", {"fields": services.EVERYONE_FIELDS}),
        ("What is kept", {"fields": ("conversation_days",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[PeopleGroup]:
        rows: QuerySet[PeopleGroup] = super().get_queryset(request)
        return rows.prefetch_related("allowed_models", "allowed_tool_servers").annotate(
            number_of_members=Count("members", distinct=True)
        )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return only the rights for “Everyone”, and the number of members instead of their list for a large group."""
        if obj is not None and obj.everyone:
            return self.fieldsets[1:2]
        if getattr(obj, "number_of_members", 0) <= MAX_IN_FORM:
            return self.fieldsets
        return ((None, {"fields": ("name", "claim", "size", "managers")}), *self.fieldsets[1:])

    def formfield_for_manytomany(self, db_field: ManyToManyField[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name in ("allowed_models", "allowed_tool_servers"):
            kwargs["widget"] = CheckboxColumns()
        field: Any = super().formfield_for_manytomany(db_field, request, **kwargs)
        if db_field.name == "allowed_models":
            field.queryset = field.queryset.select_related("provider").order_by("provider__name", "name")
        return field

    @display(description="Members", ordering="number_of_members")
    def size(self, group: PeopleGroup) -> str | SafeString:
        if group.everyone:
            return _("everybody")
        url = reverse("admin:accounts_user_changelist", query={"people_group": group.pk})
        return format_html('<a href="{}">{}</a>', url, getattr(group, "number_of_members", 0))

    @display(description="Models")
    def models_of_it(self, group: PeopleGroup) -> str:
        return _("all") if group.all_models else _named(group.allowed_models.all())

    @display(description="Tool servers")
    def tool_servers_of_it(self, group: PeopleGroup) -> str:
        return _("all") if group.all_tool_servers else _named(group.allowed_tool_servers.all())

    @display(description="May")
    def may_do(self, group: PeopleGroup) -> str:
        return "; ".join(str(Right(right).label) for right in group.may if right in Right.values) or "–"

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and not getattr(obj, "everyone", False)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        group = PeopleGroup.objects.get(pk=obj.pk) if change else None
        fields = cast("services.GroupFields", form.cleaned_data)
        stored = services.save_group(user=acting_user(request), group=group, fields=fields)
        obj.pk = stored.pk
        obj._state.adding = False

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        """Save nothing: `save_model` has stored the related rows."""

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return the rows to delete, without those that link a group to its members, models and tool servers."""
        _listed, counts, needed, protected = super().get_deleted_objects(objs, request)
        for rows in (getattr(PeopleGroup, field.name).through for field in PeopleGroup._meta.many_to_many):
            counts.pop(str(rows._meta.verbose_name_plural), None)
        return [str(group) for group in objs], counts, needed, protected

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_group(user=acting_user(request), group=obj)


def _named(rows: Any) -> str:
    names = [str(row) for row in rows]
    more = len(names) - 3
    shown = ", ".join(names[:3])
    return f"{shown} … (+{i18n.grouped(more)})" if more > 0 else shown or "–"
