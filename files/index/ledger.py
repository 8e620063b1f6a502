"""The ledger as this app sees it: a protocol for storing calls of embedders and re-rankers.

The ledger itself is `chat.ledger`, which imports this app. It registers itself here when it starts.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from files.models import Embedder, Reranker


@dataclass(frozen=True, slots=True)
class Payer:
    """Ids of the user, the API token and the conversation that a call is billed to.

    All are None for calls of the workspace itself, such as the embedding of all chunks by a new embedder.
    """

    person: UUID | None = None
    token: UUID | None = None
    conversation: UUID | None = None


NO_PAYER = Payer()


@dataclass(slots=True)
class SearchUsage:
    """Usage of an embedder or re-ranker so far.

    `reported`: tokens as the server reports them. `counted`: tokens by our count, for requests without a report.
    `searches`: the unit that vendors of re-rankers bill.
    """

    reported: int = 0
    counted: int = 0
    searches: int = 0

    def add(self, reported: int, counted: int, searches: int = 0) -> None:
        """Add one request. `reported` is 0 if the server reports nothing."""
        self.reported += reported
        self.counted += 0 if reported else counted
        self.searches += searches


class Ledger(Protocol):
    def __call__(self, server: Embedder | Reranker, payer: Payer, expected: int) -> AbstractContextManager[SearchUsage]:
        """Return a context manager around one call.

        It stores the `expected` tokens before the call, and replaces them with the real usage after it. A call that
        fails without usage leaves no row.
        """


_ledgers: list[Ledger] = []


def register_ledger(ledger: Ledger) -> None:
    """Register the ledger. Its app calls this in `AppConfig.ready()`. Raises ValueError for a second ledger."""
    if _ledgers:
        raise ValueError(f"the ledger {_ledgers[0]!r} is registered already")
    _ledgers.append(ledger)


def record_call(server: Embedder | Reranker, payer: Payer, expected: int) -> AbstractContextManager[SearchUsage]:
    """Return a context manager that stores one call in the registered ledger, as `Ledger.__call__` describes."""
    return _ledgers[0](server, payer, expected)
