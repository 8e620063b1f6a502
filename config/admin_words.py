"""The words of the admin in the reader's language.

They are written in English where they belong: names of rows and fields, their help texts and choices in the models,
titles of columns, groups and acts in the classes of the admin. Once all of these are there, each becomes a text that
is translated where it is shown; the catalogue has it under a context of its own (`core.i18n.ADMIN`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db import models
from django.forms import ChoiceField, ModelChoiceField
from django.forms.utils import pretty_name
from django.utils.translation import override, pgettext_lazy

from core.audit.words import WORDS
from core.i18n import ADMIN

APPS = ("audit", "llm", "workspace", "accounts", "files", "personas", "projects", "chat")
NOT_IN_VIETNAMESE = ("account", "mfa")  # apps of allauth, which brings no words in Vietnamese
NAMES = ("verbose_name", "verbose_name_plural")
Change = Callable[[Any], Any]

known: set[str] = set()  # what was found; `make messages` puts it into the catalogue


def translatable(word: Any) -> Any:
    """Left as they are: what is translated already, such as Django's own, and what has no letters."""
    if type(word) is not str or not any(letter.isalpha() for letter in word):
        return word
    known.add(word)
    return pgettext_lazy(ADMIN, word)


def translate() -> None:
    """Of all pages that are registered, and of the acts that they tell of."""
    known.update(WORDS.values())
    for app in APPS:
        _change(apps.get_app_config(app), NAMES[:1])
    apps.get_app_config("auth").verbose_name = apps.get_app_config("accounts").verbose_name  # groups are of people
    go_with_people = {relation.related_model for relation in get_user_model()._meta.related_objects}
    for model in go_with_people - admin.site._registry.keys():  # which are counted before somebody is deleted
        if model._meta.app_label in NOT_IN_VIETNAMESE:
            _in_english(model)
        _names(model)
    for model, pages in admin.site._registry.items():
        shown = set(_fields(pages))
        if model._meta.app_label in APPS:
            _names(model)
            _model(model, shown)
        _pages(pages)
        for part in pages.inlines:
            _change(part, NAMES)
            _model(part.model, set(_fields(part)))
            _pages(part)


def _change(holder: Any, names: Iterable[str]) -> None:
    for name in names:
        if getattr(holder, name, None):
            setattr(holder, name, translatable(getattr(holder, name)))


def _names(model: type[models.Model]) -> None:
    """A plural that nobody has written is English; Django makes it once it is asked for."""
    if "verbose_name_plural" not in model._meta.original_attrs:
        name = str(model._meta.verbose_name)
        model._meta.verbose_name_plural = name if name.endswith("s") else f"{name}s"
    _change(model._meta, NAMES)


def _in_english(model: type[models.Model]) -> None:
    with override("en"):
        for name in NAMES:
            setattr(model._meta, name, str(getattr(model._meta, name)))


def _fields(pages: Any) -> Iterator[str]:
    """The names of the fields that an administrator meets."""
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
            if field.choices and "language" not in field.name:  # which are called in their own languages
                field.choices = [(value, translatable(words)) for value, words in field.choices]


def _pages(pages: Any) -> None:
    _change(pages, ("search_help_text",))
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
            field.choices = [(value, translatable(words)) for value, words in choices]
    of = pages if isinstance(pages, type) else type(pages)
    for kind in (each for each in of.__mro__ if each.__module__.partition(".")[0] in (*APPS, "workspace", "config")):
        for act in vars(kind).values():
            if callable(act):
                _change(act, ("short_description",))
                _colours_and_dialog(act)


def _colours_and_dialog(act: Any) -> None:
    if isinstance(colours := getattr(act, "label", None), Mapping):
        known.update(word for word in colours if isinstance(word, str))
    if isinstance(dialog := getattr(act, "dialog", None), dict):
        for name in ("title", "description", "form_submit_text"):
            dialog[name] = translatable(dialog.get(name))
        for field in getattr(dialog.get("form_class"), "declared_fields", {}).values():
            _change(field, ("label", "help_text"))
