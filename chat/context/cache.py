"""Compare a prompt with what a provider has cached, and say where and why the match ends.

Providers keep the beginnings of the prompts they have read. The fingerprint of the last prompt, a digest of each of its
messages, says how far the next one begins the same, and what is the first thing that does not (docs/develop/context.md,
“Caching”).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, NotRequired, TypedDict

from chat.context.types import PromptMessage
from llm.types.model_call import CacheRule, Changed, Usage

# What a provider may serve less than is expected before it is said that it did: it counts in ways of its own.
TOLERATED, TOLERATED_TOKENS = 0.9, 256
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOVED = {
    "persona": "persona_moved",
    "project_files": "files_moved",
    "file_listing": "files_moved",
    "reminder": "reminder_moved",
}
_LEADING = ("system", "tasks", "summary")  # in front of the conversation, they are no messages to Anthropic
_CHANGED = {
    "tools": "tools_changed",
    "persona": "persona_changed",
    "project_files": "files_changed",
    "file_listing": "files_changed",
    "tasks": "tasks_changed",
    "summary": "summary_changed",
    "omitted": "history_trimmed",
    "reminder": "reminder_changed",
}


class Piece(NamedTuple):
    """One message of a prompt as it was sent, or, in front of them, the definitions of the tools.

    `digest` stands for what was sent, `source` for the row it comes from; of S for S without its date line. `state` is
    `reasoned` where reasoning went along, else that of the message. `blocks`: of content, as Anthropic counts them.
    """

    section: str
    tokens: int
    digest: str
    source: str
    state: str
    blocks: int


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """The fingerprint of a prompt that was sent `at` a time, in seconds since the epoch.

    `points`: after so many pieces the provider was asked to keep what it had read. `settings`: a digest of what else
    some providers read again for. `reported`: the provider said how much its cache had served. `answer`: its id of the
    answer, by which it can be asked what has changed since.
    """

    pieces: tuple[Piece, ...]
    points: tuple[int, ...]
    settings: str
    versions: Mapping[str, str]
    at: float
    reported: bool = False
    answer: str = ""

    def as_json(self) -> dict[str, Any]:
        members = ("points", "settings", "versions", "at", "reported", "answer")
        return {"pieces": self.pieces, **{name: getattr(self, name) for name in members}}


def sent_of(stored: Mapping[str, Any]) -> SentPrompt:
    """From what `as_json` gave."""
    pieces = tuple(Piece(*piece) for piece in stored["pieces"])
    return SentPrompt(**{**stored, "pieces": pieces, "points": tuple(stored["points"])})


class CacheEntry(TypedDict):
    """What the cache was expected to serve and what it did, in tokens; for JSON.

    `read`, `written` and `uncached` are the provider's own counts, None until it has told them. From `missed_section`
    on, the prompt was read again for `reason`; both None where everything that had been sent before was served.
    `again`: tokens by our count that had been sent before and stand behind that place.
    """

    expected: int
    read: int | None
    written: int | None
    uncached: int | None
    missed_section: str | None
    reason: str | None
    again: NotRequired[int]


def digest(*values: Any) -> str:
    """Of JSON values, sixteen characters."""
    return _hashed("\0".join(map(_text, values)))


def _hashed(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def pieces_of(messages: Sequence[PromptMessage], tools: str, tools_tokens: int) -> tuple[Piece, ...]:
    """`tools` is the digest of their definitions, in their order."""
    head = Piece("tools", tools_tokens, tools, "", "full", 1)
    return (head, *map(_piece, messages))


def _piece(message: PromptMessage) -> Piece:
    text, reasoning, calls = message.text or "", message.reasoning, message.tool_calls
    if message.section == "history" and not (message.images or calls or reasoning or message.tool_call_id):
        row = _hashed(message.source or "")[:8]
        return Piece("history", message.tokens, _hashed(f"{message.role}\0{text}"), row, message.state, 1)
    parts: list[Any] = [message.role, text]
    blocks = 1
    if message.images or calls or reasoning is not None or message.tool_call_id:
        said = [[call.id, call.name, call.arguments] for call in calls]
        parts += [[image.id for image in message.images], said, message.tool_call_id]
        parts.append(list(reasoning.items) if reasoning is not None else None)
        content = len(message.images) + len(calls) + bool(text.strip())
        blocks = len(reasoning.items) if reasoning is not None else max(1, content)
    source = _without_date(text) if message.section == "system" else message.source
    state = "reasoned" if reasoning is not None else message.state
    return Piece(message.section, message.tokens, digest(*parts), digest(source)[:8] if source else "", state, blocks)


def _without_date(text: str) -> str:
    """A system prompt without its last line, where that says the date, in whatever words."""
    above, _, last = text.rpartition("\n")
    return above.rstrip() if _DATE.search(last) else text


def points_of(messages: Sequence[PromptMessage], borders: Sequence[int], rule: CacheRule) -> tuple[int, ...]:
    """After how many messages the provider is to be asked to keep what it has read.

    `borders` as in `chat.context.build.Prompt`. Where only a user's message can carry a point, the last one before.
    """
    if rule.points == "any":
        return tuple(borders)
    if rule.points != "user":
        return ()
    carriers = [number for number, message in enumerate(messages, 1) if message.role == "user"]
    before = ([number for number in carriers if number <= border][-1:] for border in borders)
    return tuple(sorted({number for found in before for number in found}))


def expected(now: SentPrompt, before: SentPrompt | None, rule: CacheRule, *, other_model: bool = False) -> CacheEntry:
    """What the cache will serve of the prompt `now`, after `before` was sent to the same model in this conversation.

    `other_model`: the conversation has only been sent to others. Where it is not known that the provider tells what it
    serves, nothing is promised, and nothing said to be missed.
    """
    entry: CacheEntry = {
        "expected": 0, "read": None, "written": None, "uncached": None, "missed_section": None, "reason": None,
    }  # fmt: skip
    first = now.pieces[0 if now.pieces[0].tokens or len(now.pieces) == 1 else 1].section
    if before is None:
        return {**entry, "missed_section": first, "reason": "model_changed"} if other_model else entry
    if not (rule.reported or before.reported):
        return entry
    again = {piece.digest for piece in before.pieces}
    if rule.lifetime is not None and now.at - before.at > rule.lifetime:
        lost = sum(piece.tokens for piece in now.pieces if piece.digest in again)
        return {**entry, "missed_section": first, "reason": "expired", "again": lost}
    same = _common(now, before)
    missed = _difference(now, before, same)
    if rule.settings and now.settings != before.settings and (kept := _before_messages(now)) < same:
        same, missed = kept, (now.pieces[kept].section, "settings_changed")
    served = _served(now, before, same, rule)
    if missed is None and served == 0 and same:
        missed = (first, "too_short")
    if missed is not None:
        lost = sum(piece.tokens for piece in now.pieces[same:] if piece.digest in again)
        entry |= {"missed_section": missed[0], "reason": missed[1], "again": lost}
    return {**entry, "expected": served}


def written(now: SentPrompt, served: int, rule: CacheRule) -> int:
    """Tokens that the provider will put into its cache beside those `served` from it, as it bills them; none where it
    keeps prompts by itself."""
    upto = sum(piece.tokens for piece in now.pieces[: max(now.points, default=0)])
    return max(0, upto - served) if rule.points and upto >= rule.least else 0


def _common(now: SentPrompt, before: SentPrompt) -> int:
    """How many pieces both begin with."""
    pairs = zip(now.pieces, before.pieces, strict=False)
    differing = (number for number, (one, other) in enumerate(pairs) if one.digest != other.digest)
    return next(differing, min(len(now.pieces), len(before.pieces)))


def _before_messages(now: SentPrompt) -> int:
    """The pieces before those that are messages to Anthropic: the tools, and the system's that lead."""
    numbers = (number for number, piece in enumerate(now.pieces) if piece.section not in ("tools", *_LEADING))
    return next(numbers, len(now.pieces))


def _served(now: SentPrompt, before: SentPrompt, same: int, rule: CacheRule) -> int:
    """Tokens of the beginning that the provider has kept and will find."""
    end = same
    if rule.points:
        end = max((point for point in before.points if point <= same and _reaches(now, point, rule)), default=0)
    tokens = sum(piece.tokens for piece in now.pieces[:end])
    return tokens - tokens % rule.step if tokens >= rule.least else 0


def _reaches(now: SentPrompt, kept: int, rule: CacheRule) -> bool:
    """Whether one of the prompt's own points looks back as far as to what was kept at an earlier one."""
    if not rule.reach:
        return True
    later = (point for point in now.points if point >= kept)
    return any(sum(piece.blocks for piece in now.pieces[kept:point]) < rule.reach for point in later)


def _difference(now: SentPrompt, before: SentPrompt, at: int) -> tuple[str, str] | None:
    """The section and the reason of the first difference; None where one prompt only goes on after the other."""
    if at >= min(len(now.pieces), len(before.pieces)):
        return None
    was, new = before.pieces[at], now.pieces[at]
    if was.section == new.section == "system":
        return "system", _system_change(was, new, now, before)
    if was.section != new.section and was.section in _MOVED:
        below = now.pieces[at:]
        # What a reminder says may hold the time; it moves all the same.
        moved = any(was.section == piece.section and piece.section == "reminder" for piece in below)
        moved = moved or any(piece.digest == was.digest for piece in below)
        return was.section, _MOVED[was.section] if moved else _change(was.section, now, before)
    for section in (new.section, was.section):
        if section in _CHANGED:
            return section, _change(section, now, before)
    return new.section, _message_change(was, new, before)


def _system_change(was: Piece, new: Piece, now: SentPrompt, before: SentPrompt) -> str:
    if was.source == new.source:
        return "date_changed"
    if _version_changed("system_prompt", now, before):
        return "system_changed"
    return "persona_changed" if _version_changed("persona", now, before) else "guidance_changed"


def _change(section: str, now: SentPrompt, before: SentPrompt) -> str:
    """Persona and project are one message."""
    of_project = section == "persona" and not _version_changed("persona", now, before)
    return "project_changed" if of_project and _version_changed("project", now, before) else _CHANGED[section]


def _version_changed(name: str, now: SentPrompt, before: SentPrompt) -> bool:
    return now.versions.get(name) != before.versions.get(name)


def _message_change(was: Piece, new: Piece, before: SentPrompt) -> str:
    if was.source == new.source:
        if new.state in ("stubbed", "shortened"):
            return f"result_{new.state}"
        return "reasoning_dropped" if was.state == "reasoned" != new.state else "message_changed"
    return "history_trimmed" if any(piece.source == new.source for piece in before.pieces) else "branch_changed"


def billed(
    entry: CacheEntry, sent: SentPrompt, usage: Usage, counted: int, changed: Changed | None = None
) -> CacheEntry:
    """With what the provider says it has served; where that is less than was expected, from which section on.

    `usage` is sensible; `counted`: the tokens of the whole prompt by our count, to which its own are held. What the
    provider says has `changed` goes before what was found here, unless that is in the same part of it or before.
    """
    read, written = usage.cached_input, usage.cache_written
    told: CacheEntry = {
        **entry, "read": read, "written": written, "uncached": usage.input - read - written,
    }  # fmt: skip
    ratio = usage.input / counted if counted and usage.input else 1.0
    promised = entry["expected"] * ratio
    missed = read < promised * TOLERATED - TOLERATED_TOKENS
    if entry["reason"] and read > promised + max(TOLERATED_TOKENS, entry.get("again", 0) * ratio / 2):
        # An earlier prompt than the last one began the same, and the provider still had it.
        return {**told, "missed_section": None, "reason": None, "again": 0}
    if changed and (missed or entry["reason"]) and _before(changed, entry):
        return {**told, "missed_section": _first(changed, sent), "reason": _PARTS[changed]}
    if missed:
        return {**told, "missed_section": _section_at(sent, read / ratio), "reason": "not_kept"}
    return told


# The parts of a request to Anthropic, in the order in which it reads them.
_PARTS: Mapping[Changed, str] = {
    "model": "model_changed",
    "tools": "tools_changed",
    "system": "system_changed",
    "messages": "message_changed",
}


def _before(changed: Changed, entry: CacheEntry) -> bool:
    """Whether this part stands before the one in which the first difference lies that was found here."""
    if entry["reason"] in (None, "model_changed"):
        return entry["reason"] is None
    section = entry["missed_section"]
    found: Changed = "tools" if section == "tools" else "system" if section in _LEADING else "messages"
    return list(_PARTS).index(changed) < list(_PARTS).index(found)


def _first(changed: Changed, sent: SentPrompt) -> str:
    """The first section of a part."""
    if changed == "messages":
        return sent.pieces[min(_before_messages(sent), len(sent.pieces) - 1)].section
    return "system" if changed == "system" else sent.pieces[0 if sent.pieces[0].tokens else 1].section


def _section_at(sent: SentPrompt, tokens: float) -> str:
    """The section of the first piece that is not within the first `tokens`."""
    for piece in sent.pieces:
        tokens -= piece.tokens
        if tokens < 0:
            return piece.section
    return sent.pieces[-1].section
