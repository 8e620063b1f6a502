"""What is in every frame of the socket and every event of a turn, as JSON Schema: the contract that programs get.

The events of a turn are described by their own vocabulary (`chat.realtime.events`); the notices and the frames of the
socket are described here. Nothing else may be in what is sent.
"""

from collections.abc import Mapping

from accounts.realtime import News
from chat.models import Conversation, Turn
from chat.realtime.events import ID, NUMBER, TEXT, VOCABULARY, EventType, Schema, one_of

BAD_FRAME, NOT_YOURS, TOO_LARGE, TOO_FAST = 4400, 4403, 4413, 4429  # codes a socket is closed with
MAX_FRAME = 524_288  # characters; below the web server's own limit of 1 MiB, which drops the connection without a word
BURST, PER_SECOND = 60, 20.0  # frames a socket may send at once, and for ever

NUMBERED: Mapping[str, Schema] = {
    "turn": ID,
    "seq": {"type": "integer", "minimum": 1, "description": "Counts from 1 within a turn, without gaps."},
    "ts": {"type": "number", "description": "Unix time in seconds."},
}
SNAPSHOT: Mapping[str, Schema] = {"turn": ID, "message": ID, "status": one_of(*Turn.Status)}

ANY_ID: Schema = {"type": ["string", "number", "null"], "description": "The sender's own, given back."}
STATE: Schema = one_of(*Conversation.State)
NOTICES: Mapping[str, Mapping[str, Schema]] = {
    "ACK": {"id": ANY_ID},
    "ERROR": {"id": ANY_ID, "code": TEXT, "detail": TEXT},
    "STATE": {"conversation": ID, "state": STATE, "title": TEXT, "summary": TEXT},
    "TITLE": {"conversation": ID, "title": TEXT},
    "NEXT": {"conversation": ID},
    "TURN": {"conversation": ID, "turn": ID, "message": ID},
    News.CONVERSATIONS: {},
    News.TASKS: {},
}
OPTIONAL = {"STATE": {"title", "summary"}}  # members that a notice may lack

FRAMES: Mapping[str, Mapping[str, Schema]] = {
    "ping": {},
    "watch": {"conversation": ID},
    "subscribe": {"turn": ID, "after_seq": NUMBER},
    "send": {"conversation": ID, "text": TEXT, "key": {**TEXT, "maxLength": 100}},
    "stop": {"turn": ID},
}
MAY_LACK = {"id", "after_seq", "key"}  # members that a client's frame may lack

MEANINGS: Mapping[str, str] = {
    **{str(type_): kind.meaning for type_, kind in VOCABULARY.items()},
    "ping": "Answered by the acknowledgement alone.",
    "watch": "Follow a conversation: its state at once, then STATE, TITLE, NEXT and TURN as they happen.",
    "subscribe": "The events of a turn after `after_seq`, to its end.",
    "send": "A message; while an answer is being written it waits for its end. `key` makes a repeat harmless.",
    "stop": "Stop a turn; what was written stays.",
    "ACK": "The frame with this `id` was carried out.",
    "ERROR": "The frame with this `id` was refused.",
    "STATE": "How a conversation stands.",
    "TITLE": "A conversation's new title.",
    "NEXT": "The message that waits in a conversation has changed.",
    "TURN": "An answer begins; subscribe to read it.",
    News.CONVERSATIONS: "The person's list of conversations has changed, by whatever device or program: read it again.",
    News.TASKS: "Tasks, checklists or runs of the person have changed. A token hears this if it has the scope `tasks`.",
    "SNAPSHOT": "The turn has ended and its events are no longer kept: read the turn itself.",
}
CLOSE_CODES: Mapping[int, str] = {
    1012: "The server restarts: connect again, and subscribe from the last `seq`.",
    BAD_FRAME: "A frame that is no JSON object with a known type.",
    4401: "Not signed in, or not any more.",
    NOT_YOURS: "There is no such conversation or turn, or it is not yours.",
    TOO_LARGE: f"A frame of more than {MAX_FRAME:,} characters.",
    TOO_FAST: f"More than {BURST} frames at once, or {PER_SECOND:g} a second.",
}


def of_event(type_: EventType) -> Schema:
    return _object(type_, {**NUMBERED, **VOCABULARY[type_].members})


def of_notice(type_: str) -> Schema:
    return _object(type_, NOTICES[type_], OPTIONAL.get(type_, set()))


def of_snapshot() -> Schema:
    return _object("SNAPSHOT", SNAPSHOT)


def of_frame(type_: str) -> Schema:
    """What a client may send; members that are not known are passed over."""
    return {**_object(type_, {"id": ANY_ID, **FRAMES[type_]}, MAY_LACK), "additionalProperties": True}


def sent_on_the_socket() -> dict[str, Schema]:
    notices = {name: of_notice(name) for name in NOTICES}
    return {**sent_for_a_turn(), **notices}


def sent_for_a_turn() -> dict[str, Schema]:
    """By type, what the SSE stream of a turn carries."""
    return {**{str(type_): of_event(type_) for type_ in EventType}, "SNAPSHOT": of_snapshot()}


def received() -> dict[str, Schema]:
    return {name: of_frame(name) for name in FRAMES}


def _object(type_: str, members: Mapping[str, Schema], optional: "set[str] | frozenset[str]" = frozenset()) -> Schema:
    properties = {"type": {"const": str(type_)}, **members}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
