"""Read rows of Open WebUI: chats, models of the workspace, prompts and memories.

A chat has `id`, `title`, `created_at`, `updated_at` (seconds), `archived`, `pinned`, `meta.tags`, `folder_id`, and
`chat`. `chat.history` has `messages` by id, and `currentId`. A message has `parentId`, `childrenIds`, `role`,
`content`, `timestamp`, `files`, and an answer `model`. Answers to several models are siblings. Chats of the first
versions have the list `chat.messages` instead, in which messages follow one another.

Until version 0.7, `content` has reasoning, calls of tools and code that was run as `<details type="…">`. Later
versions have them as items of `output`.
"""

import re
from html import unescape
from typing import Any

from chat.conversations.importing.reading import (
    MAX_FOLDER_NAME,
    PICTURE_NAME,
    ImportedConversation,
    ImportedFile,
    ImportedListRow,
    ImportedMessage,
    UnusableConversation,
    as_file_name,
    as_list,
    as_object,
    as_text,
    check_conversation,
    code_block,
    count_loss,
    escape_variables,
    in_tree_order,
    join_consecutive_answers,
    join_paragraphs,
    limit_files,
    limit_tags,
    make_source,
    parse_time,
    without_blank,
)
from core.json_types import JsonObject
from core.sentences import Sentence

PRODUCT = "openwebui"
MAX_PARTS = 5_000  # of one message
_DETAILS_START = '<details type="'
_DETAILS_END = "</details>"
_SUMMARY_END = "</summary>"
_VARIABLE = re.compile(r"\{\{[ \t]{0,3}([A-Za-z_]\w{0,39})[ \t]{0,3}\|([^{}\n]{0,400})\}\}")
_OPTIONS = re.compile(r"options=\[([^\]\n]{0,400})\]")
_CHOICE = re.compile(r'"([^"|\n]{1,100})"')


def is_chat(row: JsonObject) -> bool:
    """Return whether a row is a chat, or the inner `chat` of one, which some versions export."""
    chat = row["chat"] if isinstance(row.get("chat"), dict) else row
    return isinstance(as_object(chat.get("history")).get("messages"), dict) or (
        chat is not row and isinstance(chat.get("messages"), list)
    )


def read_chat(row: JsonObject) -> ImportedConversation:
    """Read a chat. `folder_name` is the name of its folder, which the row does not have; the caller may set it."""
    outer = row if isinstance(row.get("chat"), dict) else {"chat": row, **row}
    chat = outer["chat"]
    losses: dict[str, int] = {}
    nodes = _read_nodes(chat)
    messages_with_text, places = _read_messages(nodes, losses)
    current = as_object(chat.get("history")).get("currentId") or outer.get("current_message_id")
    messages, leaf = join_consecutive_answers(
        messages_with_text, places.get(current) if isinstance(current, str) else None
    )
    count_loss(
        losses,
        "instructions",
        bool(as_text(as_object(chat.get("params")).get("system")) or as_text(chat.get("system"))),
    )
    count_loss(losses, "summaries", bool(as_text(outer.get("summary"))))
    tags = as_object(outer.get("meta")).get("tags") or chat.get("tags")
    own_id = outer.get("id") or chat.get("id") or (f"message {messages_with_text[0].id}" if messages_with_text else "")
    return check_conversation(
        ImportedConversation(
            source=make_source(PRODUCT, own_id),
            title=as_text(outer.get("title")) or as_text(chat.get("title")),
            created=parse_time(outer.get("created_at")) or parse_time(chat.get("timestamp")),
            updated=parse_time(outer.get("updated_at")),
            archived=outer.get("archived") is True or outer.get("archived") == 1,
            pinned=outer.get("pinned") is True or outer.get("pinned") == 1,
            messages=messages,
            leaf=leaf,
            losses=losses,
            tags=limit_tags(_read_tags(tags), losses),
        )
    )


def _read_tags(value: Any) -> list[str]:
    """Return the names of tags. An id has `_` instead of spaces; the oldest chats have objects instead of ids."""
    names = [as_text(as_object(each).get("name") if isinstance(each, dict) else each) for each in as_list(value)]
    return [name.replace("_", " ").strip() for name in names if name and name != "none"]


def _read_nodes(chat: JsonObject) -> dict[str, JsonObject]:
    """Return the messages by id. In a list, the parent of a message is the previous message."""
    history = as_object(chat.get("history")).get("messages")
    if isinstance(history, dict) and history:
        return {key: node for key, node in history.items() if isinstance(node, dict)}
    nodes: dict[str, JsonObject] = {}
    before: str | None = None
    for number, node in enumerate(map(as_object, as_list(chat.get("messages")))):
        key = as_text(node.get("id")) or str(number)
        nodes[key] = {**node, "parentId": node.get("parentId", before)}
        before = key
    return nodes


def _read_messages(
    nodes: dict[str, JsonObject], losses: dict[str, int]
) -> tuple[list[ImportedMessage], dict[str, str | None]]:
    """Return the messages with content, parents first, and for each message the nearest such message at or above it."""
    parents = {key: as_text(node.get("parentId")) or None for key, node in nodes.items()}
    children = {
        key: [child for child in as_list(node.get("childrenIds")) if isinstance(child, str)]
        for key, node in nodes.items()
    }
    messages: list[ImportedMessage] = []
    places: dict[str, str | None] = {}
    for place in in_tree_order(parents, children):
        above = places[place.parent] if place.parent is not None else None
        message = _read_message(place.id, above, nodes[place.id], losses)
        if message is not None:
            messages.append(message)
        places[place.id] = place.id if message else above
    count_loss(losses, "unreachable", len(nodes) - len(places))
    return messages, places


def _read_message(key: str, above: str | None, node: JsonObject, losses: dict[str, int]) -> ImportedMessage | None:
    role = node.get("role")
    if role not in ("user", "assistant"):
        count_loss(losses, "instructions", role == "system")
        return None
    question = role == "user"
    message = ImportedMessage(key, above, question, "", parse_time(node.get("timestamp")), _read_files(node, losses))
    _read_content(message, node, losses)
    if not question:
        message.model = as_text(node.get("model"))
        count_loss(losses, "sources", bool(as_list(node.get("sources")) or as_list(node.get("citations"))))
        rating = as_object(node.get("annotation")).get("rating")
        count_loss(losses, "ratings", rating is not None)
    if not message.text and not message.files and not message.reasoning:
        count_loss(losses, "errors", bool(node.get("error")))
        return None
    return message


def _read_content(message: ImportedMessage, node: JsonObject, losses: dict[str, int]) -> None:
    """Set the text and the reasoning of a message."""
    content = node.get("content")
    texts: list[str] = []
    if isinstance(content, list):
        count_loss(losses, "others", len(content) - MAX_PARTS)
        for part in map(as_object, content[:MAX_PARTS]):
            if part.get("type") in ("text", "input_text", "output_text"):
                texts.append(as_text(part.get("text")))
            elif url := as_text(as_object(part.get("image_url")).get("url")):
                message.files.append(_read_picture(url, PICTURE_NAME, ""))
    else:
        texts.append(as_text(content))
    text = join_paragraphs(*texts)
    reasoning: list[str] = []
    if not message.question:
        text, reasoning = _split_details(text, losses)
        output_texts = _read_output(as_list(node.get("output"))[:MAX_PARTS], reasoning, losses)
        text = text if text.strip() else join_paragraphs(*output_texts)
    message.text = without_blank(text)
    message.reasoning = join_paragraphs(*reasoning).strip()


def _read_output(items: list[Any], reasoning: list[str], losses: dict[str, int]) -> list[str]:
    """Return the texts of the items, and append their reasoning to `reasoning`."""
    texts: list[str] = []
    for item in map(as_object, items):
        item_text = "".join(as_text(as_object(part).get("text")) for part in as_list(item.get("content"))).strip()
        match item.get("type"):
            case "message":
                texts.append(item_text)
            case "reasoning":
                summary = [as_text(as_object(part).get("text")) for part in as_list(item.get("summary"))]
                reasoning.append(item_text or join_paragraphs(*summary))
            case "open_webui:code_interpreter":
                if code := as_text(item.get("code")):
                    texts.append(code_block(code, as_text(item.get("lang"))))
                count_loss(losses, "tools")
            case "open_webui:context_compaction":
                count_loss(losses, "summaries")
            case str() as kind if kind.endswith("_call"):
                count_loss(losses, "tools")
    return texts


def _split_details(text: str, losses: dict[str, int]) -> tuple[str, list[str]]:
    """Return the text without Open WebUI's `<details>` blocks, and the reasoning in these blocks.

    A text without such blocks stays as it is.
    """
    pieces: list[str] = []
    reasoning: list[str] = []
    place = 0
    while (start := text.find(_DETAILS_START, place)) >= 0:
        kind = text[start + len(_DETAILS_START) : start + len(_DETAILS_START) + 40].partition('"')[0]
        end = text.find(_DETAILS_END, start)
        if end < 0:
            break
        after = end + len(_DETAILS_END)
        body = text[start:end].partition(_SUMMARY_END)[2].strip()
        at_line_start = start == 0 or text[start - 1] == "\n"
        if not at_line_start or kind not in ("reasoning", "tool_calls", "code_interpreter"):
            pieces.append(text[place:after])
        else:
            pieces.append(text[place:start])
            if kind == "reasoning":
                lines = (line.removeprefix(">").removeprefix(" ") for line in body.splitlines())
                reasoning.append(unescape("\n".join(lines)).strip())
            else:
                count_loss(losses, "tools")
            if kind == "code_interpreter" and body:
                pieces.append(f"{body}\n")
        place = after
    pieces.append(text[place:])
    return ("".join(pieces).strip() if len(pieces) > 1 else text), reasoning


def _read_files(node: JsonObject, losses: dict[str, int]) -> list[ImportedFile]:
    """Return the files and pictures of a message. References to collections, notes and chats are lost."""
    files: list[ImportedFile] = []
    for each in map(as_object, as_list(node.get("files"))):
        inner = as_object(each.get("file"))
        kind = each.get("type") or "file"
        name = (
            as_file_name(inner.get("filename"))
            or as_file_name(each.get("name"))
            or as_file_name(as_object(inner.get("meta")).get("name"))
        )
        key = as_text(inner.get("id")) or as_text(each.get("id"))
        is_picture = kind == "image" or as_text(each.get("content_type")).startswith("image/")
        if is_picture:
            files.append(_read_picture(as_text(each.get("url")), name or PICTURE_NAME, key))
        elif kind in ("file", "doc", "text"):
            text = as_text(as_object(inner.get("data")).get("content")) or as_text(each.get("content"))
            files.append(ImportedFile(name or "file", text=text, key=key))
        else:
            count_loss(losses, "references")
    return limit_files(files, losses)


def _read_picture(url: str, name: str, key: str) -> ImportedFile:
    """Return a picture with its bytes if the address is a data URL, else with its id, which may be in the address."""
    if url.startswith("data:"):
        kind, _, data = url[5:].partition(";base64,")
        suffix = kind.partition("/")[2].partition("+")[0]
        full_name = name if "." in name else f"{name}.{suffix if suffix.isalnum() else 'png'}"
        return ImportedFile(full_name, data=data)
    before, _, after = url.partition("/files/")
    path = (after or before).strip("/")
    return ImportedFile(name, key=key or path.partition("/")[0][:200])


def read_persona(row: JsonObject) -> ImportedListRow:
    """Read a model of the workspace, which becomes a persona: a base model with a system prompt.

    Raises `UnusableConversation` for a row that only changes the settings of a model.
    """
    if not as_text(row.get("base_model_id")) and not as_text(as_object(row.get("params")).get("system")):
        raise UnusableConversation(Sentence("It has only settings of a model, and no instructions."))
    meta, params = as_object(row.get("meta")), as_object(row.get("params"))
    starters = [as_text(as_object(each).get("content")) for each in as_list(meta.get("suggestion_prompts"))]
    lost = [name for name, key in (("tools", "toolIds"), ("knowledge", "knowledge"), ("filters", "filterIds"))
            if as_list(meta.get(key))]  # fmt: skip
    return ImportedListRow(
        "personas",
        {
            "name": as_text(row.get("name")),
            "description": as_text(meta.get("description")),
            "instructions": escape_variables(as_text(params.get("system"))),
            "model": as_text(row.get("base_model_id")),
            "starter_messages": [text for text in starters if text],
            "lost": lost,
        },
    )


def read_prompt(row: JsonObject) -> ImportedListRow:
    """Read a prompt. A prompt without a name is named after its command.

    A variable of Open WebUI may have a type and properties behind `|`. Its choices become those of a variable here.
    """
    command = as_text(row.get("command")).lstrip("/")
    name = " ".join((as_text(row.get("name")) or as_text(row.get("title")) or command).split())
    text = _VARIABLE.sub(_convert_variable, as_text(row.get("content")))
    return ImportedListRow("prompts", {"name": name, "text": text})


def _convert_variable(match: re.Match[str]) -> str:
    options = _OPTIONS.search(match[2])
    choices = "|".join(_CHOICE.findall(options[1])) if options is not None else ""
    return f"{{{{{match[1]}:{choices}}}}}" if choices else f"{{{{{match[1]}}}}}"


def read_memory(row: JsonObject) -> ImportedListRow:
    return ImportedListRow("memories", {"text": as_text(row.get("content"))})


def folder_name(name: str) -> str:
    """Return a folder's name as that of a project."""
    return " ".join(as_text(name).split())[:MAX_FOLDER_NAME]
