import argparse
import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.db.models import Q

from core.errors import ProductError
from llm.models import Model, Provider
from llm.services import known_of, save_provider, set_fallback


class Command(BaseCommand):
    help = (
        "Creates or updates a provider and its models by name. The key comes from --api-key-file, the environment "
        "variable PROVIDER_API_KEY, or --api-key, which other users of the machine can see; none keeps the stored one."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--kind", choices=Provider.Kind.values, default=Provider.Kind.OPENAI)
        parser.add_argument("--base-url", default="", metavar="URL", help="empty: the provider's own")
        keys = parser.add_mutually_exclusive_group()
        keys.add_argument("--api-key", metavar="KEY")
        keys.add_argument("--api-key-file", type=Path, metavar="PATH", help="a file that holds nothing but the key")
        parser.add_argument(
            "--model",
            action="append",
            default=[],
            type=model_and_window,
            dest="models",
            metavar="NAME[:WINDOW]",
            help="may be repeated; without a window in tokens, what is known of the model, else 4,096",
        )
        parser.add_argument(
            "--fallback",
            metavar="MODEL",
            help="asked instead of these models when this provider is down or over its limit; PROVIDER/MODEL where "
            "several providers have one of that name",
        )
        parser.add_argument("--default", action="store_true", help="make the first model the workspace's default")

    def handle(self, *args: Any, **options: Any) -> None:
        key = _key(options["api_key"], options["api_key_file"])
        try:
            with transaction.atomic():
                provider = save_provider(
                    name=options["name"],
                    kind=options["kind"],
                    base_url=options["base_url"],
                    api_key=key,
                    models=options["models"],
                    default=options["default"],
                )
                if options["fallback"]:
                    _set_fallback(provider, options)
        except ProductError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(f"{provider}: {'with' if provider.api_key else 'without'} a key")
        given = dict(options["models"])
        for model in provider.models.filter(name__in=given).order_by("name"):
            assumed = given[model.name] is None and "context_window" not in known_of(model)
            note = " (not known; give NAME:WINDOW)" if assumed else ""
            default = ", the default" if model.default else ""
            fallback = f", else {model.fallback}" if model.fallback else ""
            self.stdout.write(f"  {model.name}: {model.context_window:,} tokens{note}{default}{fallback}")


def _set_fallback(provider: Provider, options: dict[str, Any]) -> None:
    fallback = model_named(options["fallback"])
    for name, _window in options["models"]:
        if name != fallback.name or provider != fallback.provider:
            set_fallback(model=provider.models.get(name=name), fallback=fallback)


def model_named(text: str) -> Model:
    """`llama3.2:3b` of the one provider that has it, or `Ollama/llama3.2:3b`. Raises `CommandError`."""
    of_provider, _, name = text.partition("/")
    named = Q(name=text) | Q(provider__name=of_provider, name=name)
    found = list(Model.objects.usable().filter(named))
    if len(found) != 1:
        why = "There is no usable model" if not found else "Several providers have a model"
        raise CommandError(f"{why} named {text}. Give MODEL or PROVIDER/MODEL as `manage.py provider` has stored it.")
    return found[0]


def model_and_window(text: str) -> tuple[str, int | None]:
    """`llama3.2:3b:8192` is the model llama3.2:3b with 8,192 tokens; `llama3.2:3b` names no window."""
    name, _, window = text.rpartition(":")
    found = (name, int(window)) if name and window.isascii() and window.isdecimal() else (text, None)
    if not found[0].strip():
        raise argparse.ArgumentTypeError("give NAME or NAME:WINDOW")
    return found


def _key(given: str | None, file: Path | None) -> str | None:
    if given is not None:
        return given
    if file is None:
        return os.environ.get("PROVIDER_API_KEY") or None
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"The key file {file} cannot be read: {error}") from error
