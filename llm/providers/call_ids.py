"""Give tool calls unique ids, which are also plain and short if the protocol demands it."""

import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace

from llm.types.model_call import ModelMessage

_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")


class CallIds:
    """Unique ids for the calls of one request.

    Some servers send no ids or number the calls of each step, so `call_0` occurs in every cycle of a conversation.
    `longest`: the greatest length that the protocol allows, for ids of ASCII letters, digits, `_` and `-`; None if it
    accepts any id. `exactly`: every id has this length, and only letters and digits.
    """

    def __init__(self, longest: int | None, *, exactly: bool = False) -> None:
        self._longest = longest
        self._exactly = exactly
        self._sent: dict[str, str] = {}  # the latest sent id, by original id
        # Sent ids of calls without a result, by original id.
        self._unanswered: defaultdict[str, deque[str]] = defaultdict(deque)
        self._used: set[str] = set()

    def reserve(self, messages: Sequence[ModelMessage]) -> frozenset[int]:
        """Reserve the ids of the messages whose reasoning can be sent back unchanged. Returns their indices.

        If two messages use one id, the later one keeps it: it belongs to the running turn, which servers check most.
        """
        places: set[int] = set()
        for place in range(len(messages) - 1, -1, -1):
            message = messages[place]
            ids = {call.id for call in message.tool_calls}
            if message.reasoning is not None and len(ids) == len(message.tool_calls) and ids.isdisjoint(self._used):
                places.add(place)
                self._used |= ids
        return frozenset(places)

    def keep(self, message: ModelMessage) -> None:
        """Use the ids of this message's calls unchanged. The results that follow belong to them."""
        for call in message.tool_calls:
            self._use(call.id, call.id)

    def of_call(self, id_: str) -> str:
        """Return the id to send for a call with this original id."""
        if self._exactly:
            return self._of_length(id_, self._longest or len(id_))
        plain = id_ if self._longest is None else (_NOT_PLAIN.sub("_", id_) or "call")[: self._longest]
        sent = plain = plain or "call"
        while sent in self._used:
            number = f"_{len(self._used)}"
            sent = plain[: None if self._longest is None else self._longest - len(number)] + number
        return self._use(id_, sent)

    def _of_length(self, id_: str, length: int) -> str:
        sent = id_
        number = 0
        while len(sent) != length or not (sent.isascii() and sent.isalnum()) or sent in self._used:
            sent = hashlib.sha256(f"{id_} {number}".encode()).hexdigest()[:length]
            number += 1
        return self._use(id_, sent)

    def _use(self, id_: str, sent: str) -> str:
        self._used.add(sent)
        self._sent[id_] = sent
        self._unanswered[id_].append(sent)
        return sent

    def of_result(self, id_: str) -> str:
        """Return the sent id of the call to which a result belongs.

        It is the oldest call with this original id that has no result, else the latest call.
        """
        waiting = self._unanswered[id_]
        return waiting.popleft() if waiting else self._sent.get(id_, id_)


def with_own_ids(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return the messages with a unique id for each call and its result.

    Calls whose reasoning is sent back keep their ids, since servers may recognise them by these.
    """
    ids = CallIds(longest=None)
    sent: list[ModelMessage] = []
    unchanged = ids.reserve(messages)
    for place, message in enumerate(messages):
        if message.role == "tool":
            message = replace(message, tool_call_id=ids.of_result(message.tool_call_id or ""))
        elif place in unchanged:
            ids.keep(message)
        elif message.tool_calls:
            calls = tuple(replace(call, id=ids.of_call(call.id)) for call in message.tool_calls)
            message = replace(message, tool_calls=calls)
        sent.append(message)
    return tuple(sent)
