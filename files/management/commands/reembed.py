import os
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from core.errors import ModelError
from files.index.embedders import active_embedder
from files.index.indexing import activate, add_embedder, create_vector_index, reembed
from files.models import Embedder


class Command(BaseCommand):
    help = (
        "Embeds every chunk that the active embedder has not embedded yet. Search works meanwhile. If it is "
        "interrupted, run it again: it continues where it stopped. With --url and --model it adds the embedder first."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--embedder", metavar="NAME", help="make this one active first")
        parser.add_argument("--url", help="base URL of an OpenAI-compatible server, to add a new embedder")
        parser.add_argument("--model", help="its model; also the name of the embedder, unless --embedder states one")
        parser.add_argument("--key-from", metavar="VARIABLE", help="environment variable with the API key, if any")
        parser.add_argument("--query-prefix", default="", help="prefix that the model expects before a question")
        parser.add_argument("--passage-prefix", default="", help="prefix that the model expects before a text")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            embedder = _added(options) if options["url"] or options["model"] else _stored(options["embedder"])
            create_vector_index(embedder.dimensions)
            activate(embedder)
            for done, total in reembed(embedder):
                self.stdout.write(f"\r{embedder}: {done:,} of {total:,} chunks", ending="")
                self.stdout.flush()
        except ModelError as error:
            raise CommandError(f"{error.detail} Run the command again to continue.") from error
        self.stdout.write(f"\n{embedder}: every chunk has its vector.")


def _stored(name: str | None) -> Embedder:
    embedder = active_embedder() if name is None else Embedder.objects.filter(name=name).first()
    if embedder is None:
        names = ", ".join(Embedder.objects.values_list("name", flat=True))
        raise CommandError(f"There is no embedder “{name}”. The embedders are: {names or 'none'}.")
    return embedder


def _added(options: dict[str, Any]) -> Embedder:
    """Return the new embedder, or the one of the same name, URL and model that an earlier run has added."""
    if not (options["url"] and options["model"]):
        raise CommandError("A new embedder needs both --url and --model.")
    name = options["embedder"] or options["model"]
    stored = Embedder.objects.filter(name=name, base_url=options["url"], model=options["model"]).first()
    if stored is not None:
        return stored
    try:
        return add_embedder(
            name=name,
            base_url=options["url"],
            model=options["model"],
            api_key=os.environ.get(options["key_from"] or "", ""),
            query_prefix=options["query_prefix"],
            passage_prefix=options["passage_prefix"],
        )
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from error
