"""Read a conversation of ChatGPT: a `mapping` of nodes by id.

A node has `parent`, `children` and `message`, which has `author.role`, `content` (`content_type`, and `parts` of text
and other content), `create_time` in seconds and `metadata`. `current_node` is the end of the branch on show. Between
question and answer there are nodes without words: the root, system messages, calls of tools and their results. A
picture that was drawn is in the result of a tool.

Citations stand in the text as marks of private characters, or as `【6†source】`. `metadata.content_references` and
`metadata.citations` have their links.
"""

import re

from chat.conversations.importing.reading import (
    PICTURE,
    ImportedConversation,
    ImportedFile,
    ImportedMessage,
    checked,
    fenced,
    few_files,
    in_pairs,
    in_tree_order,
    list_of,
    lose,
    moment,
    name_of,
    object_of,
    paragraphs,
    source_of,
    text_of,
)
from core.json_types import JsonObject

MAX_REFERENCES = 500  # of one answer
_MARK = re.compile("\ue200[^\ue200\ue201]{0,2000}\ue201|[\ue200-\ue206]")
_OLD_MARK = re.compile(r"【\d{1,4}(?::\d{1,4})?†[^】\n]{0,200}】")
_RECORDINGS = (
    "audio_asset_pointer",
    "video_container_asset_pointer",
    "real_time_user_audio_video_asset_pointer",
)


def chatgpt(row: JsonObject) -> ImportedConversation:
    """Read a conversation of ChatGPT."""
    source = source_of("chatgpt", row.get("conversation_id") or row.get("id"))
    losses: dict[str, int] = {}
    spoken, places = _spoken(row["mapping"], losses)
    current = row.get("current_node")
    messages, leaf = in_pairs(spoken, places.get(current) if isinstance(current, str) else None)
    return checked(
        ImportedConversation(
            source=source,
            title=text_of(row.get("title")),
            created=moment(row.get("create_time")),
            updated=moment(row.get("update_time")),
            archived=row.get("is_archived") is True,
            pinned=bool(row.get("is_starred")) or bool(row.get("pinned_time")),
            messages=messages,
            leaf=leaf,
            losses=losses,
        )
    )


def _spoken(mapping: JsonObject, losses: dict[str, int]) -> tuple[list[ImportedMessage], dict[str, str | None]]:
    """Return the messages with words, parents first, and for every node the nearest such message at or above it."""
    parents: dict[str, str | None] = {}
    for key, node in mapping.items():
        parent = object_of(node).get("parent")
        parents[key] = parent if isinstance(parent, str) else None
    messages: list[ImportedMessage] = []
    places: dict[str, str | None] = {}
    for place in in_tree_order(parents):
        above = places[place.parent] if place.parent is not None else None
        message = _message(place.id, above, object_of(object_of(mapping[place.id]).get("message")), losses)
        if message is not None:
            messages.append(message)
        places[place.id] = place.id if message else above
    return messages, places


def _message(key: str, above: str | None, message: JsonObject, losses: dict[str, int]) -> ImportedMessage | None:
    """Return the message of a node; None if it is neither a question nor a part of an answer."""
    author, content, metadata = (object_of(message.get(name)) for name in ("author", "content", "metadata"))
    role = author.get("role")
    kind = content.get("content_type", "text")
    if kind in ("user_editable_context", "model_editable_context"):
        lose(losses, "instructions", bool(_words(content)))
        return None
    if role not in ("user", "assistant", "tool") or metadata.get("is_visually_hidden_from_conversation") is True:
        return None
    reply = ImportedMessage(
        key,
        above,
        role == "user",
        "",
        moment(message.get("create_time")),
        model=text_of(metadata.get("model_slug")) if role != "user" else "",
    )
    called = role == "assistant" and message.get("recipient") not in (None, "all")
    if called:
        lose(losses, "tools")
    elif role == "tool":
        reply.files = [each for each in _files(content, metadata, losses) if each.key]
    elif kind in ("text", "multimodal_text"):
        reply.text = _with_links(_words(content), metadata, losses)
        reply.files = _files(content, metadata, losses)
    elif kind == "code":
        code = text_of(content.get("text"))
        reply.text = fenced(code, text_of(content.get("language")).replace("unknown", "")) if code.strip() else ""
    elif kind == "thoughts":
        thoughts = [object_of(each) for each in list_of(content.get("thoughts"))]
        reply.reasoning = paragraphs(*(text_of(each.get("content")).strip() for each in thoughts))
    elif kind != "reasoning_recap":
        lose(losses, "others")
    return reply if reply.text or reply.files or reply.reasoning else None


def _words(content: JsonObject) -> str:
    """Return the text of a content. Speech comes with its transcript."""
    if "parts" not in content:
        return paragraphs(text_of(content.get("text")), text_of(content.get("user_instructions"))).strip()
    return paragraphs(*(text_of(object_of(each).get("text") if isinstance(each, dict) else each)
                        for each in list_of(content["parts"]))).strip()  # fmt: skip


def _files(content: JsonObject, metadata: JsonObject, losses: dict[str, int]) -> list[ImportedFile]:
    """Return the uploaded files and the pictures of a message. Each picture is once among them."""
    files: dict[str, ImportedFile] = {}
    for number, each in enumerate(map(object_of, list_of(metadata.get("attachments")))):
        name, key = name_of(each.get("name")), text_of(each.get("id"))
        if name:
            files[key or str(number)] = ImportedFile(name, key=key)
    for part in map(object_of, list_of(content.get("parts"))):
        kind = part.get("content_type")
        if kind == "image_asset_pointer":
            key = text_of(part.get("asset_pointer")).rpartition("://")[2].partition("#")[0] or f"picture {len(files)}"
            files.setdefault(key, ImportedFile(PICTURE, key=key))
        elif kind in _RECORDINGS:
            lose(losses, "recordings")
    return few_files(list(files.values()), losses)


def _with_links(text: str, metadata: JsonObject, losses: dict[str, int]) -> str:
    """Return the text with links in the place of the marks of citations. Marks without a link are removed."""
    references = [object_of(each) for each in list_of(metadata.get("content_references"))[:MAX_REFERENCES]]
    for reference in references:
        mark = text_of(reference.get("matched_text"))
        if _MARK.search(mark) or _OLD_MARK.search(mark):
            text = text.replace(mark, _link(reference))
    if "【" in text:
        text = _with_old_links(text, metadata)
    for pattern in (_MARK, _OLD_MARK):
        text, removed = pattern.subn("", text)
        lose(losses, "citations", removed)
    return text.strip()


def _link(reference: JsonObject) -> str:
    """Return the link of a reference in Markdown: ChatGPT's own, else one of its address and title."""
    if own := text_of(reference.get("alt")):
        return own
    pages = [reference, *map(object_of, list_of(reference.get("items")))]
    page = next((each for each in pages if text_of(each.get("url"))), None)
    return _markdown_link(page) if page is not None else ""


def _markdown_link(page: JsonObject) -> str:
    title = text_of(page.get("title")).replace("[", "(").replace("]", ")") or text_of(page.get("url"))
    return f"([{title[:200]}](<{text_of(page.get('url'))[:2000].replace('>', '%3E')}>))"


def _with_old_links(text: str, metadata: JsonObject) -> str:
    """Return the text with links in the place of marks like `【6†source】`, whose places `citations` has."""
    ends = []
    for each in map(object_of, list_of(metadata.get("citations"))[:MAX_REFERENCES]):
        start, end = each.get("start_ix"), each.get("end_ix")
        page = object_of(each.get("metadata"))
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < end and text_of(page.get("url")):
            ends.append((start, end, _markdown_link(page)))
    for start, end, link in sorted(ends, reverse=True):
        if _OLD_MARK.fullmatch(text[start:end]):
            text = f"{text[:start]}{link}{text[end:]}"
    return text
