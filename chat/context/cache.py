"""Compare a prompt with the prompt that a provider has cached, and find where and why the match ends.

Providers keep the beginnings of the prompts they have read. A `SentPrompt` is the fingerprint of a prompt: a digest of
each message. The fingerprint of the last prompt shows how far the next prompt begins the same and what differs first.
The rules: docs/develop/context.md, “Caching”.

1. `prompt_pieces` and `cache_points` make the fingerprint of a prompt that is about to be sent.
2. `forecast` compares it with the last one and states what the cache will serve and what it will miss.
3. `with_usage` adds what the provider reports that it served.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, NotRequired, TypeAlias, TypedDict

from chat.context.types import PromptMessage
from llm.types.model_call import CacheRule, ChangedPart, Usage

# The forecast counts as missed if the provider serves less than this share of it, minus these tokens. Providers count
# tokens in their own ways, so smaller differences mean nothing.
TOLERATED_SHARE = 0.9
TOLERATED_TOKENS = 256
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_CHANGED_PARTS = {
    "persona": "persona_moved",
    "memory": "memory_moved",
    "project_files": "files_moved",
    "file_listing": "files_moved",
    "reminder": "reminder_moved",
}
_LEADING = ("system", "tasks", "summary")  # sections above the conversation, which are no messages to Anthropic
_CHANGED = {
    "tools": "tools_changed",
    "persona": "persona_changed",
    "memory": "memory_changed",
    "project_files": "files_changed",
    "file_listing": "files_changed",
    "tasks": "tasks_changed",
    "summary": "summary_changed",
    "omitted": "history_trimmed",
    "reminder": "reminder_changed",
}


# A JSON value that `digest` takes.
Digestible: TypeAlias = "str | int | Sequence[Digestible] | Mapping[str, Digestible] | None"


class PromptPiece(NamedTuple):
    """The fingerprint of one message of a prompt. The first piece stands for the definitions of the tools.

    `digest` is the digest of the message as sent. `source` is a digest of the row's id; for the system prompt, a digest
    of its text without the date line. `state` is `reasoned` if reasoning was sent with the message, else the message's
    own state. `blocks` is the number of content blocks, as Anthropic counts them.
    """

    section: str
    tokens: int
    digest: str
    source: str
    state: str
    blocks: int


class StoredPrompt(TypedDict):
    """A `SentPrompt` as it is stored (`LastPrompt.prompt`). A piece is the list of a `PromptPiece`'s fields."""

    pieces: Sequence[tuple[str, int, str, str, str, int]]
    points: Sequence[int]
    settings: str
    versions: Mapping[str, str]
    at: float
    reported: NotRequired[bool]
    answer: NotRequired[str]


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """The fingerprint of a prompt that was sent at the time `at`, in seconds since the epoch.

    `points` are numbers of pieces after which the provider was asked to cache the prompt. `settings` is a digest of
    other settings; some providers read a prompt again if these change. `reported`: the provider reported how much its
    cache served. `answer` is the provider's id of the answer; with it we can ask the provider what has changed since.
    """

    pieces: tuple[PromptPiece, ...]
    points: tuple[int, ...]
    settings: str
    versions: Mapping[str, str]
    at: float
    reported: bool = False
    answer: str = ""

    def as_json(self) -> StoredPrompt:
        """Return the fingerprint for storage."""
        return {
            "pieces": self.pieces,
            "points": self.points,
            "settings": self.settings,
            "versions": self.versions,
            "at": self.at,
            "reported": self.reported,
            "answer": self.answer,
        }


def parse_sent_prompt(stored: StoredPrompt) -> SentPrompt:
    """Return the fingerprint that `SentPrompt.as_json` stored."""
    return SentPrompt(
        pieces=tuple(PromptPiece(*piece) for piece in stored["pieces"]),
        points=tuple(stored["points"]),
        settings=stored["settings"],
        versions=stored["versions"],
        at=stored["at"],
        reported=stored.get("reported", False),
        answer=stored.get("answer", ""),
    )


class CacheEntry(TypedDict):
    """The forecast of a provider's cache and what it served, in tokens. Part of a call's report.

    `read`, `written` and `uncached` are the provider's own counts, None until it reports them. The prompt was read
    again from `missed_section` on, for `reason`; both are None if the cache served all that had been sent before.
    `again` is the number of tokens, by our count, that were sent before and come after that place.
    """

    expected: int
    read: int | None
    written: int | None
    uncached: int | None
    missed_section: str | None
    reason: str | None
    again: NotRequired[int]


def digest(*values: Digestible) -> str:
    """Return a digest of JSON values, of sixteen characters."""
    return _hashed("\0".join(map(_text, values)))


def _hashed(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def _text(value: Digestible) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def prompt_pieces(messages: Sequence[PromptMessage], tools: str, tools_tokens: int) -> tuple[PromptPiece, ...]:
    """Return the pieces of a prompt. `tools` is the digest of the tools' definitions, in their order."""
    head = PromptPiece("tools", tools_tokens, tools, "", "full", 1)
    return (head, *map(_piece, messages))


def _piece(message: PromptMessage) -> PromptPiece:
    text = message.text or ""
    reasoning = message.reasoning
    calls = message.tool_calls
    if message.section == "history" and not (message.images or calls or reasoning or message.tool_call_id):
        row = _hashed(message.source or "")[:8]
        return PromptPiece("history", message.tokens, _hashed(f"{message.role}\0{text}"), row, message.state, 1)
    parts: list[Digestible] = [message.role, text]
    blocks = 1
    if message.images or calls or reasoning is not None or message.tool_call_id:
        call_fields = [[call.id, call.name, call.arguments] for call in calls]
        parts += [[image.id for image in message.images], call_fields, message.tool_call_id]
        parts.append(list(reasoning.items) if reasoning is not None else None)
        content = len(message.images) + len(calls) + bool(text.strip())
        blocks = len(reasoning.items) if reasoning is not None else max(1, content)
    source = _without_date(text) if message.section == "system" else message.source
    state = "reasoned" if reasoning is not None else message.state
    source_digest = digest(source)[:8] if source else ""
    return PromptPiece(message.section, message.tokens, digest(*parts), source_digest, state, blocks)


def _without_date(text: str) -> str:
    """Return a system prompt without its last line if that holds a date. Administrators can edit the line."""
    above, _, last = text.rpartition("\n")
    return above.rstrip() if _DATE.search(last) else text


def cache_points(messages: Sequence[PromptMessage], borders: Sequence[int], rule: CacheRule) -> tuple[int, ...]:
    """Return the numbers of messages after which the provider is asked to cache the prompt.

    `borders` is from `chat.context.build.Prompt`. If only a user message can carry a point, each border moves up
    to the last user message above it.
    """
    if rule.points == "any":
        return tuple(borders)
    if rule.points != "user":
        return ()
    carriers = [number for number, message in enumerate(messages, 1) if message.role == "user"]
    nearest = ([number for number in carriers if number <= border][-1:] for border in borders)
    return tuple(sorted({number for numbers in nearest for number in numbers}))


def forecast(now: SentPrompt, before: SentPrompt | None, rule: CacheRule, *, other_model: bool = False) -> CacheEntry:
    """Return the forecast of how much of the prompt `now` the cache will serve.

    `before` is the last prompt of this conversation that was sent to the same model. `other_model`: the conversation
    was sent to other models only. For a provider that is not known to report its cache, the entry forecasts
    no cached tokens and no miss.
    """
    entry: CacheEntry = {
        "expected": 0, "read": None, "written": None, "uncached": None, "missed_section": None, "reason": None,
    }  # fmt: skip
    first = now.pieces[0 if now.pieces[0].tokens or len(now.pieces) == 1 else 1].section
    if before is None:
        return {**entry, "missed_section": first, "reason": "model_changed"} if other_model else entry
    if not (rule.reports_usage or before.reported):
        return entry
    again = {piece.digest for piece in before.pieces}
    if rule.lifetime is not None and now.at - before.at > rule.lifetime:
        lost = sum(piece.tokens for piece in now.pieces if piece.digest in again)
        return {**entry, "missed_section": first, "reason": "expired", "again": lost}
    same = _common(now, before)
    missed = _difference(now, before, same)
    if rule.depends_on_settings and now.settings != before.settings and (leading := _before_messages(now)) < same:
        same = leading
        missed = (now.pieces[leading].section, "settings_changed")
    served = _served(now, before, same, rule)
    if missed is None and served == 0 and same:
        missed = (first, "too_short")
    if missed is not None:
        lost = sum(piece.tokens for piece in now.pieces[same:] if piece.digest in again)
        entry |= {"missed_section": missed[0], "reason": missed[1], "again": lost}
    return {**entry, "expected": served}


def tokens_to_write(now: SentPrompt, served: int, rule: CacheRule) -> int:
    """Return the tokens that the provider will bill as written into its cache, without those `served` from it.

    A provider that caches prompts by itself bills none.
    """
    up_to_point = sum(piece.tokens for piece in now.pieces[: max(now.points, default=0)])
    return max(0, up_to_point - served) if rule.points and up_to_point >= rule.min_tokens else 0


def _common(now: SentPrompt, before: SentPrompt) -> int:
    """Return the number of pieces that both prompts begin with."""
    pairs = zip(now.pieces, before.pieces, strict=False)
    differing = (number for number, (one, other) in enumerate(pairs) if one.digest != other.digest)
    return next(differing, min(len(now.pieces), len(before.pieces)))


def _before_messages(now: SentPrompt) -> int:
    """Return the number of leading pieces that are no messages to Anthropic: the tools and the leading sections."""
    numbers = (number for number, piece in enumerate(now.pieces) if piece.section not in ("tools", *_LEADING))
    return next(numbers, len(now.pieces))


def _served(now: SentPrompt, before: SentPrompt, same: int, rule: CacheRule) -> int:
    """Return the number of tokens at the common beginning that the provider has cached and will serve."""
    end = same
    if rule.points:
        end = max((point for point in before.points if point <= same and _reaches(now, point, rule)), default=0)
    tokens = sum(piece.tokens for piece in now.pieces[:end])
    return tokens - tokens % rule.granularity if tokens >= rule.min_tokens else 0


def _reaches(now: SentPrompt, earlier_point: int, rule: CacheRule) -> bool:
    """Return whether a point of the prompt is near enough to `earlier_point` for the provider to find it."""
    if not rule.lookback_blocks:
        return True
    later = (point for point in now.points if point >= earlier_point)
    return any(sum(piece.blocks for piece in now.pieces[earlier_point:point]) < rule.lookback_blocks for point in later)


def _difference(now: SentPrompt, before: SentPrompt, at: int) -> tuple[str, str] | None:
    """Return the section and the reason of the first difference, or None if one prompt continues the other."""
    if at >= min(len(now.pieces), len(before.pieces)):
        return None
    was = before.pieces[at]
    new = now.pieces[at]
    if was.section == new.section == "system":
        return "system", _system_change(was, new, now, before)
    if was.section != new.section and was.section in _CHANGED_PARTS:
        below = now.pieces[at:]
        # A reminder may hold the time, so its digest changes although the reminder only moves.
        moved = any(was.section == piece.section and piece.section == "reminder" for piece in below)
        moved = moved or any(piece.digest == was.digest for piece in below)
        return was.section, _CHANGED_PARTS[was.section] if moved else _change(was.section, now, before)
    for section in (new.section, was.section):
        if section in _CHANGED:
            return section, _change(section, now, before)
    return new.section, _message_change(was, new, before)


def _system_change(was: PromptPiece, new: PromptPiece, now: SentPrompt, before: SentPrompt) -> str:
    if was.source == new.source:
        return "date_changed"
    if _version_changed("system_prompt", now, before):
        return "system_changed"
    return "persona_changed" if _version_changed("persona", now, before) else "guidance_changed"


def _change(section: str, now: SentPrompt, before: SentPrompt) -> str:
    """Return the reason of a changed section. The persona's section holds the project's instructions too."""
    is_project = section == "persona" and not _version_changed("persona", now, before)
    return "project_changed" if is_project and _version_changed("project", now, before) else _CHANGED[section]


def _version_changed(name: str, now: SentPrompt, before: SentPrompt) -> bool:
    return now.versions.get(name) != before.versions.get(name)


def _message_change(was: PromptPiece, new: PromptPiece, before: SentPrompt) -> str:
    if was.source == new.source:
        if new.state in ("stubbed", "shortened"):
            return f"result_{new.state}"
        return "reasoning_dropped" if was.state == "reasoned" != new.state else "message_changed"
    return "history_trimmed" if any(piece.source == new.source for piece in before.pieces) else "branch_changed"


def with_usage(
    entry: CacheEntry, sent: SentPrompt, usage: Usage, counted: int, changed: ChangedPart | None = None
) -> CacheEntry:
    """Return the entry with the provider's counts. If the cache served less than expected, name the section and reason.

    `usage` is sensible (`Usage.sensible`). `counted` is the number of tokens in the whole prompt by our count; it
    gives the ratio between the provider's counts and ours. `changed` is the part that the provider names as changed. It
    replaces the reason of the entry, unless the entry's first difference is in the same part or an earlier one.
    """
    read = usage.cached_input
    written = usage.cache_written
    reported: CacheEntry = {
        **entry, "read": read, "written": written, "uncached": usage.input - read - written,
    }  # fmt: skip
    ratio = usage.input / counted if counted and usage.input else 1.0
    promised = entry["expected"] * ratio
    missed = read < promised * TOLERATED_SHARE - TOLERATED_TOKENS
    if entry["reason"] and read > promised + max(TOLERATED_TOKENS, entry.get("again", 0) * ratio / 2):
        # The provider still had a prompt from before the last one, and it began the same.
        return {**reported, "missed_section": None, "reason": None, "again": 0}
    if changed and (missed or entry["reason"]) and _is_earlier(changed, entry):
        return {**reported, "missed_section": _first_section(changed, sent), "reason": _PARTS[changed]}
    if missed:
        return {**reported, "missed_section": _section_at(sent, read / ratio), "reason": "not_kept"}
    return reported


# The parts of a request to Anthropic, in the order in which Anthropic reads them, with the reason of a change.
_PARTS: Mapping[ChangedPart, str] = {
    "model": "model_changed",
    "tools": "tools_changed",
    "system": "system_changed",
    "messages": "message_changed",
}


def _is_earlier(changed: ChangedPart, entry: CacheEntry) -> bool:
    """Return whether the part `changed` comes before the part with the entry's first difference."""
    if entry["reason"] in (None, "model_changed"):
        return entry["reason"] is None
    section = entry["missed_section"]
    part: ChangedPart = "tools" if section == "tools" else "system" if section in _LEADING else "messages"
    return list(_PARTS).index(changed) < list(_PARTS).index(part)


def _first_section(changed: ChangedPart, sent: SentPrompt) -> str:
    """Return the first section of a part of the request."""
    if changed == "messages":
        return sent.pieces[min(_before_messages(sent), len(sent.pieces) - 1)].section
    return "system" if changed == "system" else sent.pieces[0 if sent.pieces[0].tokens else 1].section


def _section_at(sent: SentPrompt, tokens: float) -> str:
    """Return the section of the first piece that ends after the first `tokens` tokens."""
    for piece in sent.pieces:
        tokens -= piece.tokens
        if tokens < 0:
            return piece.section
    return sent.pieces[-1].section
