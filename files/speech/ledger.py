"""The ledger as this package sees it. `chat.ledger` registers itself when it starts."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from files.index.ledger import Payer
from files.models import SpeechServer


@dataclass(slots=True)
class SpeechUsage:
    """Usage of a speech server by one call.

    `seconds`: the duration of the sound. `counted`: it is our estimate, since the server reports none. `characters`:
    of a text that is read aloud. `input` and `output`: tokens.
    """

    seconds: float = 0.0
    counted: bool = True
    characters: int = 0
    input: int = 0
    output: int = 0


class SpeechLedger(Protocol):
    def __call__(
        self, server: SpeechServer, payer: Payer, expected: SpeechUsage
    ) -> AbstractContextManager[SpeechUsage]:
        """Return a context manager around one call. It yields `expected`, which the call corrects.

        It stores the expected usage before the call, and the corrected usage after it. A call whose answer does not
        come or breaks off stays with the expected usage, as failed: the provider may bill it. Another call that fails
        leaves no row.
        Raises `limit_reached` (429) if a limit of the payer is used up.
        """


_ledgers: list[SpeechLedger] = []


def register_speech_ledger(ledger: SpeechLedger) -> None:
    """Register the ledger. Its app calls this in `AppConfig.ready()`. Raises ValueError for a second ledger."""
    if _ledgers:
        raise ValueError(f"the ledger {_ledgers[0]!r} is registered already")
    _ledgers.append(ledger)


def record_call(server: SpeechServer, payer: Payer, expected: SpeechUsage) -> AbstractContextManager[SpeechUsage]:
    """Return a context manager that stores one call in the ledger, as `SpeechLedger.__call__` describes."""
    return _ledgers[0](server, payer, expected)
