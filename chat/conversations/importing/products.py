"""The products whose exports are read, by the shape of their rows.

To add a product: 1. write a module with a function that reads a row of its export, and returns
`checked(ImportedConversation(...))` or an `ImportedListRow`; 2. return it in `reader_of` for rows of its shape; 3. add
the keys that it reads to `stream.READ_KEYS`; 4. add its losses to `storing.LOSSES`.
"""

from collections.abc import Callable
from typing import Any

from chat.conversations.importing import librechat, openwebui
from chat.conversations.importing.chatgpt import chatgpt
from chat.conversations.importing.claude import claude
from chat.conversations.importing.reading import ImportedConversation, ImportedListRow
from core.json_types import JsonObject

RowReader = Callable[[JsonObject], ImportedConversation | ImportedListRow]


def reader_of(row: Any) -> RowReader | None:
    """Return the function that reads a row of an export, which may raise `Unusable`; None for an unknown shape."""
    if not isinstance(row, dict):
        return None
    if isinstance(row.get("mapping"), dict):
        return chatgpt
    if isinstance(row.get("chat_messages"), list):
        return claude
    if openwebui.is_chat(row):
        return openwebui.openwebui
    if librechat.is_conversation(row):
        return librechat.librechat
    return _list_reader(row)


def _list_reader(row: JsonObject) -> RowReader | None:
    """Return the reader of a row that is no conversation."""
    if "presetId" in row and "endpoint" in row:
        return librechat.preset
    if "base_model_id" in row and isinstance(row.get("params"), dict):
        return openwebui.persona
    if isinstance(row.get("content"), str):
        if isinstance(row.get("command"), str):
            return openwebui.prompt
        if "user_id" in row and "updated_at" in row:
            return openwebui.memory
    return None
