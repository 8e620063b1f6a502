from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from core.errors import ModelError
from files.index.embedders import active_embedder
from files.index.indexing import activate, create_vector_index, reembed
from files.models import Embedder


class Command(BaseCommand):
    help = (
        "Embeds every chunk that the active embedder has not embedded yet. Search works meanwhile. May be stopped and "
        "started again: it goes on where it was."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--embedder", metavar="NAME", help="make this one active first")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["embedder"]
        embedder = active_embedder() if name is None else Embedder.objects.filter(name=name).first()
        if embedder is None:
            names = ", ".join(Embedder.objects.values_list("name", flat=True))
            raise CommandError(f"There is no embedder “{name}”. There are: {names or 'none'}.")
        try:
            create_vector_index(embedder.dimensions)
            activate(embedder)
            for done, total in reembed(embedder):
                self.stdout.write(f"\r{embedder}: {done:,} of {total:,} chunks", ending="")
                self.stdout.flush()
        except ModelError as error:
            raise CommandError(f"{error.detail} Run the command again to go on.") from error
        self.stdout.write(f"\n{embedder}: every chunk has its vector.")
