"""`python -m chat.conversations.importing PARENT` reads an export on standard input, in a confined process.

It writes lines of JSON. Each line has the `percent` that is read. The line of a conversation also has its `title` and
`known`, whether its shape is known. It has either `foreign`, the conversation, or `why`, the reason against importing
it. An export of Glasshouse itself has other lines, too (`own_exports`). The last line has only `error`: `code` and
`detail`, or null if the whole export was read.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from chat.conversations.importing import own_exports
from chat.conversations.importing.reading import MAX_TITLE, Unusable, reader_of, text_of
from chat.conversations.importing.stream import ExportRow, rows
from core.errors import ProductError
from core.json_types import JsonObject
from core.sentences import gettext_noop
from readers.confinement import limit, seal

MEMORY = 300_000_000  # bytes of address space
CPU_SECONDS = 120
UNKNOWN_SHAPE = gettext_noop("It has the shape of neither ChatGPT's nor Claude's conversations.")
TOO_LARGE = gettext_noop("Reading it took too much memory.")
CODE = (Path(__file__).parent, Path(__file__).parents[3] / "core")


def lines(upload: IO[bytes]) -> Iterator[Any]:
    try:
        if (conversation := own_exports.single_conversation(upload)) is not None:
            yield own_exports.conversation_line(conversation)
        elif own_exports.is_own_zip(upload):
            yield from own_exports.zip_lines(upload)
        else:
            for row in rows(upload):
                yield _line(row) if isinstance(row, ExportRow) else {"percent": row}
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


def _line(row: ExportRow) -> JsonObject:
    value = row.value
    parse = reader_of(value)
    title = " ".join(text_of(value.get("title") or value.get("name")).split()) if isinstance(value, dict) else ""
    line = {"percent": row.percent, "title": title[:MAX_TITLE], "known": parse is not None, "why": row.why}
    if parse is None:
        return {**line, "why": UNKNOWN_SHAPE}
    try:
        return line if row.why else {**line, "foreign": asdict(parse(value))}
    except Unusable as error:
        return {**line, "why": error.sentence.dump()}
    except MemoryError:
        return {**line, "why": TOO_LARGE}


def _text(moment: datetime) -> str:
    return moment.isoformat()


if __name__ == "__main__":
    limit(int(sys.argv[1]), MEMORY, CPU_SECONDS)
    seal(CODE)
    for each in lines(sys.stdin.buffer):
        sys.stdout.write(json.dumps(each, default=_text) + "\n")
        sys.stdout.flush()
