"""Read the conversations of an uploaded export one by one, so that memory does not grow with the file.

1. `export_rows` opens the zip or the JSON file. `_limit_bytes` counts the bytes while they are unpacked.
2. `_replace_lone_surrogates` replaces lone surrogates, which strict JSON parsers refuse. ijson turns the bytes into
   events.
3. `_RowBuilder` turns the events of each conversation into a row, with only the members that `products` use.

A file is a list of rows, or a sequence of rows such as JSON lines or a single conversation. It may be hostile, so
everything has a limit.
"""

import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import IO, Any

import ijson

from chat.conversations.importing.reading import MAX_CONVERSATION_LENGTH, too_long_error
from core.errors import ProductError
from core.sentences import Sentence

MAX_JSON = 200_000_000  # bytes of all conversations, unpacked
MAX_ENTRIES = 100_000  # files in a zip
MAX_CONVERSATIONS = 100_000
MAX_VALUES = 1_000_000  # objects, lists, strings, … per conversation; 50,000 messages have 800,000
MAX_DEPTH = 100  # levels of nesting per conversation
MAX_TREE_DEPTH = 200_000  # the same for LibreChat's trees of messages; their reader does not recurse
MAX_TOKEN = 16_000_000  # bytes of one string, number or white space
MAX_PICTURES = 18_000_000  # characters of all pictures in one conversation; further pictures are imported by name only
PIECE_BYTES = 64 * 1024  # bytes
CONVERSATION_FILE = re.compile(r"(.*/)?conversations(-\d+)?\.json")  # large exports have several such files
_ROWS_FILE = re.compile(r"(?!__MACOSX/).*\.(json|jsonl|ndjson)")  # of a zip of single exports
_FOLDER_FILE = re.compile(r"folder-(.{1,200})-export-\d{6,20}\.json")  # Open WebUI's name of an exported folder
# zipfile raises these for passwords, unknown compression methods and invalid contents.
ZIP_ERRORS = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, zlib.error)
READ_KEYS = frozenset(
    {
        # of ChatGPT and Claude
        *("title", "name", "create_time", "update_time", "created_at", "updated_at", "conversation_id", "id", "uuid"),
        *("is_archived", "is_starred", "pinned_time", "current_node", "current_leaf_message_uuid", "mapping"),
        *("chat_messages", "message", "parent", "parent_message_uuid", "author", "role", "sender", "recipient"),
        *("metadata", "content", "content_type", "is_visually_hidden_from_conversation", "parts", "text", "type"),
        *("attachments", "files", "file_name", "extracted_content", "input", "old_str", "new_str", "language"),
        *("thinking", "thoughts", "user_instructions", "model_slug", "asset_pointer", "content_references"),
        *("matched_text", "alt", "items", "url", "citations", "start_ix", "end_ix"),
        # of Open WebUI
        *("chat", "history", "messages", "currentId", "current_message_id", "parentId", "childrenIds", "timestamp"),
        *("archived", "pinned", "meta", "tags", "params", "system", "summary", "model", "output", "code", "lang"),
        *("file", "filename", "data", "image_url", "sources", "annotation", "rating", "error", "base_model_id"),
        *("description", "suggestion_prompts", "toolIds", "filterIds", "knowledge", "command", "user_id"),
        # of LibreChat
        *("conversationId", "messagesTree", "options", "messageId", "parentMessageId", "isCreatedByUser", "children"),
        *("createdAt", "updatedAt", "isArchived", "file_id", "image_file", "value", "think", "quotes", "feedback"),
        *("presetId", "endpoint", "promptPrefix", "instructions", "modelLabel", "chatGptLabel", "tools"),
    }
)
_SHAPE_KEYS = ("mapping", "chat_messages", "conversationId", "messagesTree", "messages")
# `_ESCAPE` matches a pair of surrogates, a lone surrogate (the group), or another escape. `_OPEN_END` matches an escape
# that may continue in the next piece.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_OPEN_END = re.compile(rb"(?<!\\)(?:\\u[dD][89abAB]..)?\\+[^\\]{0,11}\Z", re.DOTALL)
_TAIL = 64  # bytes at the end of a piece that are searched for an open end


@dataclass(frozen=True, slots=True)
class ExportRow:
    """An element of the export's list. `why` is the reason why it cannot be imported. `value` is incomplete then.

    `folder` is the name of the folder, read from the file's name. `archive` is the zip that has the file.
    """

    value: Any
    percent: int
    why: str = ""
    folder: str = ""
    archive: zipfile.ZipFile | None = None


def export_rows(upload: IO[bytes], name: str = "") -> Iterator[ExportRow | int]:
    """Yield each row, and from time to time the percentage of the export that is read. `name`: of the uploaded file.

    Raises `not_an_export_error`, `export_too_large`, `damaged_export`.
    """
    if not zipfile.is_zipfile(upload):
        size = upload.seek(0, 2)
        upload.seek(0)
        yield from _file_rows(_limit_bytes(upload, MAX_JSON), _ExportFile(name, size))
        return
    upload.seek(0)
    try:
        with zipfile.ZipFile(upload) as archive:
            yield from _archive_rows(archive)
    except ZIP_ERRORS as error:
        raise damaged_error() from error


@dataclass(frozen=True, slots=True)
class _ExportFile:
    """A file of the export. `number` counts from 0 to `files` - 1."""

    name: str
    size: int
    number: int = 0
    files: int = 1
    archive: zipfile.ZipFile | None = None

    @property
    def folder(self) -> str:
        match = _FOLDER_FILE.fullmatch(self.name.replace("\\", "/").rpartition("/")[2])
        return match[1] if match else ""


def _archive_rows(archive: zipfile.ZipFile) -> Iterator[ExportRow | int]:
    entries = archive.infolist()
    members = [each for each in entries if CONVERSATION_FILE.fullmatch(each.filename)] or [
        each for each in entries if _ROWS_FILE.fullmatch(each.filename)
    ]
    if len(entries) > MAX_ENTRIES or not members:
        raise not_an_export_error()
    left = MAX_JSON
    for number, each in enumerate(sorted(members, key=lambda entry: entry.filename)):
        with archive.open(each) as member:
            file = _ExportFile(each.filename, each.file_size, number, len(members), archive)
            yield from _file_rows(_limit_bytes(member, left), file)
            left -= member.tell()


def _limit_bytes(stream: IO[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of a stream. Raises `export_too_large` beyond `max_bytes`.

    The bytes are counted, since the sizes in a zip may be false.
    """
    size = 0
    while piece := stream.read(PIECE_BYTES):
        size += len(piece)
        if size > max_bytes:
            raise too_large_error(
                Sentence(
                    "Its conversations are larger than {max_json} MB unpacked, which is the maximum.",
                    max_json=MAX_JSON // 1_000_000,
                )
            )
        yield piece


def _file_rows(pieces: Iterable[bytes], file: _ExportFile) -> Iterator[ExportRow | int]:
    """Yield the rows of one file."""
    events: Any = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events, multiple_values=True)
    builder = _RowBuilder()
    bytes_read = bytes_without_event = last_percent = 0
    for piece in chain(filter(None, _replace_lone_surrogates(pieces)), (None,)):
        error = _feed_parser(parser, piece)
        size_of_piece = len(piece or b"")
        bytes_read += size_of_piece
        bytes_without_event = 0 if events else bytes_without_event + size_of_piece
        if bytes_without_event > MAX_TOKEN:
            raise too_large_error(
                Sentence(
                    "One text in it is larger than {max_token} MB, which is the maximum.",
                    max_token=MAX_TOKEN // 1_000_000,
                )
            )
        percent = int(100 * (file.number + min(1, bytes_read / max(file.size, 1))) / file.files)
        for value, why in builder.rows(events):  # also the rows before the error
            yield ExportRow(value, percent, why, file.folder, file.archive)
        del events[:]
        if error:
            raise (damaged_error() if builder.has_begun else not_an_export_error()) from error
        if percent != last_percent:
            yield (last_percent := percent)
    if not builder.has_begun:
        raise not_an_export_error()


def _feed_parser(parser: Any, piece: bytes | None) -> Exception | None:
    """Feed the parser with a piece; None ends the input. Returns the parser's error, if any."""
    try:
        parser.close() if piece is None else parser.send(piece)
    except (ijson.JSONError, ValueError, SystemError) as error:  # SystemError: a number that C cannot hold
        return error
    return None


def _replace_lone_surrogates(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same JSON without a byte order mark, and with `?` for each lone surrogate.

    Strict JSON parsers refuse both.
    """
    rest = b""
    first = True
    for piece in pieces:
        piece = rest + (piece.removeprefix(b"\xef\xbb\xbf") if first else piece)
        end = _OPEN_END.search(piece, max(0, len(piece) - _TAIL))
        rest = piece[end.start() :] if end else b""
        first = False
        yield _replace_in_piece(piece[: end.start()] if end else piece)
    yield _replace_in_piece(rest)


def _replace_in_piece(piece: bytes) -> bytes:
    if b"\\ud" not in piece and b"\\uD" not in piece:
        return piece
    return _ESCAPE.sub(lambda match: b"?" if match[1] else match[0], piece)


class _RowBuilder:
    """Builds rows from events. `has_begun` is True once a list or a row has begun."""

    def __init__(self) -> None:
        self.has_begun = False
        self._row_depth = 0  # the depth at which rows begin: 1 in a list, otherwise 0
        self._depth = 0  # nesting, the list of rows included
        self._skipped_depth: int | None = None  # the depth at which the skipped part began
        self._open: list[Any] = []  # the open objects and lists of this row, outermost first
        self._names_are_ids: list[bool] = []  # of each open object: whether its names are ids
        self._names: list[str] = []  # of each open object or list: its name
        self._name = ""
        self._is_used = True
        self._max_depth = MAX_DEPTH
        self._rows = self._values = self._characters = self._pictures = 0
        self._why = ""

    def rows(self, events: Iterable[tuple[str, Any]]) -> Iterator[tuple[Any, str]]:
        for event, value in events:
            if event == "map_key":
                self._start_member(value)
            elif event in ("start_map", "start_array"):
                self._start({} if event == "start_map" else [])
            elif event in ("end_map", "end_array"):
                yield from self._end()
            elif self._depth == 0:
                raise not_an_export_error()
            elif self._skipped_depth is None:
                value = float(value) if isinstance(value, Decimal) else value
                if self._depth > self._row_depth:
                    self._add(value)
                else:
                    yield self._count_row(value), ""

    def _start_member(self, name: str) -> None:
        if self._skipped_depth is None:
            self._name = name
            self._is_used = self._names_are_ids[-1] or (name in READ_KEYS and not self._is_repeated(name))
            if name == "messagesTree":
                self._max_depth = MAX_TREE_DEPTH

    def _is_repeated(self, name: str) -> bool:
        """Return whether this is the list `messages` of an Open WebUI chat, whose messages are in `history`, too."""
        if name != "messages":
            return False
        history = self._open[-1].get("history")
        return isinstance(history, dict) and bool(history.get("messages"))

    def _start(self, container: Any) -> None:
        if self._depth == 0 and isinstance(container, list):
            self.has_begun = True
            self._row_depth = self._depth = 1
            return
        if self._depth == 0:
            self.has_begun = True
            self._row_depth = 0
        if self._depth == self._row_depth:
            self._open, self._names_are_ids, self._names = [container], [False], [""]
            self._values = self._characters = self._pictures = 0
            self._max_depth = MAX_DEPTH
            self._why = ""
        elif self._skipped_depth is None:
            if self._add(container):
                self._push(container)
            elif self._skipped_depth is None:
                self._skipped_depth = self._depth
        self._depth += 1

    def _push(self, container: Any) -> None:
        name = self._name if isinstance(self._open[-1], dict) else ""
        is_map = (name == "mapping" and len(self._open) == 1) or (name == "messages" and self._names[-1] == "history")
        self._names_are_ids.append(is_map and isinstance(container, dict))
        self._names.append(name)
        self._open.append(container)

    def _add(self, value: Any) -> bool:
        """Add a value to the open object or list. Returns False if it is not used or a limit is exceeded."""
        place = self._open[-1]
        if isinstance(place, dict) and not self._is_used:
            return False
        self._values += 1
        if isinstance(value, str):
            value = self._count_text(value)
        if isinstance(place, dict):
            self._characters += len(self._name)
            place[self._name] = value
        else:
            place.append(value)
        if self._characters > MAX_CONVERSATION_LENGTH:
            self._skip_row(too_long_error().sentence)
        elif self._values > MAX_VALUES:
            self._skip_row(Sentence("It has more than {max_values} values.", max_values=MAX_VALUES))
        elif self._depth > self._max_depth:
            self._skip_row(Sentence("It is nested more than {max_depth} levels deep.", max_depth=self._max_depth))
        return not self._why

    def _count_text(self, text: str) -> str:
        """Count a text and return it. A picture over the limit of pictures loses its content."""
        if not text.startswith("data:image/"):
            self._characters += len(text)
            return text
        if self._pictures + len(text) > MAX_PICTURES:
            return f"{text[:60].partition(';')[0]};base64,"
        self._pictures += len(text)
        return text

    def _skip_row(self, why: Sentence) -> None:
        row: Any = self._open[0]
        self._why = why.dump()
        self._skipped_depth = self._row_depth
        rest: dict[str, Any] = {}
        if isinstance(row, dict):
            rest = {name: row[name] for name in ("title", "name") if name in row}
            rest |= {name: type(row[name])() for name in _SHAPE_KEYS if name in row}
            if "chat" in row or "history" in row:
                rest["chat"] = {"history": {"messages": {}}}
        self._open = [rest]

    def _end(self) -> Iterator[tuple[Any, str]]:
        self._depth -= 1
        if self._depth < self._row_depth:
            self._row_depth = 0
        elif self._depth == self._row_depth:
            row = self._open[0]
            self._open = []
            self._skipped_depth = None
            yield self._count_row(row), self._why
        elif self._skipped_depth is None and self._open:
            for stack in (self._open, self._names_are_ids, self._names):
                stack.pop()
        elif self._depth == self._skipped_depth:
            self._skipped_depth = None

    def _count_row(self, row: Any) -> Any:
        self._rows += 1
        if self._rows > MAX_CONVERSATIONS:
            raise too_large_error(
                Sentence(
                    "An export has at most {max_conversations} conversations.", max_conversations=MAX_CONVERSATIONS
                )
            )
        return row


def not_an_export_error() -> ProductError:
    return ProductError(
        "not_an_export",
        "This is not an export of Glasshouse, Open WebUI, LibreChat, ChatGPT or Claude. Upload the zip, the "
        "conversations.json in it, or the JSON file that the other product has made.",
    )


def damaged_error() -> ProductError:
    return ProductError("damaged_export", "The file is damaged or incomplete. Download it again.")


def too_large_error(sentence: Sentence) -> ProductError:
    return ProductError("export_too_large", sentence)
