"""Admin fields that choose a row by its name."""

from collections.abc import Sequence
from typing import Any

from django.contrib.admin.widgets import AutocompleteMixin, AutocompleteSelect, AutocompleteSelectMultiple
from django.core.exceptions import ValidationError
from django.http import HttpRequest


class _ChosenRows(AutocompleteMixin):
    """Show a form again even if one of its values is no valid key.

    Django looks up the submitted values unchecked, and a text that is no UUID makes that look-up fail.
    """

    def optgroups(self, name: str, value: Sequence[str], attr: Any = None) -> Any:
        key = self.field.remote_field.model._meta.pk
        return super().optgroups(name, [each for each in value if _is_key(key, each)], attr)


class ChosenRow(_ChosenRows, AutocompleteSelect):
    pass


class ChosenRows(_ChosenRows, AutocompleteSelectMultiple):
    pass


def _is_key(field: Any, value: str) -> bool:
    try:
        return field.to_python(value) is not None
    except ValidationError:
        return False


class WithChosenRows:
    """A mixin for model admins and inlines: it uses these widgets for the fields in `autocomplete_fields`."""

    admin_site: Any
    get_autocomplete_fields: Any

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        if "widget" not in options and db_field.name in self.get_autocomplete_fields(request):
            options["widget"] = ChosenRow(db_field, self.admin_site, using=options.get("using"))
        return super().formfield_for_foreignkey(db_field, request, **options)  # type: ignore[misc]

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        if "widget" not in options and db_field.name in self.get_autocomplete_fields(request):
            options["widget"] = ChosenRows(db_field, self.admin_site, using=options.get("using"))
        return super().formfield_for_manytomany(db_field, request, **options)  # type: ignore[misc]
