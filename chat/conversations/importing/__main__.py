"""`python -m chat.conversations.importing PARENT NAME` reads an export on standard input, in a confined process.

It writes lines of JSON. Each line has the `percent` that is read. The line of a conversation also has its `title`,
`known` (whether its shape is known), and `why`, the reason why it cannot be imported. `why` is empty if `foreign` has
the conversation. Personas, prompts and memories of another product, and exports of Glasshouse itself, have further
kinds of lines (`own_exports`). The last line has only `error`: `code` and `detail`, or null if the whole export was
read.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from chat.conversations.importing import own_exports
from chat.conversations.importing.openwebui import folder_name
from chat.conversations.importing.pictures import ArchiveFiles
from chat.conversations.importing.products import find_reader
from chat.conversations.importing.reading import MAX_TITLE, ImportedListRow, UnusableConversation, as_text
from chat.conversations.importing.stream import ExportRow, export_rows
from core.errors import ProductError
from core.json_types import JsonObject
from core.sentences import gettext_noop
from readers.confinement import limit, seal

MAX_MEMORY = 300_000_000  # bytes of address space
MAX_CPU_SECONDS = 120
ROWS_PER_LINE = 200  # rows of a list in one line
UNKNOWN_SHAPE = gettext_noop("It is not a conversation of a product that can be imported.")
TOO_LARGE = gettext_noop("Reading it took too much memory.")
CODE_FOLDERS = (Path(__file__).parent, Path(__file__).parents[3] / "core")


def export_lines(upload: IO[bytes], name: str = "") -> Iterator[Any]:
    try:
        if (conversation := own_exports.single_conversation(upload)) is not None:
            yield own_exports.conversation_line(conversation)
        elif own_exports.is_own_zip(upload):
            yield from own_exports.zip_lines(upload)
        else:
            yield from _foreign_lines(upload, name)
        yield {"error": None}
    except ProductError as error:
        yield {"error": {"code": error.code, "detail": error.sentence.dump()}}
    except MemoryError:
        yield {
            "error": {
                "code": "too_much_memory",
                "detail": gettext_noop("Reading it took too much memory. Upload it in parts."),
            }
        }


def _foreign_lines(upload: IO[bytes], name: str) -> Iterator[JsonObject]:
    """Yield the lines of another product's export. Rows of its lists are collected into lines."""
    lists: dict[str, list[JsonObject]] = {}
    files: ArchiveFiles | None = None
    for row in export_rows(upload, name):
        if not isinstance(row, ExportRow):
            yield {"percent": row}
            continue
        if files is None and row.archive is not None:
            files = ArchiveFiles(row.archive)
        line = _row_line(row, files)
        if isinstance(line, ImportedListRow):
            lists.setdefault(line.name, []).append(line.row)
            if len(lists[line.name]) >= ROWS_PER_LINE:
                yield {"percent": row.percent, "list": line.name, "rows": lists.pop(line.name)}
        else:
            yield line
    for each, its_rows in lists.items():
        yield {"percent": 100, "list": each, "rows": its_rows}


def _row_line(row: ExportRow, files: ArchiveFiles | None) -> JsonObject | ImportedListRow:
    value = row.value
    parse = find_reader(value)
    title = " ".join(as_text(value.get("title") or value.get("name")).split()) if isinstance(value, dict) else ""
    line = {"percent": row.percent, "title": title[:MAX_TITLE], "known": parse is not None, "why": row.why}
    if parse is None:
        return {**line, "why": UNKNOWN_SHAPE}
    try:
        if row.why:
            return line
        result = parse(value)
        if isinstance(result, ImportedListRow):
            return result
        result.folder = folder_name(row.folder)
        if files is not None:
            files.add_to(result)
        return {**line, "foreign": asdict(result)}
    except UnusableConversation as error:
        return {**line, "why": error.sentence.dump()}
    except MemoryError:
        return {**line, "why": TOO_LARGE}


def _serialize_time(moment: datetime) -> str:
    return moment.isoformat()


if __name__ == "__main__":
    limit(int(sys.argv[1]), MAX_MEMORY, MAX_CPU_SECONDS)
    seal(CODE_FOLDERS)
    for each in export_lines(sys.stdin.buffer, sys.argv[2]):
        sys.stdout.write(json.dumps(each, default=_serialize_time) + "\n")
        sys.stdout.flush()
