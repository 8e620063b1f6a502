"""Admin fields in which people choose rows by their names."""

from collections.abc import Sequence
from typing import Any

from django.contrib.admin.widgets import AutocompleteMixin, AutocompleteSelect, AutocompleteSelectMultiple
from django.core.exceptions import ValidationError
from django.http import HttpRequest


class _LenientOptions(AutocompleteMixin):
    """Ignore submitted values that are no valid keys when the form is shown again.

    Django looks up the submitted values unchecked, and a text that is no UUID makes that look-up fail.
    """

    def optgroups(self, name: str, value: Sequence[str], attr: Any = None) -> Any:
        key = self.field.remote_field.model._meta.pk
        return super().optgroups(name, [each for each in value if _is_key(key, each)], attr)


class RowSelect(_LenientOptions, AutocompleteSelect):
    pass


class RowSelectMultiple(_LenientOptions, AutocompleteSelectMultiple):
    pass


def _is_key(field: Any, value: str) -> bool:
    try:
        return field.to_python(value) is not None
    except ValidationError:
        return False


class RowSelectMixin:
    """A mixin for model admins and inlines. It uses the widgets of this module for the `autocomplete_fields`."""

    admin_site: Any
    get_autocomplete_fields: Any

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        if "widget" not in options and db_field.name in self.get_autocomplete_fields(request):
            options["widget"] = RowSelect(db_field, self.admin_site, using=options.get("using"))
        return super().formfield_for_foreignkey(db_field, request, **options)  # type: ignore[misc]  # of a mixin

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        if "widget" not in options and db_field.name in self.get_autocomplete_fields(request):
            options["widget"] = RowSelectMultiple(db_field, self.admin_site, using=options.get("using"))
        return super().formfield_for_manytomany(db_field, request, **options)  # type: ignore[misc]  # of a mixin
