"""Claude's export: `conversations.json` is a list of conversations with `uuid`, `name` and `chat_messages`.

A message has `sender` (human, assistant), `text`, and in newer exports `content` in blocks and `parent_message_uuid`.
Without that they follow one another.
"""

from typing import Any

from chat.conversations.importing.normalised import Foreign, Said, Unusable, checked, in_pairs, moment, names, text_of

NAME = "claude"


def is_ours(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("chat_messages"), list)


def conversation(row: dict[str, Any]) -> Foreign:
    """Raises `Unusable`."""
    own = text_of(row.get("uuid"))[:150]
    if not own:
        raise Unusable("It has no id, so it could not be told from one that is here already.")
    said = _spoken(row["chat_messages"])
    current = text_of(row.get("current_leaf_message_uuid")) or (said[-1].id if said else None)
    messages, leaf = in_pairs(said, current)
    return checked(
        Foreign(
            source=f"{NAME}:{own}",
            title=text_of(row.get("name")),
            created=moment(row.get("created_at")),
            updated=moment(row.get("updated_at")),
            archived=False,
            messages=messages,
            leaf=leaf,
        )
    )


def _spoken(rows: list[Any]) -> list[Said]:
    """In the order of the export, in which parents come first; a parent that is not there or not yet is none."""
    found: list[Said] = []
    places: dict[str, str | None] = {}  # of each message the nearest one with words, itself or above it
    before: str | None = None
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            continue
        key = text_of(row.get("uuid")) or str(number)
        named = row.get("parent_message_uuid")
        above = places.get(named) if isinstance(named, str) else before
        said = _said(key, above, row) if key not in places else None
        if said is not None:
            found.append(said)
        before = places[key] = key if said else above
    return found


def _said(key: str, above: str | None, row: dict[str, Any]) -> Said | None:
    if row.get("sender") not in ("human", "assistant"):
        return None
    blocks = row.get("content")
    spoken = [
        text_of(block.get("text"))
        for block in (blocks if isinstance(blocks, list) else ())
        if isinstance(block, dict) and block.get("type") == "text"
    ]
    text = "\n\n".join(filter(None, spoken)).strip() or text_of(row.get("text")).strip()
    files = names(row.get("attachments"), "file_name") + names(row.get("files"), "file_name")
    if not text and not files:
        return None
    return Said(key, above, row["sender"] == "human", text, moment(row.get("created_at")), files)
