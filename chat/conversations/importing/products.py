"""The products whose exports are read, by the shape of their rows.

To add a product: 1. write a module with a function that reads a row of its export and returns
`check_conversation(ImportedConversation(...))` or an `ImportedListRow`; 2. return it in `find_reader` for rows of its
shape; 3. add the keys that it reads to `stream.READ_KEYS`; 4. add its losses to `storing.LOSS_SENTENCES`.
"""

from collections.abc import Callable
from typing import Any

from chat.conversations.importing import librechat, openwebui
from chat.conversations.importing.chatgpt import read_chatgpt
from chat.conversations.importing.claude import read_claude
from chat.conversations.importing.reading import ImportedConversation, ImportedListRow
from core.json_types import JsonObject

RowReader = Callable[[JsonObject], ImportedConversation | ImportedListRow]


def find_reader(row: Any) -> RowReader | None:
    """Return the function that reads this row, and may raise `UnusableConversation`; None for an unknown shape."""
    if not isinstance(row, dict):
        return None
    if isinstance(row.get("mapping"), dict):
        return read_chatgpt
    if isinstance(row.get("chat_messages"), list):
        return read_claude
    if openwebui.is_chat(row):
        return openwebui.read_chat
    if librechat.is_conversation(row):
        return librechat.read_librechat
    return _list_reader(row)


def _list_reader(row: JsonObject) -> RowReader | None:
    """Return the reader of a row that is not a conversation; None for an unknown shape."""
    if "presetId" in row and "endpoint" in row:
        return librechat.read_preset
    if "base_model_id" in row and isinstance(row.get("params"), dict):
        return openwebui.read_persona
    if isinstance(row.get("content"), str):
        if isinstance(row.get("command"), str):
            return openwebui.read_prompt
        if "user_id" in row and "updated_at" in row:
            return openwebui.read_memory
    return None
