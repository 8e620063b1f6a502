"""Create or update a provider and its models from the command line."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.db.models import Q, QuerySet

from core.crypto import secret_state
from core.errors import ProductError
from llm import learning, model_facts
from llm.models import Model, Provider
from llm.services import known_values, set_fallback, test_connection, upsert_model, upsert_provider
from llm.types.facts import ModelValues

KEY_STATE_TEXTS = {
    "stored": "with a key",
    "none": "without a key",
    "lost": "with a key that cannot be read; enter it again, or add the old SECRET_KEY to ENCRYPTION_KEYS",
}


class Command(BaseCommand):
    help = (
        "Creates or updates a provider and its models by name, and reads the facts that the provider reports. Options "
        "that are not given keep their values. The key comes from --api-key-file, the environment variable "
        "PROVIDER_API_KEY, or --api-key, which other users of the machine can see. Without a key, the stored one stays."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--kind", choices=Provider.Kind.values, help=f"default: {Provider.Kind.OPENAI}")
        parser.add_argument("--base-url", metavar="URL", help='default, and "": the vendor\'s own address')
        keys = parser.add_mutually_exclusive_group()
        keys.add_argument("--api-key", metavar="KEY")
        keys.add_argument("--api-key-file", type=Path, metavar="PATH", help="a file that contains only the key")
        parser.add_argument(
            "--model",
            action="append",
            default=[],
            type=parse_model,
            dest="models",
            metavar="NAME[:WINDOW]",
            help="may be repeated; default window: the reported or known one in tokens, else 4,096",
        )
        for ability in ("tools", "vision"):
            parser.add_argument(
                f"--{ability}",
                action=argparse.BooleanOptionalAction,
                help="an ability of the models named with --model",
            )
        parser.add_argument("--max-output", type=int, metavar="TOKENS", help="the longest answer of these models")
        parser.add_argument(
            "--fallback",
            metavar="MODEL",
            help="the model to use while this provider is down or over its limit; write PROVIDER/MODEL if several "
            "providers have a model with this name",
        )
        parser.add_argument(
            "--max-images", type=int, metavar="COUNT", help="the maximum number of images in one prompt"
        )
        parser.add_argument(
            "--forget",
            action="append",
            default=[],
            metavar="MODEL",
            help="reset the learnt window and the learnt limit on images of this model; may be repeated",
        )
        parser.add_argument("--default", action="store_true", help="make the first model the workspace's default")
        parser.add_argument(
            "--test", action="store_true", help="fail if the provider does not answer, and list its models"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        provider_options = ProviderOptions.from_options(options)
        try:
            provider = _store_provider(provider_options)
            self.stdout.write(f"{provider}: {KEY_STATE_TEXTS[secret_state(provider.api_key)]}")
            if provider_options.test:
                self._print_offered(provider)
        except ProductError as error:
            raise CommandError(error.detail) from error
        names = list(dict(provider_options.models))
        if provider_options.test and not names:
            names = list(provider.models.values_list("name", flat=True))
        model_facts.update_models(provider, names=names, try_tools=True)
        self._print_models(provider.models.filter(name__in=[*names, *provider_options.forget]).order_by("name"))

    def _print_offered(self, provider: Provider) -> None:
        offered = test_connection(provider=provider)
        facts = model_facts.ask_provider(provider, offered).facts
        self.stdout.write(f"It answers and offers {len(offered)} {'model' if len(offered) == 1 else 'models'}:")
        for name in sorted(offered):
            values = known_values(Model(provider=provider, name=name, found=facts.get(name, {})))
            self.stdout.write(f"  {name}: {model_facts.describe_values(values) or 'no facts are known'}")

    def _print_models(self, models: QuerySet[Model]) -> None:
        for model in models:
            reported = model_facts.reported_window(model)
            note = ""
            if reported is not None and reported < model.context_window:
                note = f" (more than the {reported:,} that the provider serves)"
            elif "context_window" not in {*known_values(model), *model.set_by_hand}:
                note = " (unknown; set it with NAME:WINDOW)"
            if model.window < model.context_window:
                note = f" ({model.window:,} in force, {learning.describe_window_source(model)})"
            default = ", the default" if model.default else ""
            fallback = f", else {model.fallback}" if model.fallback else ""
            written_note = ", tool calls written as text" if model.written_calls else ""
            self.stdout.write(f"  {model.name}: {model.context_window:,} tokens{note}{default}{fallback}{written_note}")


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """Options of the command. `models`: names with windows in tokens or None.

    `settings`: values for all these models.
    """

    name: str
    kind: str | None
    base_url: str | None
    api_key: str | None
    api_key_file: Path | None
    models: Sequence[tuple[str, int | None]]
    settings: ModelValues
    fallback: str | None
    forget: Sequence[str]
    default: bool
    test: bool

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "ProviderOptions":
        """Return the options for the dictionary that argparse has read."""
        settings: ModelValues = {}
        if options["tools"] is not None:
            settings["tools"] = options["tools"]
        if options["vision"] is not None:
            settings["vision"] = options["vision"]
        if options["max_output"] is not None:
            settings["max_output"] = options["max_output"]
        if options["max_images"] is not None:
            settings["max_images"] = options["max_images"]
        return cls(
            name=options["name"],
            kind=options["kind"],
            base_url=options["base_url"],
            api_key=options["api_key"],
            api_key_file=options["api_key_file"],
            models=options["models"],
            settings=settings,
            fallback=options["fallback"],
            forget=options["forget"],
            default=options["default"],
            test=options["test"],
        )


@transaction.atomic
def _store_provider(options: ProviderOptions) -> Provider:
    """Store the provider, its models and their fallback. Raises `CommandError`, and the errors of `upsert_provider`."""
    if options.settings and not options.models:
        raise CommandError("Name the models to change with --model.")
    provider = upsert_provider(
        name=options.name,
        kind=options.kind,
        base_url=options.base_url,
        api_key=_read_key(options.api_key, options.api_key_file),
        models=options.models,
        default=options.default,
    )
    for name, _window in options.models:
        upsert_model(provider=provider, name=name, settings=options.settings)
    for name in options.forget:
        model = provider.models.filter(name=name).first()
        if model is None:
            raise CommandError(f"{provider} has no model named {name}.")
        learning.forget_learnt(user=None, model=model)
    if options.fallback:
        _set_fallback(provider, options.fallback, [name for name, _window in options.models])
    return provider


def _set_fallback(provider: Provider, fallback_name: str, names: Sequence[str]) -> None:
    """Set the fallback of the named models of a provider."""
    fallback = find_model(fallback_name)
    for name in names:
        if name != fallback.name or provider != fallback.provider:
            set_fallback(model=provider.models.get(name=name), fallback=fallback)


def find_model(text: str) -> Model:
    """Return the usable model for a text such as `llama3.2:3b` or `Ollama/llama3.2:3b`. Raises `CommandError`."""
    provider_name, _, name = text.partition("/")
    matches = Q(name=text) | Q(provider__name=provider_name, name=name)
    models = list(Model.objects.usable().filter(matches))
    if len(models) != 1:
        problem = "There is no usable model" if not models else "Several providers have a model"
        raise CommandError(
            f"{problem} named {text}. Write MODEL or PROVIDER/MODEL, as `manage.py provider` has stored it."
        )
    return models[0]


def parse_model(text: str) -> tuple[str, int | None]:
    """Return the name and the window of an argument. `llama3.2:3b:8192` has 8,192 tokens, `llama3.2:3b` no window."""
    name, _, digits = text.rpartition(":")
    window = int(digits) if name and digits.isascii() and digits.isdecimal() else None
    if window is None:
        name = text
    if not name.strip():
        raise argparse.ArgumentTypeError("give NAME or NAME:WINDOW")
    return name, window


def _read_key(api_key: str | None, file: Path | None) -> str | None:
    """Return the API key from the option, the file or the environment. None without a key."""
    if api_key is not None:
        return api_key
    if file is None:
        return os.environ.get("PROVIDER_API_KEY") or None
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"The key file {file} cannot be read: {error}") from error
