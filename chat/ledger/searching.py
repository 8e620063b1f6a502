"""Calls of embedders and re-rankers in the ledger; `files.index.ledger` has it registered."""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

from django.db import transaction

from accounts.access.rights import counted_to
from chat.ledger.limits import require_room
from chat.ledger.models import ModelCall
from chat.models.conversation_state import join_line
from core.errors import ModelError
from files.index.ledger import Payer, Read
from files.models import Embedder, Reranker

MILLION, THOUSAND = 1_000_000, 1_000
LARGEST = 2**31 - 1  # what the column holds


@contextmanager
def written_down(server: Embedder | Reranker, payer: Payer, expected: int, *, limited: bool = False) -> Iterator[Read]:
    """As `files.index.ledger.Ledger`. `limited`: raises `limit_reached` (429) where the payer's tokens or money are
    used up or set aside; of many at once no two go by the same sum."""
    row = _begun(server, payer, expected, limited=limited)
    read = Read()
    try:
        yield read
    except ModelError:
        if not (read.said or read.counted):
            row.delete()
        else:
            _settle(row, server, read)
        raise
    _settle(row, server, read)


@transaction.atomic
def _begun(server: Embedder | Reranker, payer: Payer, expected: int, *, limited: bool) -> ModelCall:
    if limited and payer.person is not None:
        join_line(payer.person)
        require_room(payer.person, payer.token)
    embeds = isinstance(server, Embedder)
    row = ModelCall(
        person_id=payer.person,
        group_id=counted_to(payer.person) if payer.person is not None else None,
        token_id=payer.token,
        conversation_id=payer.conversation,
        model_name=server.model or server.name,
        provider_name=server.name,
        purpose=ModelCall.Purpose.EMBEDDING if embeds else ModelCall.Purpose.RERANKING,
        output=0,
    )
    _take(row, server, Read(counted=expected, searches=1))
    row.save(force_insert=True)
    return row


def _settle(row: ModelCall, server: Embedder | Reranker, read: Read) -> None:
    _take(row, server, read)
    row.save(force_update=True, update_fields=("input", "counted", "cost"))


def _take(row: ModelCall, server: Embedder | Reranker, read: Read) -> None:
    row.input, row.counted = min(LARGEST, read.said + read.counted), read.counted > 0 or not read.said
    row.cost = _cost(server, row.input, read.searches)


def _cost(server: Embedder | Reranker, tokens: int, searches: int) -> Decimal | None:
    """US dollars; None without a price. The bundled embedder runs in our own processes."""
    of_searches = server.search_price if isinstance(server, Reranker) else None
    if isinstance(server, Embedder) and server.kind == Embedder.Kind.BUNDLED:
        return Decimal(0)
    if server.input_price is None and of_searches is None:
        return None
    return (server.input_price or Decimal(0)) * tokens / MILLION + (of_searches or Decimal(0)) * searches / THOUSAND
