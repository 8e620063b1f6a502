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
    MAX_FOLDER,
    PICTURE,
    ImportedConversation,
    ImportedFile,
    ImportedListRow,
    ImportedMessage,
    Unusable,
    checked,
    fenced,
    few_files,
    few_tags,
    in_pairs,
    in_tree_order,
    list_of,
    literal_variables,
    lose,
    moment,
    name_of,
    object_of,
    paragraphs,
    source_of,
    text_of,
)
from core.json_types import JsonObject
from core.sentences import Sentence

PRODUCT = "openwebui"
MAX_PARTS = 5_000  # of one message
_OPEN = '<details type="'
_CLOSE = "</details>"
_SUMMARY_END = "</summary>"
_VARIABLE = re.compile(r"\{\{[ \t]{0,3}([A-Za-z_]\w{0,39})[ \t]{0,3}\|([^{}\n]{0,400})\}\}")
_OPTIONS = re.compile(r"options=\[([^\]\n]{0,400})\]")
_CHOICE = re.compile(r'"([^"|\n]{1,100})"')


def is_chat(row: JsonObject) -> bool:
    """Return whether a row is a chat, or the inner `chat` of one, which some versions export."""
    chat = row["chat"] if isinstance(row.get("chat"), dict) else row
    return isinstance(object_of(chat.get("history")).get("messages"), dict) or (
        chat is not row and isinstance(chat.get("messages"), list)
    )


def openwebui(row: JsonObject) -> ImportedConversation:
    """Read a chat. `folder` is the name of its folder, which the row does not have; the caller may set it."""
    outer = row if isinstance(row.get("chat"), dict) else {"chat": row, **row}
    chat = outer["chat"]
    losses: dict[str, int] = {}
    nodes = _nodes(chat)
    spoken, places = _spoken(nodes, losses)
    current = object_of(chat.get("history")).get("currentId") or outer.get("current_message_id")
    messages, leaf = in_pairs(spoken, places.get(current) if isinstance(current, str) else None)
    lose(
        losses,
        "instructions",
        bool(text_of(object_of(chat.get("params")).get("system")) or text_of(chat.get("system"))),
    )
    lose(losses, "summaries", bool(text_of(outer.get("summary"))))
    tags = object_of(outer.get("meta")).get("tags") or chat.get("tags")
    own = outer.get("id") or chat.get("id") or (f"message {spoken[0].id}" if spoken else "")
    return checked(
        ImportedConversation(
            source=source_of(PRODUCT, own),
            title=text_of(outer.get("title")) or text_of(chat.get("title")),
            created=moment(outer.get("created_at")) or moment(chat.get("timestamp")),
            updated=moment(outer.get("updated_at")),
            archived=outer.get("archived") is True or outer.get("archived") == 1,
            pinned=outer.get("pinned") is True or outer.get("pinned") == 1,
            messages=messages,
            leaf=leaf,
            losses=losses,
            tags=few_tags(_tags(tags), losses),
        )
    )


def _tags(value: Any) -> list[str]:
    """Return the names of tags. An id has `_` for the blanks of the name; the oldest chats have objects."""
    names = [text_of(object_of(each).get("name") if isinstance(each, dict) else each) for each in list_of(value)]
    return [name.replace("_", " ").strip() for name in names if name and name != "none"]


def _nodes(chat: JsonObject) -> dict[str, JsonObject]:
    """Return the messages by id. Those of a list get the message before them as parent."""
    history = object_of(chat.get("history")).get("messages")
    if isinstance(history, dict) and history:
        return {key: node for key, node in history.items() if isinstance(node, dict)}
    nodes: dict[str, JsonObject] = {}
    before: str | None = None
    for number, node in enumerate(map(object_of, list_of(chat.get("messages")))):
        key = text_of(node.get("id")) or str(number)
        nodes[key] = {**node, "parentId": node.get("parentId", before)}
        before = key
    return nodes


def _spoken(
    nodes: dict[str, JsonObject], losses: dict[str, int]
) -> tuple[list[ImportedMessage], dict[str, str | None]]:
    """Return the messages with words, parents first, and for every message the nearest such one at or above it."""
    parents = {key: text_of(node.get("parentId")) or None for key, node in nodes.items()}
    children = {
        key: [child for child in list_of(node.get("childrenIds")) if isinstance(child, str)]
        for key, node in nodes.items()
    }
    messages: list[ImportedMessage] = []
    places: dict[str, str | None] = {}
    for place in in_tree_order(parents, children):
        above = places[place.parent] if place.parent is not None else None
        message = _message(place.id, above, nodes[place.id], losses)
        if message is not None:
            messages.append(message)
        places[place.id] = place.id if message else above
    lose(losses, "unreachable", len(nodes) - len(places))
    return messages, places


def _message(key: str, above: str | None, node: JsonObject, losses: dict[str, int]) -> ImportedMessage | None:
    role = node.get("role")
    if role not in ("user", "assistant"):
        lose(losses, "instructions", role == "system")
        return None
    question = role == "user"
    message = ImportedMessage(key, above, question, "", moment(node.get("timestamp")), _files(node, losses))
    _read_content(message, node, losses)
    if not question:
        message.model = text_of(node.get("model"))
        lose(losses, "sources", bool(list_of(node.get("sources")) or list_of(node.get("citations"))))
        rating = object_of(node.get("annotation")).get("rating")
        lose(losses, "ratings", rating is not None)
    if not message.text and not message.files and not message.reasoning:
        lose(losses, "errors", bool(node.get("error")))
        return None
    return message


def _read_content(message: ImportedMessage, node: JsonObject, losses: dict[str, int]) -> None:
    """Set the text and the reasoning of a message."""
    content = node.get("content")
    texts: list[str] = []
    if isinstance(content, list):
        lose(losses, "others", len(content) - MAX_PARTS)
        for part in map(object_of, content[:MAX_PARTS]):
            if part.get("type") in ("text", "input_text", "output_text"):
                texts.append(text_of(part.get("text")))
            elif url := text_of(object_of(part.get("image_url")).get("url")):
                message.files.append(_picture(url, PICTURE, ""))
    else:
        texts.append(text_of(content))
    text = paragraphs(*texts)
    reasoning: list[str] = []
    if not message.question:
        text, reasoning = _without_details(text, losses)
        written = _read_output(list_of(node.get("output"))[:MAX_PARTS], reasoning, losses)
        text = text if text.strip() else paragraphs(*written)
    message.text = text.strip()
    message.reasoning = paragraphs(*reasoning).strip()


def _read_output(items: list[Any], reasoning: list[str], losses: dict[str, int]) -> list[str]:
    """Return the texts of the items, and append their reasoning to `reasoning`."""
    texts: list[str] = []
    for item in map(object_of, items):
        words = "".join(text_of(object_of(part).get("text")) for part in list_of(item.get("content"))).strip()
        match item.get("type"):
            case "message":
                texts.append(words)
            case "reasoning":
                summary = [text_of(object_of(part).get("text")) for part in list_of(item.get("summary"))]
                reasoning.append(words or paragraphs(*summary))
            case "open_webui:code_interpreter":
                if code := text_of(item.get("code")):
                    texts.append(fenced(code, text_of(item.get("lang"))))
                lose(losses, "tools")
            case "open_webui:context_compaction":
                lose(losses, "summaries")
            case str() as kind if kind.endswith("_call"):
                lose(losses, "tools")
    return texts


def _without_details(text: str, losses: dict[str, int]) -> tuple[str, list[str]]:
    """Return the text without the blocks that Open WebUI has put into it, and the reasoning in these."""
    pieces: list[str] = []
    reasoning: list[str] = []
    place = 0
    while (start := text.find(_OPEN, place)) >= 0:
        kind = text[start + len(_OPEN) : start + len(_OPEN) + 40].partition('"')[0]
        end = text.find(_CLOSE, start)
        if end < 0:
            break
        after = end + len(_CLOSE)
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
                lose(losses, "tools")
            if kind == "code_interpreter" and body:
                pieces.append(f"{body}\n")
        place = after
    pieces.append(text[place:])
    return ("".join(pieces) if len(pieces) > 1 else text), reasoning


def _files(node: JsonObject, losses: dict[str, int]) -> list[ImportedFile]:
    """Return the files and pictures of a message. References to collections, notes and chats are counted as lost."""
    files: list[ImportedFile] = []
    for each in map(object_of, list_of(node.get("files"))):
        inner = object_of(each.get("file"))
        kind = each.get("type") or "file"
        name = (
            name_of(inner.get("filename"))
            or name_of(each.get("name"))
            or name_of(object_of(inner.get("meta")).get("name"))
        )
        key = text_of(inner.get("id")) or text_of(each.get("id"))
        is_picture = kind == "image" or text_of(each.get("content_type")).startswith("image/")
        if is_picture:
            files.append(_picture(text_of(each.get("url")), name or PICTURE, key))
        elif kind in ("file", "doc", "text"):
            text = text_of(object_of(inner.get("data")).get("content")) or text_of(each.get("content"))
            files.append(ImportedFile(name or "file", text=text, key=key))
        else:
            lose(losses, "references")
    return few_files(files, losses)


def _picture(url: str, name: str, key: str) -> ImportedFile:
    """Return a picture: its bytes if the address has them, otherwise its id, which is in the address, too."""
    if url.startswith("data:"):
        kind, _, data = url[5:].partition(";base64,")
        suffix = kind.partition("/")[2].partition("+")[0]
        named = name if "." in name else f"{name}.{suffix if suffix.isalnum() else 'png'}"
        return ImportedFile(named, data=data)
    before, _, after = url.partition("/files/")
    path = (after or before).strip("/")
    return ImportedFile(name, key=key or path.partition("/")[0][:200])


def persona(row: JsonObject) -> ImportedListRow:
    """Read a model of the workspace: a system prompt in front of a base model, which becomes a persona.

    Raises `Unusable` for a row that only changes the settings of a model.
    """
    if not text_of(row.get("base_model_id")) and not text_of(object_of(row.get("params")).get("system")):
        raise Unusable(Sentence("It has only settings of a model, and no instructions."))
    meta, params = object_of(row.get("meta")), object_of(row.get("params"))
    starters = [text_of(object_of(each).get("content")) for each in list_of(meta.get("suggestion_prompts"))]
    lost = [name for name, key in (("tools", "toolIds"), ("knowledge", "knowledge"), ("filters", "filterIds"))
            if list_of(meta.get(key))]  # fmt: skip
    return ImportedListRow(
        "personas",
        {
            "name": text_of(row.get("name")),
            "description": text_of(meta.get("description")),
            "instructions": literal_variables(text_of(params.get("system"))),
            "model": text_of(row.get("base_model_id")),
            "starter_messages": [text for text in starters if text],
            "lost": lost,
        },
    )


def prompt(row: JsonObject) -> ImportedListRow:
    """Read a prompt. Its command is its name where it has no other.

    A variable of Open WebUI may have a type and properties behind `|`. Its choices become those of a variable here.
    """
    command = text_of(row.get("command")).lstrip("/")
    name = " ".join((text_of(row.get("name")) or text_of(row.get("title")) or command).split())
    text = _VARIABLE.sub(_variable, text_of(row.get("content")))
    return ImportedListRow("prompts", {"name": name, "text": text})


def _variable(match: re.Match[str]) -> str:
    options = _OPTIONS.search(match[2])
    choices = "|".join(_CHOICE.findall(options[1])) if options is not None else ""
    return f"{{{{{match[1]}:{choices}}}}}" if choices else f"{{{{{match[1]}}}}}"


def memory(row: JsonObject) -> ImportedListRow:
    return ImportedListRow("memories", {"text": text_of(row.get("content"))})


def folder(name: str) -> str:
    """Return a folder's name as that of a project."""
    return " ".join(text_of(name).split())[:MAX_FOLDER]
