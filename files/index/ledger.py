"""What servers that embed and re-rank have read is written down in the ledger, which stands above the files."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from files.models import Embedder, Reranker


@dataclass(frozen=True, slots=True)
class Payer:
    """Whose a call is, by ids: a person's, of a program's token, for a conversation; nobody's where the workspace
    itself asks, as for vectors that are made anew."""

    person: UUID | None = None
    token: UUID | None = None
    conversation: UUID | None = None


NOBODY = Payer()


@dataclass(slots=True)
class Read:
    """What a server has read so far, in tokens: `said` by it, and `counted` by us where it says nothing. `searches` as
    vendors of re-rankers bill them."""

    said: int = 0
    counted: int = 0
    searches: int = 0

    def add(self, said: int, counted: int, searches: int = 0) -> None:
        """Of one request; `said` is 0 where the server does not say."""
        self.said += said
        self.counted += 0 if said else counted
        self.searches += searches


class Ledger(Protocol):
    def __call__(self, server: Embedder | Reranker, payer: Payer, expected: int) -> AbstractContextManager[Read]:
        """Around a call: in the ledger are the tokens that are `expected` from before it is made, and what was read
        after it; one that failed before anything was read is not."""


_ledgers: list[Ledger] = []


def write_down_in(ledger: Ledger) -> None:
    """Register the ledger, in `AppConfig.ready()` of the app that has it. Raises ValueError for a second one."""
    if _ledgers:
        raise ValueError(f"searches are written down by {_ledgers[0]!r} already")
    _ledgers.append(ledger)


def written_down(server: Embedder | Reranker, payer: Payer, expected: int) -> AbstractContextManager[Read]:
    return _ledgers[0](server, payer, expected)
