"""Give tool calls unique ids. If the protocol demands it, the ids are short and have only plain characters."""

import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace

from llm.types.model_call import ModelMessage

_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")


class CallIds:
    """Unique ids for the calls of one request.

    Some servers send no ids, or number the calls of each step, so `call_0` occurs in every step of a conversation.
    `max_length`: the maximum that the protocol allows, for ids of ASCII letters, digits, `_` and `-`. None: it accepts
    any id. `exact`: every id has exactly this length, and only letters and digits.
    """

    def __init__(self, max_length: int | None, *, exact: bool = False) -> None:
        self._max_length = max_length
        self._exact = exact
        self._sent: dict[str, str] = {}  # the latest sent id, by original id
        # Sent ids of calls without a result, by original id.
        self._unanswered: defaultdict[str, deque[str]] = defaultdict(deque)
        self._used: set[str] = set()

    def reserve(self, messages: Sequence[ModelMessage]) -> frozenset[int]:
        """Reserve the ids of the messages whose reasoning can be sent back unchanged. Returns their indices.

        If two messages use the same id, the later one keeps it: servers check the messages of the running turn most.
        """
        indices: set[int] = set()
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            ids = {call.id for call in message.tool_calls}
            if message.reasoning is not None and len(ids) == len(message.tool_calls) and ids.isdisjoint(self._used):
                indices.add(index)
                self._used |= ids
        return frozenset(indices)

    def keep(self, message: ModelMessage) -> None:
        """Use the ids of this message's calls unchanged. The results that follow refer to them."""
        for call in message.tool_calls:
            self._use(call.id, call.id)

    def id_for_call(self, id_: str) -> str:
        """Return the id to send for a call with this original id."""
        if self._exact:
            return self._exact_id(id_, self._max_length or len(id_))
        plain = id_ if self._max_length is None else (_NOT_PLAIN.sub("_", id_) or "call")[: self._max_length]
        new_id = plain = plain or "call"
        while new_id in self._used:
            number = f"_{len(self._used)}"
            new_id = plain[: None if self._max_length is None else self._max_length - len(number)] + number
        return self._use(id_, new_id)

    def _exact_id(self, id_: str, length: int) -> str:
        new_id = id_
        number = 0
        while len(new_id) != length or not (new_id.isascii() and new_id.isalnum()) or new_id in self._used:
            new_id = hashlib.sha256(f"{id_} {number}".encode()).hexdigest()[:length]
            number += 1
        return self._use(id_, new_id)

    def _use(self, id_: str, new_id: str) -> str:
        self._used.add(new_id)
        self._sent[id_] = new_id
        self._unanswered[id_].append(new_id)
        return new_id

    def id_for_result(self, id_: str) -> str:
        """Return the sent id of the call to which a result belongs.

        It is the oldest call with this original id that has no result, else the latest call.
        """
        waiting = self._unanswered[id_]
        return waiting.popleft() if waiting else self._sent.get(id_, id_)


def with_unique_ids(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return the messages with a unique id for each call and its result.

    Calls whose reasoning is sent back keep their ids, since servers may use them to find the calls.
    """
    ids = CallIds(max_length=None)
    result: list[ModelMessage] = []
    reserved = ids.reserve(messages)
    for index, message in enumerate(messages):
        if message.role == "tool":
            message = replace(message, tool_call_id=ids.id_for_result(message.tool_call_id or ""))
        elif index in reserved:
            ids.keep(message)
        elif message.tool_calls:
            calls = tuple(replace(call, id=ids.id_for_call(call.id)) for call in message.tool_calls)
            message = replace(message, tool_calls=calls)
        result.append(message)
    return tuple(result)
