"""Which tools a persona may name, and whether the names it was given are among them."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from core.i18n import grouped
from core.outside import wait_outside
from core.sentences import Sentence
from llm.models import Model
from llm.tools.mcp import Listing, tools_of
from llm.tools.servers import ServerFailed, ToolProblem, ToolServerConfig
from llm.tools.services import known_tools, tool_servers

WEB = ("web_search", "open_url")
TASKS = "tasks"  # stands for all of those with which a model reads and changes tasks
# The product's own, with what they do, for whoever chooses. Those without words are there wherever there is something
# to search; naming them changes nothing.
OWN = {
    "web_search": gettext_lazy("Searches the web and cites what it finds."),
    "open_url": gettext_lazy("Reads a page whose address a person or a search has given."),
    "search_files": "",
    "read_file": "",
    "search_conversation": "",
    TASKS: gettext_lazy(
        "Lists your tasks, creates them, drafts checklists and ticks items. Only you clear a breakpoint."
    ),
}
ASKS = gettext_lazy("You are asked before each search.")
SEPARATOR = "__"
EVERY = "*"
MAX_TOOLS = 100  # names of one persona


class BadTools(ValueError):
    """The sentence is for whoever chose the tools."""

    def __init__(self, sentence: Sentence) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Offer:
    """What a tool server answered: its tools as (name, description), or the sentence that says why there are none.

    `problems`: tools that cannot be offered, or only in part.
    """

    server: str
    tools: Sequence[tuple[str, str]] = ()
    failure: Sentence | None = None
    problems: Sequence[ToolProblem] = ()

    @property
    def every(self) -> str:
        return f"{self.server}{SEPARATOR}{EVERY}"


def own_tools(*, search_asks: bool) -> list[tuple[str, str]]:
    """The product's own as (name, what it does; empty for those that are always there).

    `search_asks`: searches of the web wait for the permission of whoever this is shown to.
    """
    words = {name: str(text) for name, text in OWN.items()}
    if search_asks:
        words["web_search"] += f" {ASKS}"
    return list(words.items())


def server_names(only: Collection[str] | None = None) -> list[str]:
    """Of those that are enabled, or of those of them that have these names."""
    return [server.name for server in tool_servers() if only is None or server.name in only]


def offers(only: Collection[str] | None = None) -> list[Offer]:
    """Asks the enabled tool servers, or those of these names, all at once; one that fails takes up to 15 seconds."""
    servers = [server for server in tool_servers() if only is None or server.name in only]

    async def ask() -> list[Offer]:
        return list(await asyncio.gather(*(_offer(server) for server in servers)))

    if not servers:
        return []
    with wait_outside():
        return asyncio.run(ask())


async def _offer(server: ToolServerConfig) -> Offer:
    try:
        listing = await tools_of(server)
    except ServerFailed as failure:
        return Offer(server.name, failure=failure.sentence)
    return _offer_of(server.name, listing)


def _offer_of(server: str, listing: Listing) -> Offer:
    tools = [(tool.definition.name, tool.definition.description) for tool in listing.tools]
    return Offer(server, tools, problems=listing.problems)


def listed_last(only: Collection[str] | None = None) -> list[Offer]:
    """What the enabled tool servers, or those of these names, listed last; nothing of one that was never asked."""
    known = [(server.name, listing) for server, listing in known_tools() if only is None or server.name in only]
    return [_offer_of(name, listing) if listing is not None else Offer(name) for name, listing in known]


def too_many(offers: Iterable[Offer], chosen: Collection[str], model: Model | None) -> str:
    """Return a sentence where a persona has more tools of servers than its model's provider takes, else nothing."""
    names: set[str] = set()
    for offer in offers:
        listed = [name for name, _words in offer.tools if name != offer.every]
        names.update(listed if offer.every in chosen else (name for name in listed if name in chosen))
    limit = model.provider.tool_limit if model is not None else None
    if limit is None or len(names) <= limit:
        return ""
    return _(
        "These are %(count)s tools of servers, and the provider of %(model)s takes at most %(limit)s in one request, "
        "the product's own among them. The others are not sent; each answer names them. Choose the tools that are "
        "needed instead of whole servers."
    ) % {"count": grouped(len(names)), "model": model.name if model else "", "limit": grouped(limit)}


def checked(names: Iterable[Any], already: Collection[str] = ()) -> list[str]:
    """The names, each once. Raises `BadTools` for one that is no tool's.

    Those in `already` are not asked after: a server that is away must not keep a persona from being edited.
    """
    given = list(dict.fromkeys(str(name) for name in names))
    if len(given) > MAX_TOOLS:
        raise BadTools(
            Sentence(
                "A persona has at most {max_tools} tools; name a server's whole set as server{separator}*.",
                max_tools=MAX_TOOLS,
                separator=SEPARATOR,
            )
        )
    fresh = [name for name in given if name not in (*OWN, *already)]
    if not fresh:
        return given
    servers = server_names()
    named = {name.partition(SEPARATOR)[0] for name in fresh if SEPARATOR in name and not name.endswith(f"__{EVERY}")}
    asked = offers(named)
    for offer in asked:
        if offer.failure:
            raise BadTools(
                Sentence(
                    "{failure} Until it is back, choose all of its tools as “{every}”, or none.",
                    failure=offer.failure,
                    every=offer.every,
                )
            )
    known = [*OWN, *(f"{name}{SEPARATOR}{EVERY}" for name in servers)]
    known += [name for offer in asked for name, _ in offer.tools]
    unknown = [name for name in fresh if name not in known]
    problems = {problem.name: problem.reason for offer in asked for problem in offer.problems}
    if broken := next((name for name in unknown if name in problems), None):
        raise BadTools(
            Sentence(
                "The tool “{broken}” cannot be offered to a model. {problem}",
                broken=broken[:100],
                problem=problems[broken],
            )
        )
    if unknown:
        raise BadTools(
            Sentence(
                "There is no tool “{unknown}”. The tools are: {known}.",
                unknown=unknown[0][:100],
                known=", ".join(known),
            )
        )
    return given


def tickable(asked: Iterable[Offer], chosen: Iterable[str]) -> list[Offer]:
    """For each server what can be ticked: all its tools, those it has named, and those that are chosen all the same."""
    left = [name for name in chosen if name not in OWN]
    servers = [_tickable(offer, left) for offer in asked]
    known = {name for server in servers for name, _words in server.tools}
    gone: dict[str, list[tuple[str, str]]] = {}
    for name in left:
        if name not in known:
            gone.setdefault(name.partition(SEPARATOR)[0], []).append((name, ""))
    why = _("This server is not set up, switched off, or none of your groups may use it.")
    return servers + [Offer(server, names, Sentence.verbatim(why)) for server, names in gone.items()]


def _tickable(offer: Offer, chosen: Iterable[str]) -> Offer:
    every = (offer.every, _("All tools of this server, also those it gets later."))
    absent = _("Not offered at the moment.") if offer.tools or offer.failure else ""
    known = {offer.every, *(name for name, _words in offer.tools)}
    named = [name for name in chosen if name.startswith(f"{offer.server}{SEPARATOR}") and name not in known]
    return replace(offer, tools=[every, *offer.tools, *((name, absent) for name in named)])
