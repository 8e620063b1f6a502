"""Calls of speech servers in the ledger. The app's configuration registers it."""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from math import ceil

from django.db import transaction

from accounts.access.rights import billing_group
from chat.ledger.limits import require_speech_available
from chat.ledger.models import ModelCall
from chat.models.conversation_state import join_line
from core.errors import ModelError
from files.index.ledger import Payer
from files.models import SpeechServer
from files.speech.ledger import SpeechUsage

MILLION = 1_000_000
MAX_SIZE = 2**31 - 1  # the largest value of the columns
# Codes of `ModelError` for a request that was sent, whose answer did not come or broke off. The provider may have done
# the work and bill it. Calls that fail in another way count as not billed, which no protocol promises.
BILLABLE_CODES = frozenset({"provider_timeout", "stream_cut"})


@contextmanager
def record_speech_call(server: SpeechServer, payer: Payer, expected: SpeechUsage) -> Iterator[SpeechUsage]:
    """Store a call in the ledger before it is made, and its real usage afterwards.

    Implements `files.speech.ledger.SpeechLedger`. Simultaneous calls of one payer are checked one after the other.
    """
    row = _store_call(server, payer, expected)
    try:
        yield expected
    except Exception as error:
        if isinstance(error, ModelError) and error.code in BILLABLE_CODES:
            row.failed = True
            row.save(force_update=True, update_fields=("failed",))
        else:
            row.delete()
        raise
    _set_usage(row, server, expected)
    row.save(force_update=True, update_fields=("input", "output", "seconds", "counted", "cost"))


@transaction.atomic
def _store_call(server: SpeechServer, payer: Payer, expected: SpeechUsage) -> ModelCall:
    if payer.person is not None:
        join_line(payer.person)
        require_speech_available(payer.person, payer.token)
    transcribes = server.kind == SpeechServer.Kind.TRANSCRIPTION
    row = ModelCall(
        person_id=payer.person,
        group_id=billing_group(payer.person) if payer.person is not None else None,
        token_id=payer.token,
        model_name=server.model or server.name,
        provider_name=server.name,
        purpose=ModelCall.Purpose.TRANSCRIPT if transcribes else ModelCall.Purpose.SPEECH,
    )
    _set_usage(row, server, expected)
    row.save(force_insert=True)
    return row


def _set_usage(row: ModelCall, server: SpeechServer, usage: SpeechUsage) -> None:
    row.seconds = min(MAX_SIZE, ceil(usage.seconds))
    row.input = min(MAX_SIZE, usage.input)
    row.output = min(MAX_SIZE, usage.output)
    row.counted = usage.counted
    row.cost = _cost(server, usage)


def _cost(server: SpeechServer, usage: SpeechUsage) -> Decimal | None:
    """Return the cost in US dollars; None without a price."""
    if server.minute_price is None and server.character_price is None:
        return None
    by_minute = (server.minute_price or Decimal(0)) * Decimal(str(round(usage.seconds, 3))) / 60
    by_character = (server.character_price or Decimal(0)) * usage.characters / MILLION
    return (by_minute + by_character).quantize(Decimal("1e-12"))
