"""Read a conversation of ChatGPT: a `mapping` of nodes by id.

A node has `parent`, `children` and `message`, which has `author.role`, `content` (`content_type`, and `parts` of text
and other content), `create_time` in seconds and `metadata`. `current_node` is the last node of the displayed branch.
Some nodes have no content: the root, system messages, tool calls and their results. A picture that the model drew is
in a tool result.

Citations in the text are marks of private-use characters, or `【6†source】`. `metadata.content_references` and
`metadata.citations` have their links.
"""

import re

from chat.conversations.importing.reading import (
    PICTURE_NAME,
    ImportedConversation,
    ImportedFile,
    ImportedMessage,
    as_file_name,
    as_list,
    as_object,
    as_text,
    check_conversation,
    code_block,
    count_loss,
    in_tree_order,
    join_consecutive_answers,
    join_paragraphs,
    limit_files,
    make_source,
    parse_time,
)
from core.json_types import JsonObject

MAX_REFERENCES = 500  # of one answer
_CITATION_MARK = re.compile("\ue200[^\ue200\ue201]{0,2000}\ue201|[\ue200-\ue206]")
_OLD_CITATION_MARK = re.compile(r"【\d{1,4}(?::\d{1,4})?†[^】\n]{0,200}】")
_RECORDING_TYPES = (
    "audio_asset_pointer",
    "video_container_asset_pointer",
    "real_time_user_audio_video_asset_pointer",
)


def read_chatgpt(row: JsonObject) -> ImportedConversation:
    """Read a conversation of ChatGPT."""
    source = make_source("chatgpt", row.get("conversation_id") or row.get("id"))
    losses: dict[str, int] = {}
    messages_with_text, places = _read_messages(row["mapping"], losses)
    current = row.get("current_node")
    messages, leaf = join_consecutive_answers(
        messages_with_text, places.get(current) if isinstance(current, str) else None
    )
    return check_conversation(
        ImportedConversation(
            source=source,
            title=as_text(row.get("title")),
            created=parse_time(row.get("create_time")),
            updated=parse_time(row.get("update_time")),
            archived=row.get("is_archived") is True,
            pinned=bool(row.get("is_starred")) or bool(row.get("pinned_time")),
            messages=messages,
            leaf=leaf,
            losses=losses,
        )
    )


def _read_messages(mapping: JsonObject, losses: dict[str, int]) -> tuple[list[ImportedMessage], dict[str, str | None]]:
    """Return the messages with content, parents first, and for each node the nearest such message at or above it."""
    parents: dict[str, str | None] = {}
    for key, node in mapping.items():
        parent = as_object(node).get("parent")
        parents[key] = parent if isinstance(parent, str) else None
    messages: list[ImportedMessage] = []
    places: dict[str, str | None] = {}
    for place in in_tree_order(parents):
        above = places[place.parent] if place.parent is not None else None
        message = _read_message(place.id, above, as_object(as_object(mapping[place.id]).get("message")), losses)
        if message is not None:
            messages.append(message)
        places[place.id] = place.id if message else above
    return messages, places


def _read_message(key: str, above: str | None, message: JsonObject, losses: dict[str, int]) -> ImportedMessage | None:
    """Return the message of a node; None if it is neither a question nor a part of an answer."""
    author, content, metadata = (as_object(message.get(name)) for name in ("author", "content", "metadata"))
    role = author.get("role")
    kind = content.get("content_type", "text")
    if kind in ("user_editable_context", "model_editable_context"):
        count_loss(losses, "instructions", bool(_read_text(content)))
        return None
    if role not in ("user", "assistant", "tool") or metadata.get("is_visually_hidden_from_conversation") is True:
        return None
    reply = ImportedMessage(
        key,
        above,
        role == "user",
        "",
        parse_time(message.get("create_time")),
        model=as_text(metadata.get("model_slug")) if role != "user" else "",
    )
    is_tool_call = role == "assistant" and message.get("recipient") not in (None, "all")
    if is_tool_call:
        count_loss(losses, "tools")
    elif role == "tool":
        reply.files = [each for each in _read_files(content, metadata, losses) if each.key]
    elif kind in ("text", "multimodal_text"):
        reply.text = _replace_marks(_read_text(content), metadata, losses)
        reply.files = _read_files(content, metadata, losses)
    elif kind == "code":
        code = as_text(content.get("text"))
        reply.text = code_block(code, as_text(content.get("language")).replace("unknown", "")) if code.strip() else ""
    elif kind == "thoughts":
        thoughts = [as_object(each) for each in as_list(content.get("thoughts"))]
        reply.reasoning = join_paragraphs(*(as_text(each.get("content")).strip() for each in thoughts))
    elif kind != "reasoning_recap":
        count_loss(losses, "others")
    return reply if reply.text or reply.files or reply.reasoning else None


def _read_text(content: JsonObject) -> str:
    """Return the text of a content. Speech comes with its transcript."""
    if "parts" not in content:
        return join_paragraphs(as_text(content.get("text")), as_text(content.get("user_instructions"))).strip()
    return join_paragraphs(*(as_text(as_object(each).get("text") if isinstance(each, dict) else each)
                        for each in as_list(content["parts"]))).strip()  # fmt: skip


def _read_files(content: JsonObject, metadata: JsonObject, losses: dict[str, int]) -> list[ImportedFile]:
    """Return the uploaded files and the pictures of a message, without repetitions."""
    files: dict[str, ImportedFile] = {}
    for number, each in enumerate(map(as_object, as_list(metadata.get("attachments")))):
        name, key = as_file_name(each.get("name")), as_text(each.get("id"))
        if name:
            files[key or str(number)] = ImportedFile(name, key=key)
    for part in map(as_object, as_list(content.get("parts"))):
        kind = part.get("content_type")
        if kind == "image_asset_pointer":
            key = as_text(part.get("asset_pointer")).rpartition("://")[2].partition("#")[0] or f"picture {len(files)}"
            files.setdefault(key, ImportedFile(PICTURE_NAME, key=key))
        elif kind in _RECORDING_TYPES:
            count_loss(losses, "recordings")
    return limit_files(list(files.values()), losses)


def _replace_marks(text: str, metadata: JsonObject, losses: dict[str, int]) -> str:
    """Return the text with links in place of citation marks. Marks without a link are removed."""
    references = [as_object(each) for each in as_list(metadata.get("content_references"))[:MAX_REFERENCES]]
    for reference in references:
        mark = as_text(reference.get("matched_text"))
        if _CITATION_MARK.search(mark) or _OLD_CITATION_MARK.search(mark):
            text = text.replace(mark, _reference_link(reference))
    if "【" in text:
        text = _replace_old_marks(text, metadata)
    for pattern in (_CITATION_MARK, _OLD_CITATION_MARK):
        text, removed = pattern.subn("", text)
        count_loss(losses, "citations", removed)
    return text.strip()


def _reference_link(reference: JsonObject) -> str:
    """Return the link of a reference in Markdown: ChatGPT's own, else one made of its address and title."""
    if own_link := as_text(reference.get("alt")):
        return own_link
    pages = [reference, *map(as_object, as_list(reference.get("items")))]
    page = next((each for each in pages if as_text(each.get("url"))), None)
    return _markdown_link(page) if page is not None else ""


def _markdown_link(page: JsonObject) -> str:
    title = as_text(page.get("title")).replace("[", "(").replace("]", ")") or as_text(page.get("url"))
    return f"([{title[:200]}](<{as_text(page.get('url'))[:2000].replace('>', '%3E')}>))"


def _replace_old_marks(text: str, metadata: JsonObject) -> str:
    """Return the text with links in place of marks like `【6†source】`, whose positions are in `citations`."""
    ends = []
    for each in map(as_object, as_list(metadata.get("citations"))[:MAX_REFERENCES]):
        start, end = each.get("start_ix"), each.get("end_ix")
        page = as_object(each.get("metadata"))
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < end and as_text(page.get("url")):
            ends.append((start, end, _markdown_link(page)))
    for start, end, link in sorted(ends, reverse=True):
        if _OLD_CITATION_MARK.fullmatch(text[start:end]):
            text = f"{text[:start]}{link}{text[end:]}"
    return text
