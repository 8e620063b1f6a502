"""The events of a turn, and the notices and frames of the socket.

Sockets, server-sent events and the Redis stream carry the events, and `fold` builds the answer's parts from them. The
names resemble those of the AG-UI protocol, the payloads are our own; `POST /api/v1/ag-ui/` speaks AG-UI itself. All are
described as JSON Schema, which is the contract for programs; nothing else is sent.

To add an event:

1. Add it to `EventType` with its meaning and the schema of its members.
2. Add new members to `EventPayload`.
3. Emit it in `chat.turns` (`Answer.emit`), and apply it to the answer's parts in `fold`.
4. Handle it in `static/js` and in `chat.openai_api.answer` and `contrib.ag_ui.translation`, or let them ignore it.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Required, Self, TypeAlias, TypedDict, get_args

from accounts.realtime import NOT_SIGNED_IN, TOO_MANY, News
from chat.citations.differences import DoubtKind
from chat.models import Conversation, Turn
from chat.models.parts import CitationDoubt, CitationPlace, CitedSource, FoundDocument, MessagePart
from core.json_types import JsonObject
from core.net.outgoing import OutgoingRequest
from core.sentences import Sentence
from llm.types.forms import ToolQuestion
from llm.types.model_call import FinishReason, ResultFile, StoredResultJson

Schema: TypeAlias = JsonObject  # JSON Schema

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "minimum": 0}
ID: Schema = {"type": "string", "format": "uuid"}
BOOLEAN: Schema = {"type": "boolean"}
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


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


PARTS: Schema = {
    "type": "array",
    "description": "The answer's parts, in their order: each as the turn and its message have it.",
    "items": {
        "type": "object",
        "properties": {"type": one_of("text", "reasoning", "tool_call", "tool_result")},
        "required": ["type"],
    },
}

DOUBTS: Schema = {
    "type": "array",
    "description": "Sentences that their passage does not carry: which citation of the text (from 0), what it cites, "
    "the sentence, the part of the passage it was held against, and what speaks against it.",
    "items": {
        "type": "object",
        "properties": {
            "citation": NUMBER,
            "numbers": {"type": "array", "items": NUMBER},
            "sentence": TEXT,
            "evidence": TEXT,
            "reasons": {
                "type": "array",
                "items": {"type": "object", "properties": {"reason": one_of(*DoubtKind), "words": TEXT}},
            },
        },
        "required": ["citation", "numbers", "sentence", "evidence", "reasons"],
    },
}
PLACES: Schema = {
    "type": "array",
    "description": "The sentence that a citation of the text (from 0) leads to: in a file its characters, those of its "
    "passage, and its page; of a web page the sentence itself.",
    "items": {
        "type": "object",
        "properties": {
            **dict.fromkeys(("citation", "number", "page", "start", "end", "sentence_start", "sentence_end"), NUMBER),
            **dict.fromkeys(("file", "heading", "quote"), TEXT),
        },
        "required": ["citation", "number"],
    },
}
OUTGOING: Schema = {
    "type": "array",
    "description": "What left the workspace: to which host, and the address, query or arguments to the letter.",
    "items": {"type": "object", "properties": {"host": TEXT, "what": TEXT}, "required": ["host", "what"]},
}
STORED: Schema = {
    "type": "object",
    "description": "Of a result that is too long for a prompt, or may become so: tokens and characters of the whole, "
    "how many characters are kept under which id, and where the marker stands in the text that says what was left out. "
    "Else empty.",
    "properties": {"id": TEXT, **dict.fromkeys(("tokens", "characters", "kept", "head", "marker"), NUMBER)},
}
FORM: Schema = {
    "type": "object",
    "description": "The form with which the tool asks, or empty. The answer goes to `turns/<turn>/approvals/`.",
    "properties": {
        "number": NUMBER,
        "message": TEXT,
        "url": {**TEXT, "description": "A page that the person opens instead of filling in fields; or empty."},
        "fields": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    **dict.fromkeys(("name", "title", "description", "input"), TEXT),
                    "kind": one_of("text", "number", "integer", "boolean", "choice", "choices"),
                    "required": BOOLEAN,
                },
                "required": ["name", "title", "kind", "required"],
            },
        },
    },
}
RESULT_FILES: Schema = {
    "type": "array",
    "description": "Files that the tool returned: attached to the answer, and read as uploads are. `image`: it can be "
    "shown at `/files/<file>/shown/`.",
    "items": {
        "type": "object",
        "properties": {"file": ID, "name": TEXT, "image": BOOLEAN},
        "required": ["file", "name", "image"],
    },
}
USAGE: Schema = {
    "type": "object",
    "description": "Tokens as the provider counts them, of all model calls of the turn.",
    "properties": dict.fromkeys(("input", "output", "cached_input", "reasoning", "calls"), NUMBER),
}


class Approval(StrEnum):
    """State of a tool call that only the conversation's owner can allow. Without a decision in time it is not run."""

    WAITING = "waiting"
    ALLOWED = "allowed"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"


class EventType(StrEnum):
    """Kind of an event: its name, its meaning, and the JSON Schema of its payload's members."""

    meaning: str
    members: Mapping[str, Schema]

    def __new__(cls, name: str, meaning: str = "", members: Mapping[str, Schema] = MappingProxyType({})) -> Self:
        type_ = str.__new__(cls, name)
        type_._value_ = name
        type_.meaning = meaning
        type_.members = members
        return type_

    RUN_STARTED = "RUN_STARTED", "The turn begins.", {"conversation": ID, "message": ID, "model": TEXT}
    MODEL_FALLBACK = (
        "MODEL_FALLBACK",
        "The chosen model is unavailable, so its fallback answers instead.",
        {"model": TEXT, "instead_of": TEXT, "code": TEXT, "detail": TEXT},
    )
    TEXT_MESSAGE_START = "TEXT_MESSAGE_START", "A part of text begins.", {"part": PART}
    TEXT_MESSAGE_CONTENT = "TEXT_MESSAGE_CONTENT", "Text is added.", {"part": PART, "delta": DELTA, "blocks": BLOCKS}
    TEXT_MESSAGE_END = (
        "TEXT_MESSAGE_END",
        "The part is complete; it has `count` blocks.",
        {"part": PART, "blocks": BLOCKS, "count": NUMBER},
    )
    REASONING_START = "REASONING_START", "A part of reasoning begins.", {"part": PART}
    REASONING_CONTENT = "REASONING_CONTENT", "Reasoning is added.", {"part": PART, "delta": DELTA}
    REASONING_END = "REASONING_END", "The part of reasoning is complete.", {"part": PART}
    TEXT_BECAME_REASONING = (
        "TEXT_BECAME_REASONING",
        "A part of text that has no end yet was reasoning all along: it is a part of reasoning now, and complete.",
        {"part": PART, "text": {**TEXT, "description": "All of it."}},
    )
    TOOL_CALL_START = "TOOL_CALL_START", "The model calls a tool.", {"part": PART, "call": CALL, "name": TEXT}
    TOOL_CALL_ARGS = "TOOL_CALL_ARGS", "Arguments of a call are added.", {"part": PART, "call": CALL, "delta": DELTA}
    TOOL_CALL_END = (
        "TOOL_CALL_END",
        "The call is complete; `label` says what it does.",
        {"part": PART, "call": CALL, "label": TEXT},
    )
    TOOL_CALL_APPROVAL = (
        "TOOL_CALL_APPROVAL",
        "A call waits for its person, or has been decided. With a `form` its tool asks the person while it runs.",
        {
            "part": PART,
            "call": CALL,
            "state": one_of(*Approval),
            "until": {**TEXT, "description": "While it waits: when it counts as refused, as in ISO 8601. Else empty."},
            "form": FORM,
        },
    )
    TOOL_CALL_PROGRESS = (
        "TOOL_CALL_PROGRESS",
        "The progress of a tool, as its server describes it. At most one event a second for each call.",
        {"part": PART, "call": CALL, "text": TEXT},
    )
    TOOL_CALL_RESULT = (
        "TOOL_CALL_RESULT",
        "The result of a tool call.",
        {
            "part": PART,
            "call": CALL,
            "text": TEXT,
            "error": BOOLEAN,
            "arguments": {**TEXT, "description": "As really used."},
            "documents": DOCUMENTS,
            "outgoing": OUTGOING,
            "stored": STORED,
            "files": RESULT_FILES,
        },
    )
    CITATION = (
        "CITATION",
        "A source that the text cites, once, when its text has ended.",
        {"part": PART, "number": NUMBER, "title": TEXT, "href": TEXT},
    )
    CITATION_CHECK = (
        "CITATION_CHECK",
        "How the sentences of a text that cite something compare with their passages; before the end of the turn.",
        {
            "part": PART,
            "checked": {**NUMBER, "description": "Sentences that were compared."},
            "doubts": DOUBTS,
            "places": PLACES,
        },
    )
    CONTEXT_REPORT = (
        "CONTEXT_REPORT",
        "The size of the prompt in tokens, and how much is left out of it.",
        {
            "limit": {"type": "integer"},
            "used": NUMBER,
            "left_out": {**NUMBER, "description": "Messages and files for which there is no room."},
            "refused": {**TEXT, "description": "What the provider said to a longer prompt before this one, or empty."},
        },
    )
    RUN_FINISHED = (
        "RUN_FINISHED",
        "The answer is complete.",
        {
            "usage": USAGE,
            "finish": one_of(*get_args(FinishReason)),
            "finish_detail": {**TEXT, "description": "The provider's own word where `finish` is other; else empty."},
        },
    )
    RUN_STOPPED = "RUN_STOPPED", "The answer was stopped; its text so far stays."
    RUN_ERROR = (
        "RUN_ERROR",
        "The answer failed or was interrupted; its text so far stays.",
        {
            "code": TEXT,
            "detail": TEXT,
            "status": one_of(Turn.Status.FAILED, Turn.Status.INTERRUPTED),
            "retryable": BOOLEAN,
        },
    )
    SNAPSHOT = (
        "SNAPSHOT",
        "Events were lost: instead of them, all that the answer holds up to `seq`. Those after it follow, but for a "
        "turn that has ended by its `status`.",
        {
            "seq": NUMBER,
            "message": ID,
            "status": one_of(*Turn.Status),
            "model": TEXT,
            "fallback": {**TEXT, "description": "Why another model answers than was asked, a code; or empty."},
            "parts": PARTS,
        },
    )


class EventPayload(TypedDict, total=False):
    """Members of an event. `EventType.members` describes which type has which. Only QUEUED has `position`."""

    conversation: str
    message: str
    model: str
    instead_of: str
    code: str
    detail: str
    part: int
    delta: str
    blocks: list[tuple[int, str]]
    count: int
    text: str
    call: str
    name: str
    label: str
    state: str
    until: str
    form: ToolQuestion
    error: bool
    arguments: str
    documents: list[FoundDocument]
    outgoing: list[OutgoingRequest]
    stored: StoredResultJson
    files: list[ResultFile]
    number: int
    title: str
    href: str
    checked: int
    doubts: list[CitationDoubt]
    places: list[CitationPlace]
    limit: int
    used: int
    left_out: int
    refused: str
    usage: dict[str, int]
    finish: str
    finish_detail: str
    status: str
    retryable: bool
    fallback: str
    parts: list[MessagePart]
    position: int


class WireEvent(EventPayload, total=False):
    """An event in its sent form. QUEUED has no `seq` and `ts`."""

    type: Required[str]
    turn: str
    seq: int
    ts: float


END_EVENTS = frozenset({EventType.RUN_FINISHED, EventType.RUN_STOPPED, EventType.RUN_ERROR})
# Types with members that people read in their language, see `event_stream.readable`.
TRANSLATED_TYPES = frozenset(
    type_ for type_ in EventType if not type_.members.keys().isdisjoint({"detail", "label", "refused", "parts"})
)


def translate_parts(parts: Iterable[MessagePart], words: Callable[[Sentence], str] = str) -> list[MessagePart]:
    """Return the parts of an answer with the labels of tool calls as text, by default in the active language."""
    return [{**part, "label": words(Sentence.load(part["label"]))} if "label" in part else part for part in parts]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a turn. `seq` counts from 1 within the turn, without gaps; `ts` is Unix time in seconds."""

    type: EventType
    turn: str
    seq: int
    payload: EventPayload
    ts: float = field(default_factory=time.time)

    def to_wire(self) -> WireEvent:
        return {"type": self.type, "turn": self.turn, "seq": self.seq, "ts": round(self.ts, 3), **self.payload}

    @property
    def last(self) -> bool:
        return self.type in END_EVENTS


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    """An event as its readers get it. `text` is the JSON of its wire object, encoded once by its writer.

    QUEUED has `seq` 0. Neither QUEUED nor a SNAPSHOT is in the stream.
    """

    type: str
    seq: int
    text: str

    @property
    def last(self) -> bool:
        return self.type in END_EVENTS

    def wire(self) -> WireEvent:
        wire: WireEvent = json.loads(self.text)
        return wire


def encode(wire: WireEvent) -> str:
    """Return the JSON of an event."""
    return json.dumps(wire, ensure_ascii=False, separators=(",", ":"))


def fold(parts: list[MessagePart], type_: EventType, payload: EventPayload) -> None:
    """Apply one event to an answer's parts, in place. The worker and the recovery of a dead turn share it."""
    match type_:
        case EventType.SNAPSHOT:
            parts[:] = deepcopy(payload["parts"])
        case EventType.TEXT_MESSAGE_CONTENT | EventType.REASONING_CONTENT:
            parts[payload["part"]]["text"] += payload["delta"]
        case EventType.TEXT_MESSAGE_START | EventType.REASONING_START:
            parts.append({"type": "text" if type_ == EventType.TEXT_MESSAGE_START else "reasoning", "text": ""})
        case EventType.TEXT_BECAME_REASONING:
            parts[payload["part"]] = {"type": "reasoning", "text": payload["text"]}
        case EventType.CITATION:
            source: CitedSource = {
                "number": payload["number"],
                "title": payload["title"],
                "href": payload["href"],
            }
            parts[payload["part"]].setdefault("citations", []).append(source)
        case EventType.CITATION_CHECK:
            if payload["checked"]:
                parts[payload["part"]]["check"] = {"checked": payload["checked"], "doubts": payload["doubts"]}
            if payload.get("places"):  # none from a worker of an older version
                parts[payload["part"]]["places"] = payload["places"]
        case _:
            _fold_call(parts, type_, payload)


def _fold_call(parts: list[MessagePart], type_: EventType, payload: EventPayload) -> None:
    match type_:
        case EventType.TOOL_CALL_START:
            parts.append({"type": "tool_call", "id": payload["call"], "name": payload["name"], "arguments": ""})
        case EventType.TOOL_CALL_ARGS:
            parts[payload["part"]]["arguments"] += payload["delta"]
        case EventType.TOOL_CALL_END:
            parts[payload["part"]]["label"] = payload["label"]
        case EventType.TOOL_CALL_APPROVAL:
            call = parts[payload["part"]]
            call["approval"] = payload["state"]
            call["until"] = payload.get("until", "")
            if form := payload.get("form"):  # none from a worker of an older version
                call["form"] = form
        case EventType.TOOL_CALL_RESULT:
            _add_result(parts, payload)


def _add_result(parts: list[MessagePart], payload: EventPayload) -> None:
    call = next(part for part in parts if part["type"] == "tool_call" and part["id"] == payload["call"])
    call["arguments"] = payload["arguments"]
    result: MessagePart = {
        "type": "tool_result",
        "id": payload["call"],
        "text": payload["text"],
        "error": payload["error"],
        "documents": payload["documents"],
    }
    if outgoing := payload.get("outgoing"):
        result["outgoing"] = outgoing
    if stored := payload.get("stored"):
        result["stored"] = stored
    if files := payload.get("files"):  # none from a worker of an older version
        result["files"] = files
    parts.append(result)


# Close codes of the socket.
BAD_FRAME = 4400
NOT_YOURS = 4403
TOO_LARGE = 4413
TOO_FAST = 4429
BROKEN_OFF = 1011  # RFC 6455: an unexpected condition keeps the server from going on
MAX_IDS = 50  # ids in one list of a frame
MAX_FRAME = 524_288  # characters; above its own limit of 1 MiB the web server drops the connection without a message
LAST_SEQ = 999_999_999  # the largest `after_seq` of a client; Redis refuses numbers above 64 bits
BURST = 60  # frames that a socket may send at once
PER_SECOND = 20.0  # frames that a socket may send on average

NUMBERED: Mapping[str, Schema] = {
    "turn": ID,
    "seq": {"type": "integer", "minimum": 1, "description": "Counts from 1 within a turn, without gaps."},
    "ts": {"type": "number", "description": "Unix time in seconds."},
}
POSITION: Mapping[str, Schema] = {"turn": ID, "position": {"type": "integer", "minimum": 1}}

ANY_ID: Schema = {"type": ["string", "number", "null"], "description": "The sender's own, given back."}
STATE: Schema = one_of(*Conversation.State)
NOTICES: Mapping[str, Mapping[str, Schema]] = {
    "ACK": {"id": ANY_ID},
    "ERROR": {"id": ANY_ID, "code": TEXT, "detail": TEXT},
    "STATE": {"conversation": ID, "state": STATE, "title": TEXT, "summary": TEXT},
    "TITLE": {"conversation": ID, "title": TEXT},
    "NEXT": {"conversation": ID},
    "MARKS": {"conversation": ID, "message": ID},
    "TURN": {"conversation": ID, "turn": ID, "message": ID},
    News.CONVERSATIONS: {},
    News.TASKS: {},
    News.INVITATIONS: {},
    News.READINGS: {},
    News.SHARED: {},
}
OPTIONAL_NOTICE_MEMBERS = {"STATE": {"title", "summary"}, "MARKS": {"message"}}  # members that a notice may lack

KEY: Schema = {**TEXT, "maxLength": 100}
FRAMES: Mapping[str, Mapping[str, Schema]] = {
    "ping": {},
    "watch": {"conversation": ID},
    "subscribe": {"turn": ID, "after_seq": {**NUMBER, "maximum": LAST_SEQ}},
    "send": {
        "conversation": ID,
        "text": TEXT,
        "files": {"type": "array", "items": ID, "maxItems": MAX_IDS},
        "models": {"type": "array", "items": ID, "maxItems": MAX_IDS},
        "parent": ID,
        "key": KEY,
        "effort": TEXT,
    },
    "continue": {"message": ID, "key": KEY},
    "regenerate": {"message": ID, "key": KEY},
    "stop": {"turn": ID},
    "mark": {"message": ID, "file": ID, "mark": {"type": ["string", "null"], "enum": ["pinned", "excluded", None]}},
}
# Members that a client's frame may lack.
OPTIONAL_FRAME_MEMBERS = {"id", "after_seq", "key", "effort", "file", "files", "models", "parent"}

MEANINGS: Mapping[str, str] = {
    **{str(type_): type_.meaning for type_ in EventType},
    "ping": "Answered by the acknowledgement alone.",
    "watch": "Follow a conversation: its state at once, then STATE, TITLE, NEXT, MARKS and TURN as they happen.",
    "subscribe": "The events of a turn after `after_seq`, to its end.",
    "send": "A message; while an answer is being written it waits for its end. `files` are ids of uploads, `models` "
    "answer side by side, `parent` is the message to go on from, as a new branch: such a message does not wait. `key` "
    "makes a repeat harmless. `effort` of reasoning is remembered for the conversation.",
    "continue": "Continue an unfinished answer; `message` is the answer.",
    "regenerate": "Answer the question of an answer again, as a new branch; `message` is the answer.",
    "stop": "Stop a turn; its text so far stays.",
    "mark": "Always send the turn of a message (`pinned`), leave it out (`excluded`), or neither (null), on the branch "
    "on show; with `file` one of its files.",
    "ACK": "The frame with this `id` was executed.",
    "ERROR": "The frame with this `id` was refused. `id` is null where the frame has too many values to be read.",
    "STATE": "The state of a conversation.",
    "TITLE": "A conversation's new title.",
    "NEXT": "The message that waits in a conversation has changed.",
    "MARKS": "The marks have changed: of the turn of the question `message`; without it, of any turn.",
    "TURN": "An answer begins; subscribe to read it.",
    News.CONVERSATIONS: "The person's list of conversations has changed, by whatever device or program: read it again.",
    News.TASKS: "Tasks, checklists or runs of the person have changed. A token hears this if it has the scope `tasks`.",
    News.INVITATIONS: "An invitation to a project has come, was answered or is gone: one to the person, or one that "
    "they sent and somebody accepted. A token hears this if it has the scope `projects`.",
    News.READINGS: "A full reading of files for a question of the person has come further, or has ended.",
    News.SHARED: "A conversation was shared with the person, was shared again, or is shared no more.",
    "QUEUED": "The turn waits until a worker has room for it, behind `position` - 1 others; said again while it does.",
}
CLOSE_CODES: Mapping[int, str] = {
    BROKEN_OFF: "The server could not go on with events that were asked for: connect again, waiting longer each time, "
    "and subscribe from the last `seq`.",
    1012: "The server restarts: connect again, and subscribe from the last `seq`.",
    BAD_FRAME: "A frame that is no JSON object with a known type.",
    NOT_SIGNED_IN: "Not signed in, or not any more.",
    TOO_MANY: "Too many sockets and streams of yours are open. Close some, then connect again.",
    NOT_YOURS: "There is no such conversation or turn, or it is not yours.",
    TOO_LARGE: f"A frame of more than {MAX_FRAME:,} characters.",
    TOO_FAST: f"More than {BURST} frames at once, or {PER_SECOND:g} a second.",
}


def turn_event_schemas() -> dict[str, Schema]:
    """Return the schemas of events in the SSE stream of a turn, by type."""
    events = {str(type_): _object(type_, {**NUMBERED, **type_.members}) for type_ in EventType}
    return {**events, "QUEUED": _object("QUEUED", POSITION)}


def socket_event_schemas() -> dict[str, Schema]:
    """Return the schemas of events and notices on the socket, by type."""
    notices = {
        name: _object(name, members, OPTIONAL_NOTICE_MEMBERS.get(name, set())) for name, members in NOTICES.items()
    }
    return {**turn_event_schemas(), **notices}


def frame_schemas() -> dict[str, Schema]:
    """Return the schemas of frames that a client may send, by type. Unknown members are ignored."""
    frames = {
        name: _object(name, {"id": ANY_ID, **members}, OPTIONAL_FRAME_MEMBERS) for name, members in FRAMES.items()
    }
    return {name: {**frame, "additionalProperties": True} for name, frame in frames.items()}


def _object(type_: str, members: Mapping[str, Schema], optional: "set[str] | frozenset[str]" = frozenset()) -> Schema:
    properties = {"type": {"const": str(type_)}, **members}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
