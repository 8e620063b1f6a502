"""What is in every frame of the socket and every event of a turn, as JSON Schema: the contract that programs get.

`chat.events` and `chat.sockets` name the types; here are their members, and nothing else may be in what is sent.
`part` is an index into the answer's parts, `call` a tool call's id.
"""

from collections.abc import Mapping
from typing import Any, get_args

from accounts.news import News
from chat import sockets
from chat.events import Approval, EventType
from chat.models import Conversation, Turn
from llm.events import FinishReason

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "minimum": 0}
ID: Schema = {"type": "string", "format": "uuid"}
YES_NO: Schema = {"type": "boolean"}
PART: Schema = {**NUMBER, "description": "Index into the answer's parts."}
CALL: Schema = {**TEXT, "description": "The tool call's id, once in an answer."}
DELTA: Schema = {**TEXT, "description": "What is added to the text so far."}
BLOCKS: Schema = {
    "type": "array",
    "description": "[index, HTML] of each block of the text that is new or has changed. Placing one twice is harmless.",
    "items": {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 2, "maxItems": 2},
}
DOCUMENTS: Schema = {
    "type": "array",
    "description": "What was found: each with the number that it is cited by.",
    "items": {"type": "object", "properties": {"number": NUMBER, "title": TEXT}, "required": ["number", "title"]},
}
USAGE: Schema = {
    "type": "object",
    "description": "Tokens as the provider counts them, of all model calls of the turn.",
    "properties": dict.fromkeys(("input", "output", "cached_input", "reasoning", "calls"), NUMBER),
}


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


PAYLOADS: Mapping[EventType, Mapping[str, Schema]] = {
    EventType.RUN_STARTED: {"conversation": ID, "message": ID, "model": TEXT},
    EventType.TEXT_MESSAGE_START: {"part": PART},
    EventType.TEXT_MESSAGE_CONTENT: {"part": PART, "delta": DELTA, "blocks": BLOCKS},
    EventType.TEXT_MESSAGE_END: {"part": PART, "blocks": BLOCKS, "count": NUMBER},
    EventType.REASONING_START: {"part": PART},
    EventType.REASONING_CONTENT: {"part": PART, "delta": DELTA},
    EventType.REASONING_END: {"part": PART},
    EventType.TOOL_CALL_START: {"part": PART, "call": CALL, "name": TEXT},
    EventType.TOOL_CALL_ARGS: {"part": PART, "call": CALL, "delta": DELTA},
    EventType.TOOL_CALL_END: {"part": PART, "call": CALL, "label": TEXT},
    EventType.TOOL_CALL_APPROVAL: {"part": PART, "call": CALL, "state": one_of(*Approval)},
    EventType.TOOL_CALL_RESULT: {
        "part": PART,
        "call": CALL,
        "text": TEXT,
        "error": YES_NO,
        "arguments": {**TEXT, "description": "As really used."},
        "documents": DOCUMENTS,
    },
    EventType.CITATION: {"part": PART, "number": NUMBER, "title": TEXT, "href": TEXT},
    EventType.CONTEXT_REPORT: {
        "limit": {"type": "integer"},
        "used": NUMBER,
        "left_out": NUMBER,
        "refused": {**TEXT, "description": "What the provider said to a longer prompt before this one, or empty."},
    },
    EventType.RUN_FINISHED: {"usage": USAGE, "finish": one_of(*get_args(FinishReason))},
    EventType.RUN_STOPPED: {},
    EventType.RUN_ERROR: {
        "code": TEXT,
        "detail": TEXT,
        "status": one_of(Turn.Status.FAILED, Turn.Status.INTERRUPTED),
        "retryable": YES_NO,
    },
}
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
    sockets.BAD_FRAME: "A frame that is no JSON object with a known type.",
    4401: "Not signed in, or not any more.",
    sockets.NOT_YOURS: "There is no such conversation or turn, or it is not yours.",
    sockets.TOO_LARGE: f"A frame of more than {sockets.MAX_FRAME:,} characters.",
    sockets.TOO_FAST: f"More than {sockets.BURST} frames at once, or {sockets.PER_SECOND:g} a second.",
}


def of_event(type_: EventType) -> Schema:
    return _object(type_, {**NUMBERED, **PAYLOADS[type_]})


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
    return {name: of_frame(name) for name in sockets.FRAMES}


def _object(type_: str, members: Mapping[str, Schema], optional: "set[str] | frozenset[str]" = frozenset()) -> Schema:
    properties = {"type": {"const": str(type_)}, **members}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
