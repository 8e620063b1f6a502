"""The prompt caches of providers. Each serves prefixes of the prompt by its own rules.

Sources: the vendors' pages on prompt caching, for the cached prefixes, their least length and their lifetime.
"""

import hashlib
import json
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .script import rough_tokens

MAX_POINTS = 4
_MAX_KEPT = 50_000  # beginnings
_BY_POINTS = re.compile(r"gpt-(?:5\.(?:[6-9]|\d\d)|[6-9])")
_LEAST = (
    (re.compile(r"opus-5|sonnet-5-5|haiku-5-5"), 512),
    (re.compile(r"opus-4-[56]|haiku-4-5"), 4_096),
)
_REACH = 20  # blocks that a point of Anthropic's looks back
_ANTHROPIC_SECONDS = 300
_CACHE_CONTROL = "cache_control"
_BREAKPOINT = "prompt_cache_breakpoint"


class Served(NamedTuple):
    read: int = 0
    written: int = 0


class PromptCache:
    """Of one server. Beginnings are kept by model; `forget` loses them all, as time does."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, float] = OrderedDict()
        self._compared: dict[str, dict[str, Any]] = {}  # what a request can be compared with, by the id of its answer

    def forget(self) -> None:
        self._kept.clear()

    def anthropic(self, body: Mapping[str, Any], total: int) -> Served:
        """Return the tokens read and written for a request of `total` tokens: a point finds the longest prefix."""
        blocks = list(_blocks(body))
        least = next((size for pattern, size in _LEAST if pattern.search(str(body["model"]))), 1_024)
        weights = [rough_tokens([block]) for _, block in blocks]
        scale = total / max(1, sum(weights))
        sizes = [int(sum(weights[: end + 1]) * scale) for end in range(len(blocks))]
        keys = _chain(str(body["model"]), [mark + json.dumps(_bare(block), sort_keys=True) for mark, block in blocks])
        points = [end for end, (_, block) in enumerate(blocks) if _CACHE_CONTROL in block and sizes[end] >= least]
        reached = {place for point in points for place in range(max(0, point - _REACH + 1), point + 1)}
        read = max((sizes[place] for place in reached if self._has(keys[place], _ANTHROPIC_SECONDS)), default=0)
        self._keep(keys[point] for point in points)
        return Served(read, max(0, sizes[points[-1]] - read) if points else 0)

    def diagnose(self, body: Mapping[str, Any], answer: str) -> dict[str, Any] | None:
        """Return Anthropic's diagnosis: the first part that differs from the earlier request that the body names.

        Sources: `Diagnostics` and `CacheMissReason` of its client's types.
        """
        diagnostics = body.get("diagnostics")
        if diagnostics is None:
            return None
        now = {name: _bare(body.get(name)) for name in ("model", "system", "tools", "messages")}
        now["settings"] = [body.get(name) for name in ("tool_choice", "thinking", "output_config")]
        self._compared[answer] = now
        if diagnostics["previous_message_id"] is None:
            return None
        before = self._compared.get(diagnostics["previous_message_id"])
        if before is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        same = {name: now[name] == before[name] for name in ("model", "system", "tools")}
        same["messages"] = now["messages"][: len(before["messages"])] == before["messages"]
        changed = next((name for name, unchanged in same.items() if not unchanged), None)
        if changed in (None, "messages") and now["settings"] != before["settings"]:
            return {"cache_miss_reason": {"type": "unavailable"}}
        missed = {"type": f"{changed}_changed", "cache_missed_input_tokens": rough_tokens([before["messages"]])}
        return {"cache_miss_reason": missed} if changed else None

    def openai(self, body: Mapping[str, Any], total: int, step: int = 128, least: int = 1_024) -> Served:
        """Return the tokens of the longest cached prefix, in steps. Newer models in Responses cache up to points."""
        if "input" in body and _BY_POINTS.search(str(body["model"])):
            return self._by_points(body, total)
        parts = body.get("messages") or [body.get("instructions", ""), body.get("input")]
        text = "".join(_texts([body.get("tools"), body.get("response_format"), parts]))
        long = 4 * step  # characters of a step
        keys = _chain(str(body["model"]), [text[at : at + long] for at in range(0, len(text) - long + 1, long)])
        cached = next((number for number, key in enumerate(keys) if not self._has(key)), len(keys))
        self._keep(keys)
        read = min(cached * step, total - total % step)
        return Served(read if read >= least else 0)

    def _by_points(self, body: Mapping[str, Any], total: int) -> Served:
        items = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
        head = [body.get("tools"), body.get("text"), body.get("instructions")]
        segments = [head, *items]
        weights = [rough_tokens([segment]) for segment in segments]
        scale = total / max(1, sum(weights))
        sizes = [int(sum(weights[: end + 1]) * scale) for end in range(len(segments))]
        keys = _chain(str(body["model"]), [json.dumps(_bare(segment), sort_keys=True) for segment in segments])
        marked = [end for end, item in enumerate(items, 1) if breakpoints(item)]
        newest = [end for end, item in enumerate(items, 1) if _of_user(item)][-1:]
        points = [point for point in sorted({*marked, *newest}) if sizes[point] >= 1_024]
        read = max((size for size, key in zip(sizes, keys, strict=True) if self._has(key)), default=0)
        self._keep(keys[point] for point in points)
        return Served(read, max(0, sizes[points[-1]] - read) if points else 0)

    def _has(self, key: str, seconds: float | None = None) -> bool:
        stored_at = self._kept.get(key)
        return stored_at is not None and (seconds is None or time.time() - stored_at <= seconds)

    def _keep(self, keys: Iterator[str] | Sequence[str]) -> None:
        for key in keys:
            self._kept[key] = time.time()
            self._kept.move_to_end(key)
        while len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)


def _chain(start: str, parts: Sequence[str]) -> list[str]:
    """Of each beginning a digest that no other beginning has."""
    digest, chain = hashlib.sha256(start.encode()), []
    for part in parts:
        digest.update(part.encode(errors="replace") + b"\0")
        chain.append(digest.hexdigest())
    return chain


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in ("role", "type"):
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _bare(value: Any) -> Any:
    """Without the marks of the points themselves."""
    if isinstance(value, Mapping):
        return {key: _bare(item) for key, item in value.items() if key not in (_CACHE_CONTROL, _BREAKPOINT)}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the blocks of a request to Anthropic in the order of its prefix, each with the settings it depends on."""
    for tool in body.get("tools") or ():
        yield "tool", tool
    system = body.get("system") or []
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        yield "system", block
    config = body.get("output_config") or {}
    settings = json.dumps([body.get("tool_choice"), body.get("thinking"), config.get("effort")])
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield f"{settings} {message['role']}", block


def anthropic_refusal(body: Mapping[str, Any]) -> str | None:
    """Return the service's sentence on invalid cache points or other invalid cache settings, or None."""
    if set(body.get("diagnostics") or {"previous_message_id": None}) != {"previous_message_id"}:
        return "diagnostics.previous_message_id: Field required"
    marked = [block for _, block in _blocks(body) if _CACHE_CONTROL in block]
    if len(marked) + (_CACHE_CONTROL in body) > MAX_POINTS:
        return f"A maximum of {MAX_POINTS} blocks with cache_control may be provided. Found {len(marked)}."
    short = False
    for block in marked:
        if block.get("type") in ("thinking", "redacted_thinking"):
            return f"{block['type']}.cache_control: Extra inputs are not permitted"
        if block.get("type") == "text" and not block["text"].strip():
            return "cache_control cannot be set for empty text blocks"
        control = block[_CACHE_CONTROL]
        if control.get("type") != "ephemeral" or control.get("ttl", "5m") not in ("5m", "1h"):
            return "cache_control: Input should be {'type': 'ephemeral', 'ttl': '5m' or '1h'}"
        if control.get("ttl") == "1h" and short:
            return "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
        short = short or control.get("ttl", "5m") == "5m"
    return None


def breakpoints(item: Mapping[str, Any]) -> list[int]:
    """The parts of an item of Responses' input that carry a point."""
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return [number for number, part in enumerate(parts) if _BREAKPOINT in part]


def _of_user(item: Mapping[str, Any]) -> bool:
    return item.get("role") == "user" or item.get("type") == "function_call_output"


def responses_refusal(body: Mapping[str, Any]) -> str | None:
    items = body["input"] if isinstance(body.get("input"), list) else []
    marked = [(number, part) for number, item in enumerate(items) for part in breakpoints(item)]
    if marked and not _BY_POINTS.search(str(body.get("model"))):
        number, part = marked[0]
        return f"Unknown parameter: 'input[{number}].content[{part}].{_BREAKPOINT}'."
    if len(marked) >= MAX_POINTS:
        return f"At most {MAX_POINTS} cache breakpoints can be written by a request, the implicit one included."
    return None
