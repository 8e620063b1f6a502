"""Translate the labels of the admin into the user's language.

The code has them in English: names of rows and fields, help texts and choices in the models; titles of columns, groups
and actions in the admin classes. `translate` replaces each by a lazy translation when the product starts. The catalogue
keeps them under their own context (`core.i18n.ADMIN`).

The models do not mark them with gettext_lazy. Django makes most names of fields and rows from attributes and classes,
which the models would have to spell out, in 305 migration operations (docs/decisions/0070).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.db import models
from django.db.models import ManyToOneRel
from django.forms import ChoiceField, ModelChoiceField
from django.forms.utils import pretty_name
from django.utils.translation import override, pgettext_lazy

from core.audit.words import ACTION_LABELS
from core.i18n import ADMIN

APPS = ("audit", "llm", "workspace", "accounts", "files", "personas", "projects", "chat")
NOT_IN_VIETNAMESE = ("account", "mfa")  # apps of allauth, which has no Vietnamese translation
NAMES = ("verbose_name", "verbose_name_plural")

words: set[str] = set()  # all translated words; `make messages` puts them into the catalogue


def translatable(word: Any) -> Any:
    """Return the word as a lazy translation. Lazy words, such as Django's, and words without letters stay."""
    if type(word) is not str or not any(letter.isalpha() for letter in word):
        return word
    words.add(word)
    return pgettext_lazy(ADMIN, word)


def translate() -> None:
    """Translate the words of all registered admin pages and of the audit's actions."""
    words.update(ACTION_LABELS.values())
    for app in APPS:
        _change(apps.get_app_config(app), NAMES[:1])
    apps.get_app_config("auth").verbose_name = apps.get_app_config("accounts").verbose_name  # it lists only groups
    named_at_deletion = {other for model in admin.site._registry for other in _deleted_with(model)}
    for model in named_at_deletion - admin.site._registry.keys():
        if model._meta.app_label in NOT_IN_VIETNAMESE:
            _in_english(model)
        _names(model)
    for model, pages in admin.site._registry.items():
        if model._meta.app_label in APPS:
            _names(model)
            _model(model, set(_fields(pages)))
        _pages(pages)
        for part in pages.inlines:
            _change(part, NAMES)
            _model(part.model, set(_fields(part)))
            _pages(part)


def _deleted_with(model: type[models.Model]) -> set[type[models.Model]]:
    """Return the models whose rows are deleted with a row of the model. The page of the deletion names them."""
    models_below: set[type[models.Model]] = set()
    waiting = [model]
    while waiting:
        for relation in waiting.pop()._meta.get_fields(include_hidden=True):
            if isinstance(relation, ManyToOneRel) and relation.on_delete is models.CASCADE:
                below = relation.related_model
                if below not in models_below and not below._meta.auto_created:
                    models_below.add(below)
                    waiting.append(below)
    return models_below


def _change(holder: Any, names: Iterable[str]) -> None:
    for name in names:
        if word := getattr(holder, name, None):
            _set(holder, name, translatable(word))


def _set(holder: Any, name: str, word: Any) -> None:
    """Set an attribute of a class or an object. Admin classes and model options offer no other interface."""
    setattr(holder, name, word)


def _names(model: type[models.Model]) -> None:
    """Translate the names of a model. A missing plural is made first: Django's is lazy, which `translatable` skips."""
    if "verbose_name_plural" not in model._meta.original_attrs:
        name = str(model._meta.verbose_name)
        model._meta.verbose_name_plural = name if name.endswith("s") else f"{name}s"
    _change(model._meta, NAMES)


def _in_english(model: type[models.Model]) -> None:
    with override("en"):
        for name in NAMES:
            _set(model._meta, name, str(getattr(model._meta, name)))


def _fields(pages: Any) -> Iterator[str]:
    """Yield the names of the fields that a model's admin pages show."""
    groups = [group["fields"] for _title, group in pages.fieldsets or ()]
    form = getattr(pages.form, "_meta", None)
    lists = (pages.fields, getattr(pages, "list_display", ()), pages.readonly_fields, getattr(form, "fields", ()))
    for names in (*groups, *lists, getattr(pages, "list_filter", ())):
        for name in names or ():
            yield from (each for each in (name if isinstance(name, tuple | list) else [name]) if isinstance(each, str))


def _model(model: type[models.Model], shown: set[str]) -> None:
    for field in (*model._meta.concrete_fields, *model._meta.many_to_many):
        if field.name in shown and field.model._meta.app_label in APPS:
            _change(field, ("verbose_name", "help_text"))
            if field.choices and "language" not in field.name:  # languages have their own names
                field.choices = [(value, translatable(label)) for value, label in field.choices]


def _pages(pages: Any) -> None:
    _change(pages, ("search_help_text", "empty_words", "add_words"))
    if pages.fieldsets:
        pages.fieldsets = tuple((translatable(title), group) for title, group in pages.fieldsets)
    for entry in getattr(pages, "list_filter", ()):
        if isinstance(entry, type):
            _change(entry, ("title",))
    for name, field in getattr(pages.form, "declared_fields", {}).items():
        field.label = field.label or pretty_name(name)
        _change(field, ("label", "help_text"))
        if isinstance(field, ChoiceField) and not isinstance(field, ModelChoiceField) and name != "languages":
            choices: Any = field.choices
            field.choices = [(value, translatable(label)) for value, label in choices]
    cls = pages if isinstance(pages, type) else type(pages)
    ours = (*APPS, "core", "workspace", "config")
    for base in (each for each in cls.__mro__ if each.__module__.partition(".")[0] in ours):
        for act in base.__dict__.values():
            if callable(act):
                _change(act, ("short_description",))
                _colours_and_dialog(act)


def _colours_and_dialog(act: Any) -> None:
    """Collect the coloured values of a column, and translate the dialog of an action."""
    if isinstance(colours := getattr(act, "label", None), Mapping):
        words.update(word for word in colours if isinstance(word, str))
    if isinstance(dialog := getattr(act, "dialog", None), dict):
        for name in ("title", "description", "form_submit_text"):
            dialog[name] = translatable(dialog.get(name))
        for field in getattr(dialog.get("form_class"), "declared_fields", {}).values():
            _change(field, ("label", "help_text"))
