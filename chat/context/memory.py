"""Choose the remembered facts of a prompt within the budget of the memory section. Pure functions.

The person's profile and pinned facts are always sent. Then come the facts that were chosen for earlier messages of the
conversation, in the order in which they were chosen, so that the section only grows and the provider's cache holds.
Facts that match the newest message are added below while there is room. The rule: docs/develop/context.md, “Memory”.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

from chat.context.rendering import memory_text
from chat.context.types import Memory, MemoryFact, TextTokenizer, floored


class ChosenMemory(NamedTuple):
    """The memory section, the facts `without_room` in its budget, and the facts that this message `added`."""

    memory: Memory
    without_room: tuple[MemoryFact, ...]
    added: tuple[MemoryFact, ...]


def memory_budget(input_limit: int, share: Decimal, most: int) -> int:
    """Return the tokens that the memory section may take: a share of the room, at most `most`."""
    return max(0, min(floored(max(0, input_limit), share), most))


def choose_memory(
    memory: Memory,
    *,
    chosen: Sequence[MemoryFact],
    matches: Sequence[MemoryFact],
    budget: int,
    tokenizer: TextTokenizer,
    overhead: int,
) -> ChosenMemory:
    """Return the section with the `chosen` facts, and with `matches` as far as the budget allows.

    `memory` holds the profile and the facts that are always sent. They may exceed the budget; then nothing else is
    sent. `matches` are ranked, best first. A fact that does not fit is skipped, and shorter ones are still tried.
    """
    present = {fact.id for fact in memory.facts}
    sent: list[MemoryFact] = []
    without_room: list[MemoryFact] = []
    left = budget - overhead - tokenizer.count(memory_text(memory, memory.facts))
    for fact in (*chosen, *matches):
        if fact.id in present:
            continue
        present.add(fact.id)
        tokens = tokenizer.count(f"\n- {fact.text}")
        if tokens <= left:
            sent.append(fact)
            left -= tokens
        else:
            without_room.append(fact)
    # Texts that are counted together may cost more than the sum of their counts.
    while sent and overhead + tokenizer.count(memory_text(memory, (*memory.facts, *sent))) > budget:
        without_room.insert(0, sent.pop())
    earlier = {fact.id for fact in chosen}
    added = tuple(fact for fact in sent if fact.id not in earlier)
    return ChosenMemory(replace(memory, facts=(*memory.facts, *sent)), tuple(without_room), added)
