"""Calls of embedders and re-rankers in the ledger. The app's configuration registers it."""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

from django.db import transaction

from accounts.access.rights import billing_group
from chat.ledger.limits import require_available
from chat.ledger.models import ModelCall
from chat.models.conversation_state import join_line
from core.errors import ModelError
from files.index.ledger import Payer, SearchUsage
from files.models import Embedder, Reranker

MILLION = 1_000_000
THOUSAND = 1_000
MAX_SIZE = 2**31 - 1  # the largest value of the column


@contextmanager
def record_search_call(
    server: Embedder | Reranker, payer: Payer, expected: int, *, limited: bool = False
) -> Iterator[SearchUsage]:
    """Store a call in the ledger before it is made, and its real usage afterwards.

    Implements `files.index.ledger.Ledger`. `limited`: raises `limit_reached` (429) if the payer's tokens or money are
    used up or reserved. Simultaneous calls of one payer are checked one after the other. A call that fails without
    usage leaves no row.
    """
    row = _store_call(server, payer, expected, limited=limited)
    usage = SearchUsage()
    try:
        yield usage
    except ModelError:
        if not (usage.reported or usage.counted):
            row.delete()
        else:
            _settle(row, server, usage)
        raise
    _settle(row, server, usage)


@transaction.atomic
def _store_call(server: Embedder | Reranker, payer: Payer, expected: int, *, limited: bool) -> ModelCall:
    if limited and payer.person is not None:
        join_line(payer.person)
        require_available(payer.person, payer.token)
    embeds = isinstance(server, Embedder)
    row = ModelCall(
        person_id=payer.person,
        group_id=billing_group(payer.person) if payer.person is not None else None,
        token_id=payer.token,
        conversation_id=payer.conversation,
        model_name=server.model or server.name,
        provider_name=server.name,
        purpose=ModelCall.Purpose.EMBEDDING if embeds else ModelCall.Purpose.RERANKING,
        output=0,
    )
    _set_usage(row, server, SearchUsage(counted=expected, searches=1))
    row.save(force_insert=True)
    return row


def _settle(row: ModelCall, server: Embedder | Reranker, usage: SearchUsage) -> None:
    _set_usage(row, server, usage)
    row.save(force_update=True, update_fields=("input", "counted", "cost"))


def _set_usage(row: ModelCall, server: Embedder | Reranker, usage: SearchUsage) -> None:
    row.input = min(MAX_SIZE, usage.reported + usage.counted)
    row.counted = usage.counted > 0 or not usage.reported
    row.cost = _cost(server, row.input, usage.searches)


def _cost(server: Embedder | Reranker, tokens: int, searches: int) -> Decimal | None:
    """Return the cost in US dollars; None without a price. The bundled embedder is free: it runs in our process."""
    search_price = server.search_price if isinstance(server, Reranker) else None
    if isinstance(server, Embedder) and server.kind == Embedder.Kind.BUNDLED:
        return Decimal(0)
    if server.input_price is None and search_price is None:
        return None
    return (server.input_price or Decimal(0)) * tokens / MILLION + (search_price or Decimal(0)) * searches / THOUSAND
