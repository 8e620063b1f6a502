"""List the tools of servers by name when their definitions take too much of the window, and load them when needed.

1. `plan_on_demand` decides whether the definitions take more than their share of the room. If so, it makes the list of
   names for the system prompt, and chooses the loaded tools whose definitions are sent.
2. `FindTools` loads tools for the model, by name or by words. A loaded tool stays loaded in its conversation
   (`Conversation.loaded_tools`), and its definition stands behind those of before, so that the provider's cache holds.
3. `UnloadedTool` stands for a listed tool that the model calls without having loaded it.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from django.db import transaction

from chat.context.rendering import ToolGuidance
from chat.models import Conversation
from chat.models.words import fold
from core.background import on_database
from core.marks import plain_line
from core.sentences import Sentence
from llm.tokens import NamedTokenizer
from llm.types.model_call import ToolDefinition
from llm.types.tools import BadArguments, Tool, ToolOutput

FIND_TOOLS = "find_tools"
SEPARATOR = "__"  # between the names of a server and of its tool
LOADED_DIVISOR = 4  # loaded definitions take at most a quarter of the room, or the share of tools if that is more
LINE = 100  # characters of a tool's description in the list
SHORT_LINE = 40  # the same, if the list would otherwise take more than the share of tools
MATCHES = 5  # tools that one search loads
MAX_NAMES = 20  # tools that one call loads by name
DESCRIBED = 300  # characters of a loaded tool's description in the result
MAX_QUERY = 200  # characters of a search
COUNT_KEPT = 8_000  # characters of a definition whose count is kept
MAX_STORED = 300  # names of loaded tools per conversation
# Constants of BM25, as in its first publications (Robertson and others, TREC-3).
_K1 = 1.2
_B = 0.75
_WORD = re.compile(r"[^\W_]+")
_NEXT_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # as in getUser
_SENTENCE_END = re.compile(r"[.!?](?=\s)")

NOTHING = "No tool fits. Try other words, or a name of the list."


@dataclass(frozen=True, slots=True)
class ToolsOnDemand:
    """The tools of a turn that are listed by name.

    `names`: all of them, in the order of the list. `loaded`: those whose definitions are sent, in the order in which
    they were loaded. `unnamed`: how many of the last `names` are not in the list, because it has no room for them; the
    model can find them by words. `guidance`: the list, for the system prompt. `saved`: the tokens that the definitions
    of all tools would take in addition. `stored`: `Conversation.loaded_tools` at the time of the plan.
    """

    names: tuple[str, ...]
    loaded: tuple[str, ...]
    unnamed: int
    guidance: ToolGuidance
    saved: int
    finder: "FindTools" = field(repr=False, compare=False)
    stored: tuple[str, ...] = ()

    @property
    def outdated(self) -> bool:
        """Return whether tools were loaded since the plan."""
        return self.stored != tuple(self.finder.conversation.loaded_tools)

    def without(self, names: Collection[str]) -> "ToolsOnDemand":
        """Return the same without these tools, which the provider refuses."""
        left = tuple(name for name in self.names if name not in names)
        return replace(self, names=left, loaded=tuple(name for name in self.loaded if name not in names))


@dataclass(frozen=True, slots=True)
class ToolRoom:
    """The room for definitions of tools. `share` and `loaded` are in tokens, `most` is a number of loaded tools.

    `share`: above this the tools of servers are listed by name. `loaded`: the most that loaded tools may take.
    """

    share: int
    loaded: int
    most: int | None = None

    @classmethod
    def of(cls, room: int, share: int, most: int | None) -> "ToolRoom":
        """Return the room for tools, of which the budget profile gives `share` tokens of `room`."""
        return cls(share, max(share, room // LOADED_DIVISOR), most)


def definition_json(definition: ToolDefinition) -> dict[str, Any]:
    """Return the definition as providers send it to the model."""
    return {
        "name": definition.name,
        "description": definition.description,
        "parameters": definition.parameters,
    }


def definition_tokens(definitions: Sequence[ToolDefinition], tokenizer: NamedTokenizer) -> int:
    """Return the tokens of the definitions, which providers send to the model as JSON."""
    if not definitions:
        return 0
    described = [definition_json(each) for each in definitions]
    return tokenizer.count(json.dumps(described, ensure_ascii=False, sort_keys=True))


def tokens_of_each(definitions: Iterable[ToolDefinition], tokenizer: NamedTokenizer) -> int:
    """Return the tokens of the definitions, each counted by itself: a few less or more than together.

    Counts are kept, since a plan is made at almost every keystroke.
    """
    texts = (json.dumps(definition_json(each), ensure_ascii=False, sort_keys=True) for each in definitions)
    return sum(_counted(tokenizer, text) if len(text) <= COUNT_KEPT else tokenizer.count(text) for text in texts)


@lru_cache(maxsize=2_048)
def _counted(tokenizer: NamedTokenizer, text: str) -> int:
    return tokenizer.count(text)


def plan_on_demand(
    tools: Mapping[str, Tool], *, room: ToolRoom, tokenizer: NamedTokenizer, conversation: Conversation
) -> ToolsOnDemand | None:
    """Return the listing of `tools`, the tools of servers in their order. None if a list would not be smaller.

    The loaded tools are the newest of the conversation that there is room for.
    """
    definitions = {name: tool.definition for name, tool in tools.items()}
    finder = FindTools(definitions, room, tokenizer, conversation)
    stored = tuple(conversation.loaded_tools)
    loaded = finder.fitting([name for name in stored if name in definitions])
    listing, unnamed = _listing(definitions, room.share, tokenizer)
    sent = (finder.definition, *(definitions[name] for name in loaded))
    whole, rest = tokens_of_each(definitions.values(), tokenizer), tokens_of_each(sent, tokenizer)
    saved = whole - rest - tokenizer.count(listing)
    if saved <= 0:
        return None
    return ToolsOnDemand(
        names=tuple(definitions),
        loaded=tuple(loaded),
        unnamed=unnamed,
        guidance=ToolGuidance(FIND_TOOLS, listing=listing),
        saved=saved,
        finder=finder,
        stored=stored,
    )


def _listing(definitions: Mapping[str, ToolDefinition], share: int, tokenizer: NamedTokenizer) -> tuple[str, int]:
    """Return the list of the tools in at most `share` tokens, and how many tools have no room in it.

    Descriptions are shortened first, then left out. Then the names of a server follow each other on one line.
    """
    for length in (LINE, SHORT_LINE):
        text = "\n".join(f"- {name}: {_one_line(each, length)}" for name, each in definitions.items())
        if tokenizer.count(text) <= share:
            return text, 0
    names = list(definitions)
    fits, beyond = 0, len(names) + 1  # a list of `fits` names fits, one of `beyond` names does not
    while beyond - fits > 1:
        count = (fits + beyond) // 2
        if tokenizer.count(_names_only(names[:count])) <= share:
            fits = count
        else:
            beyond = count
    text = _names_only(names[:fits])
    unnamed = len(names) - fits
    return (f"{text}\n- {unnamed} more, which only a search by words finds" if unnamed else text), unnamed


def _names_only(names: Sequence[str]) -> str:
    by_server: dict[str, list[str]] = {}
    for name in names:
        server, _, tool = name.partition(SEPARATOR)
        by_server.setdefault(server, []).append(tool)
    return "\n".join(f"- {server}{SEPARATOR}: {', '.join(tools)}" for server, tools in by_server.items())


def _one_line(definition: ToolDefinition, length: int) -> str:
    """Return the first sentence of the description, in at most `length` characters."""
    line = plain_line(definition.description, 4 * length)
    end = _SENTENCE_END.search(line)
    line = line[: end.end()] if end else line
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


class FindTools:
    """Load tools by name or by words, so that the model can call them in its next step."""

    timeout = 20.0

    definition = ToolDefinition(
        FIND_TOOLS,
        "Loads tools of the list, so that you can call them from your next step on. Give names, or words to look for.",
        {
            "type": "object",
            "properties": {
                "names": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": f"Names of the list, at most {MAX_NAMES}.",
                },
                "query": {
                    "type": "string",
                    "description": f"Words for what the tool does. The {MATCHES} best tools are loaded.",
                },
            },
        },
    )

    def __init__(
        self,
        definitions: Mapping[str, ToolDefinition],
        room: ToolRoom,
        tokenizer: NamedTokenizer,
        conversation: Conversation,
    ) -> None:
        self.conversation = conversation
        self._definitions = definitions
        self._room = room
        self._tokenizer = tokenizer

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return Sentence("Looking for tools: {words}", words=_words_of_call(arguments)[:80])

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        names = arguments.get("names") or []
        query = arguments.get("query") or ""
        if not isinstance(names, list) or not isinstance(query, str) or not (names or query.strip()):
            raise BadArguments("Give “names”, a list of names, or “query”, a text with the words to look for.")
        return await on_database(self._load_and_describe, [str(name) for name in names[:MAX_NAMES]], query)

    async def load(self, name: str) -> str:
        """Load one tool. Return why it cannot be loaded; empty if it is."""
        lines = await on_database(self._load, [name])
        return "" if name in self.conversation.loaded_tools else "\n".join(lines)

    def _load_and_describe(self, names: Sequence[str], query: str) -> ToolOutput:
        names_to_load: list[str] = []
        lines: list[str] = []
        for name in names:
            match = self._resolved(name)
            if match is None:
                lines.append(f"There is no tool “{name[:100]}”.")
            else:
                names_to_load.append(match)
        names_to_load += best_matches(self._definitions, query[:MAX_QUERY], MATCHES)
        if not names_to_load:
            return ToolOutput("\n".join([*lines, NOTHING]), error=True)
        lines = [*self._load(list(dict.fromkeys(names_to_load))), *lines]
        return ToolOutput("\n".join(lines))

    def _resolved(self, name: str) -> str | None:
        """Return the tool of this name. The name of its server may be missing if only one server has such a tool."""
        if name in self._definitions:
            return name
        matches = [each for each in self._definitions if each.partition(SEPARATOR)[2] == name]
        return matches[0] if len(matches) == 1 else None

    def _load(self, names_to_load: Sequence[str]) -> list[str]:
        """Load the tools as far as there is room, and return lines about them for the model.

        Locks the row of the conversation, since answers side by side may load tools at the same time.
        """
        with transaction.atomic():
            row = Conversation.objects.select_for_update().only("loaded_tools").get(pk=self.conversation.pk)
            before = list(row.loaded_tools)
            present = [name for name in before if name in self._definitions]
            fits: list[str] = []
            for name in names_to_load:
                if len(self.fitting([*fits, name])) > len(fits):
                    fits.append(name)
            new = [name for name in fits if name not in present]
            # Loaded tools keep their places: the provider's cache holds up to the first change.
            loaded = self.fitting([*present, *new], needed=fits)
            # A server that is not reached now may be there again in the next turn, with what was loaded of it.
            after = [name for name in (*before, *new) if name in loaded or name not in self._definitions][-MAX_STORED:]
            if after != before:
                Conversation.objects.filter(pk=row.pk).update(loaded_tools=after)
        self.conversation.loaded_tools = after
        lines = [self._described(name) for name in fits]
        lines = ["Loaded. You can call these from now on:", *lines] if lines else []
        lines += [f"There is no room for the definition of {name}." for name in names_to_load if name not in fits]
        dropped = [name for name in present if name not in loaded]
        if dropped:
            lines.append(f"There is no more room for these, so they are not loaded any more: {', '.join(dropped)}.")
        return lines

    def fitting(self, names: Sequence[str], *, needed: Collection[str] = ()) -> list[str]:
        """Return those of the names whose definitions have room together, in their order.

        The oldest are dropped first, but those in `needed` last.
        """
        left = list(names)
        sizes = {name: tokens_of_each([self._definitions[name]], self._tokenizer) for name in left}
        drop_first = [name for name in left if name not in needed] + [name for name in left if name in needed]
        most = len(left) if self._room.most is None else max(0, self._room.most)
        for name in drop_first:
            if len(left) <= most and sum(sizes[each] for each in left) <= self._room.loaded:
                break
            left.remove(name)
        return left

    def _described(self, name: str) -> str:
        return f"- {name}: {plain_line(self._definitions[name].description, DESCRIBED)}"


def _words_of_call(arguments: Mapping[str, Any]) -> str:
    names = arguments.get("names")
    words = [str(name) for name in names] if isinstance(names, list) else []
    return ", ".join(filter(None, [*words, str(arguments.get("query") or "")]))


class UnloadedTool:
    """A listed tool that is not loaded. A call does not run, since the model has not seen the parameters. It loads."""

    def __init__(self, tool: Tool, finder: FindTools) -> None:
        self._tool = tool
        self._finder = finder
        self.definition = tool.definition
        self.timeout = finder.timeout

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return Sentence("Looking for tools: {words}", words=self.definition.name[:80])

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        name = self.definition.name
        if problem := await self._finder.load(name):
            return ToolOutput(f"{name} was not loaded, so the call was not run. {problem}", error=True)
        parameters = json.dumps(self.definition.parameters, ensure_ascii=False)
        sentence = f"{name} was not loaded, so the call was not run. It is loaded now; call it again. Its parameters: "
        return ToolOutput(f"{sentence}{parameters}", error=True)


def best_matches(definitions: Mapping[str, ToolDefinition], query: str, most: int) -> list[str]:
    """Return the tools that fit the words of a query best, by BM25 over their names and descriptions.

    A word also matches longer words that begin with it. Takes time in proportion to the length of all descriptions.
    """
    words = list(dict.fromkeys(_words(query)))
    if not words:
        return []
    counts = {name: Counter(_tool_words(each)) for name, each in definitions.items()}
    mean = sum(sum(each.values()) for each in counts.values()) / len(counts) if counts else 1.0
    scores = dict.fromkeys(definitions, 0.0)
    for word in words:
        hits = {name: sum(n for each, n in count.items() if each.startswith(word)) for name, count in counts.items()}
        matching = sum(1 for number in hits.values() if number)
        weight = math.log(1 + (len(counts) - matching + 0.5) / (matching + 0.5))
        for name, number in hits.items():
            length = sum(counts[name].values()) / max(mean, 1.0)
            scores[name] += weight * number * (_K1 + 1) / (number + _K1 * (1 - _B + _B * length))
    ranked = sorted((name for name in definitions if scores[name] > 0), key=lambda name: -scores[name])
    return ranked[:most]


def _words(text: str) -> Iterator[str]:
    return (fold(word) for word in _WORD.findall(text))


def _tool_words(definition: ToolDefinition) -> Iterator[str]:
    """Yield the words of a tool. Those of its name count twice, since a name says what the tool is for."""
    name = _NEXT_WORD.sub(" ", definition.name)
    yield from _words(f"{name} {name}")
    yield from _words(definition.description)
