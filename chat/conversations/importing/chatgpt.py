"""ChatGPT's export: `conversations.json` is a list of conversations, each a `mapping` of nodes by id.

A node has `parent`, `children` and `message`, which has `author.role`, `content` (`content_type`, and `parts` of text
and other things), `create_time` in seconds and `metadata`. `current_node` is the end of the branch on show. Between
question and answer there are nodes without words: the root, system messages, calls of tools and what they return.
"""

from collections import deque
from typing import Any

from chat.conversations.importing.normalised import Foreign, Said, Unusable, checked, in_pairs, moment, names, text_of

NAME = "chatgpt"
SPOKEN = ("text", "multimodal_text")  # of the types of content; the others are code for tools, thoughts, results


def is_ours(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("mapping"), dict)


def conversation(row: dict[str, Any]) -> Foreign:
    """Raises `Unusable`."""
    own = text_of(row.get("conversation_id") or row.get("id"))[:150]
    if not own:
        raise Unusable("It has no id, so it could not be told from one that is here already.")
    mapping: dict[str, Any] = row["mapping"]
    current = row.get("current_node")
    said, places = _spoken(mapping)
    messages, leaf = in_pairs(said, places.get(current) if isinstance(current, str) else None)
    return checked(
        Foreign(
            source=f"{NAME}:{own}",
            title=text_of(row.get("title")),
            created=moment(row.get("create_time")),
            updated=moment(row.get("update_time")),
            archived=row.get("is_archived") is True,
            messages=messages,
            leaf=leaf,
        )
    )


def _spoken(mapping: dict[str, Any]) -> tuple[list[Said], dict[str, str | None]]:
    """The messages with words, parents first; and for every node the nearest such message, itself or above it.

    Goes down from the roots, so nodes in a circle, which no export has, are never reached.
    """
    below: dict[str | None, list[str]] = {}
    for key, node in mapping.items():
        parent = node.get("parent") if isinstance(node, dict) else None
        known = isinstance(parent, str) and parent in mapping and parent != key
        below.setdefault(parent if known else None, []).append(key)
    found: list[Said] = []
    places: dict[str, str | None] = {}
    waiting: deque[tuple[str, str | None]] = deque((key, None) for key in below.get(None, ()))
    while waiting:
        key, above = waiting.popleft()
        said = _said(key, above, mapping[key])
        if said is not None:
            found.append(said)
        places[key] = key if said else above
        waiting.extend((child, places[key]) for child in below.get(key, ()))
    return found, places


def _said(key: str, above: str | None, node: Any) -> Said | None:
    """None for what was not said to or by the person."""
    message = node.get("message") if isinstance(node, dict) else None
    if not isinstance(message, dict):
        return None
    author, content, metadata = (_object(message.get(name)) for name in ("author", "content", "metadata"))
    role = author.get("role")
    hidden = metadata.get("is_visually_hidden_from_conversation") is True
    # An answer with a recipient is a call of a tool.
    called = message.get("recipient") not in (None, "all")
    if role not in ("user", "assistant") or hidden or called or content.get("content_type", "text") not in SPOKEN:
        return None
    parts = content.get("parts")
    text = "\n\n".join(filter(None, map(_text, parts if isinstance(parts, list) else ()))).strip()
    files = names(metadata.get("attachments"), "name")
    if not text and not files:
        return None
    return Said(key, above, role == "user", text, moment(message.get("create_time")), files)


def _text(part: Any) -> str:
    if isinstance(part, dict):  # speech comes with its transcript; pictures without one
        return text_of(part.get("text"))
    return text_of(part)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
