"""Measure the speed of the context engine alone, and the share of a prompt that repeats the previous turn's.

    python -m contrib.bench.bench_context [result.json]

Times are the best of several runs on this machine. The tokens of the messages are already counted, as in the product.
Each time includes the list of messages and the totals, but not the report on every source, which is built on demand.
"""

import json
import sys
import timeit
from dataclasses import replace
from pathlib import Path
from typing import Any

from chat.context.build import Prompt, build
from chat.context.rendering import LAYOUTS
from chat.context.types import Block, ContextMessage, ContextRequest, Document, Role, Room
from llm.tokens import NamedTokenizer, tokenizer

Row = dict[str, Any]

MESSAGE_TOKENS = 100
# Microseconds per prompt.
ALL_FIT_LIMIT = 400
FIFTH_FITS_LIMIT = 60

TURNS = 20
PROJECT_TOKENS = 20_000
# The shares that were measured for the design, in percent by layout.
EXPECTED_SHARE = {"near_end": 32, "files_first": 92, "all_first": 94}


def rows() -> list[Row]:
    """Return rows with name, value, unit, the limit or peer, and the ratio to it."""
    return [*_speed_rows(), *_share_rows()]


def main() -> None:
    table = rows()
    for row in table:
        print(
            f"{row['name']:<58} {row['value']:>9} {row['unit']:<3} {row['against']:<16} {row['limit']:>7} "
            f"ratio {row['ratio']:.2f}"
        )
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def _row(name: str, value: float, unit: str, against: str, limit: float) -> Row:
    return {
        "name": name,
        "value": round(value, 1),
        "unit": unit,
        "against": against,
        "limit": round(limit, 1),
        "ratio": round(value / limit, 3),
    }


def _speed_rows() -> list[Row]:
    everything = _microseconds(_conversation(1_000, share=1.0))
    fifth = _microseconds(_conversation(1_000, share=0.2))
    long = _microseconds(_conversation(10_000, share=1.0))
    priority = _microseconds(replace(_conversation(1_000, share=0.2), policy="priority"))
    pinned = _microseconds(_with_pinned(_conversation(1_000, share=1.0), every=20))
    pinned_fifth = _microseconds(_with_pinned(_conversation(1_000, share=0.2), every=20))
    report = _microseconds(_conversation(1_000, share=0.2), with_report=True)
    return [
        _row("1,000 messages, everything fits", everything, "µs", "limit", ALL_FIT_LIMIT),
        _row("1,000 messages, 20 % fits", fifth, "µs", "limit", FIFTH_FITS_LIMIT),
        _row("1,000 messages, 20 % fits, policy priority", priority, "µs", "limit", ALL_FIT_LIMIT),
        _row("10,000 messages, everything fits", long, "µs", "10 × 1,000", everything * 10),
        _row("1,000 messages, 50 turns pinned, everything fits", pinned, "µs", "1.5 × none", everything * 1.5),
        _row("1,000 messages, 50 turns pinned, 20 % fits", pinned_fifth, "µs", "1.5 × none", fifth * 1.5),
        _row("1,000 messages, 20 % fits, with every source's report", report, "µs", "without report", fifth),
    ]


def _microseconds(request: ContextRequest, *, with_report: bool = False) -> float:
    def once() -> object:
        prompt = build(request)
        return prompt.report.as_dict() if with_report else prompt.messages

    once()
    number = 20
    return min(timeit.repeat(once, number=number, repeat=15)) / number * 1e6


def _conversation(length: int, *, share: float) -> ContextRequest:
    """Return a request with `length` messages and one more question. The window has room for `share` of them.

    A turn has two messages.
    """
    messages = [
        ContextMessage(f"m{n}", "assistant" if n % 2 else "user", f"text {n}", MESSAGE_TOKENS) for n in range(length)
    ]
    messages.append(ContextMessage("question", "user", "and now?", MESSAGE_TOKENS))
    system = Block("You are careful.", 900)
    message_cost = MESSAGE_TOKENS + 4
    room = Room(window=round(length * share) * message_cost + message_cost + 904, reserved_output=0, buffer=0)
    return ContextRequest(room=room, messages=messages, tokenizer=tokenizer("o200k_base"), system=system)


def _with_pinned(request: ContextRequest, *, every: int) -> ContextRequest:
    """Return the request with every `every`th message pinned."""
    last = len(request.messages) - 1
    messages = [
        replace(message, mark="pinned") if number % every == 0 and number < last else message
        for number, message in enumerate(request.messages)
    ]
    return replace(request, messages=messages)


def _share_rows() -> list[Row]:
    return [
        _row(f"tokens in the prefix of the turn before, {layout}", _shared(layout), "%", "expected", expected)
        for layout, expected in EXPECTED_SHARE.items()
    ]


def _shared(layout: str) -> float:
    """Return the percent of prompt tokens that are in the common prefix with the previous turn's prompt.

    A message counts if it and all messages before it are the same.
    """
    assert layout in LAYOUTS
    previous: list[tuple[Role, str | None]] = []
    shared = total = 0
    for turn in range(TURNS):
        messages = _project_turn(turn, layout).messages
        current = [(message.role, message.text) for message in messages]
        same = next(
            (n for n, pair in enumerate(zip(previous, current, strict=False)) if pair[0] != pair[1]), len(previous)
        )
        shared += sum(message.tokens for message in messages[:same])
        total += sum(message.tokens for message in messages)
        previous = current
    return 100 * shared / total


def _project_turn(turn: int, layout: str) -> Prompt:
    """Build the prompt of a turn: questions of 300 tokens, answers of 700, a persona, and project files."""
    messages = []
    for n in range(turn):
        messages.append(ContextMessage(f"u{n}", "user", f"question {n}", 300))
        messages.append(ContextMessage(f"a{n}", "assistant", f"answer {n}", 700))
    messages.append(ContextMessage(f"u{turn}", "user", f"question {turn}", 300))
    counter: NamedTokenizer = tokenizer("o200k_base")
    return build(
        ContextRequest(
            room=Room(window=128_000),
            messages=messages,
            tokenizer=counter,
            layout=layout,
            system=Block("system prompt", 1_500),
            persona=Block("persona prompt", 300),
            project_files=(Document("p", "manual.md", "contents", PROJECT_TOKENS),),
        )
    )


if __name__ == "__main__":
    main()
