"""Tool calls as protocols take them: ids that are plain, not too long and each for one call; arguments as an object."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from llm.types.model_call import Message

_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")


class CallIds:
    """Servers that send no ids, or number the calls of each step, leave `call_0` in every cycle of a conversation.

    `longest`: characters that the protocol allows. `exactly`: ids are of that length, of letters and digits.
    """

    def __init__(self, longest: int, *, exactly: bool = False) -> None:
        self._longest, self._exactly = longest, exactly
        self._sent: dict[str, str] = {}  # a call's id: the one sent for its latest use
        self._used: set[str] = set()

    def reserve(self, messages: Sequence[Message]) -> None:
        """The ids in messages whose reasoning goes back unchanged stay as they are."""
        kept = {call.id for message in messages if message.reasoning for call in message.tool_calls}
        self._used |= kept

    def keep(self, message: Message) -> None:
        """The results that follow belong to its calls, whose ids stay as they are."""
        self._sent |= {call.id: call.id for call in message.tool_calls}

    def of_call(self, id_: str) -> str:
        if self._exactly:
            return self._of_length(id_)
        plain = sent = (_NOT_PLAIN.sub("_", id_) or "call")[: self._longest]
        while sent in self._used:
            number = f"_{len(self._used)}"
            sent = plain[: self._longest - len(number)] + number
        self._used.add(sent)
        self._sent[id_] = sent
        return sent

    def _of_length(self, id_: str) -> str:
        sent, number = id_, 0
        while len(sent) != self._longest or not (sent.isascii() and sent.isalnum()) or sent in self._used:
            sent = hashlib.sha256(f"{id_} {number}".encode()).hexdigest()[: self._longest]
            number += 1
        self._used.add(sent)
        self._sent[id_] = sent
        return sent

    def of_result(self, id_: str) -> str:
        """The id of the call that it answers: the latest of that name."""
        return self._sent.get(id_, id_)


def json_object(arguments: str) -> dict[str, Any]:
    """The arguments of a call for protocols that want an object; what a model wrote instead is kept as it was."""
    try:
        value = json.loads(arguments or "{}", parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {"invalid_json": arguments}
    return value if isinstance(value, dict) else {"value": value}


def _refuse(constant: str) -> NoReturn:
    """NaN and Infinity are Python's, not JSON's: they could not be sent."""
    raise ValueError(constant)
