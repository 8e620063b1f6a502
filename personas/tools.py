"""The tools that a persona may have: the product's own tools and tools of servers. For forms, pages and checks.

To add a tool of the product to the choice: 1. name it in `OWN_TOOLS`, 2. register it in `chat.tools.toolbox`.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from core.i18n import grouped
from core.outside import wait_outside
from core.sentences import Sentence
from llm.models import Model
from llm.tools.mcp import Listing, list_tools
from llm.tools.servers import ServerFailed, ToolProblem, ToolServerConfig
from llm.tools.services import known_tools, tool_servers

WEB = ("web_search", "open_url")
TASKS = "tasks"  # one name for all tools that read and change tasks
# The product's own tools, with a description for the person who chooses. Tools without a description are always
# available if the conversation has something to search, so choosing them changes nothing.
OWN_TOOLS = {
    "web_search": gettext_lazy("Searches the web and cites what it finds."),
    "open_url": gettext_lazy("Reads a page whose address a person or a search has given."),
    "search_files": "",
    "read_file": "",
    "search_conversation": "",
    TASKS: gettext_lazy(
        "Lists your tasks, creates them, drafts checklists and ticks items. Only you clear a breakpoint."
    ),
}
# What people call them; models and programs use their names.
TITLES = {
    "web_search": gettext_lazy("Search the web"),
    "open_url": gettext_lazy("Read web pages"),
    TASKS: gettext_lazy("Your tasks"),
}
ASKS_BEFORE_SEARCH = gettext_lazy("You are asked before each search.")
SEPARATOR = "__"
EVERY_TOOL = "*"
MAX_TOOLS = 100  # names per persona


class BadTools(ValueError):
    """Names of tools that a persona cannot have. The sentence is for the person who chose them."""

    def __init__(self, sentence: Sentence) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """Tools of a tool server as (name, description), or `failure`, the reason why it has none.

    `problems`: tools that cannot be offered or are offered only in part.
    """

    server: str
    tools: Sequence[tuple[str, str]] = ()
    failure: Sentence | None = None
    problems: Sequence[ToolProblem] = ()

    @property
    def every(self) -> str:
        return f"{self.server}{SEPARATOR}{EVERY_TOOL}"


def own_tools(*, search_asks: bool) -> list[tuple[str, str]]:
    """Return the product's own tools as (name, description); the description of permanent tools is empty.

    `search_asks`: web searches wait for the permission of the user who sees this list.
    """
    words = {name: str(text) for name, text in OWN_TOOLS.items()}
    if search_asks:
        words["web_search"] += f" {ASKS_BEFORE_SEARCH}"
    return list(words.items())


def server_names(only: Collection[str] | None = None) -> list[str]:
    """Return the names of the enabled tool servers; with `only`, those among these names."""
    return [server.name for server in tool_servers() if only is None or server.name in only]


def offers(only: Collection[str] | None = None, *, person: UUID) -> list[ToolOffer]:
    """Query the enabled tool servers for their tools, all at once. With `only`, query the servers with these names.

    `person`: whose sign-ins are used. A failing server takes up to 15 seconds.
    """
    servers = [server for server in tool_servers(person) if only is None or server.name in only]

    async def ask() -> list[ToolOffer]:
        return list(await asyncio.gather(*(_offer(server) for server in servers)))

    if not servers:
        return []
    with wait_outside():
        return asyncio.run(ask())


async def _offer(server: ToolServerConfig) -> ToolOffer:
    try:
        listing = await list_tools(server)
    except ServerFailed as failure:
        return ToolOffer(server.name, failure=failure.sentence)
    return _offer_of(server.name, listing)


def _offer_of(server: str, listing: Listing) -> ToolOffer:
    tools = [(tool.definition.name, tool.definition.description) for tool in listing.tools]
    return ToolOffer(server, tools, problems=listing.problems)


def cached_offers(only: Collection[str] | None = None, *, person: UUID) -> list[ToolOffer]:
    """Return the last list of each enabled tool server for a person, without a request.


    With `only`, of servers with these names. The offer of a server that was never queried is empty.
    """
    listings = [
        (server.name, listing) for server, listing in known_tools(person) if only is None or server.name in only
    ]
    return [_offer_of(name, listing) if listing is not None else ToolOffer(name) for name, listing in listings]


def excess_warning(offers: Iterable[ToolOffer], chosen: Collection[str], model: Model | None) -> str:
    """Return a note if a persona has more server tools than its model's provider accepts, else an empty text."""
    names: set[str] = set()
    for offer in offers:
        listed = [name for name, _words in offer.tools if name != offer.every]
        names.update(listed if offer.every in chosen else (name for name in listed if name in chosen))
    limit = model.provider.tool_limit if model is not None else None
    if limit is None or len(names) <= limit:
        return ""
    return _(
        "These are %(count)s tools of servers, and the provider of %(model)s takes at most %(limit)s in one request, "
        "the product's own among them. So they are listed by name, and the model loads those that it needs. Choose the "
        "tools that are needed instead of whole servers to have them ready at once."
    ) % {"count": grouped(len(names)), "model": model.label if model else "", "limit": grouped(limit)}


def check_tools(names: Iterable[object], already: Collection[str] = (), *, person: UUID) -> list[str]:
    """Return the names without repetitions. Raises `BadTools` for a name without a tool.

    `person`: whose sign-ins at tool servers are used. Names in `already` are not checked, so that a persona can be
    edited while a server is unavailable.
    """
    unique = list(dict.fromkeys(str(name) for name in names))
    if len(unique) > MAX_TOOLS:
        raise BadTools(
            Sentence(
                "A persona can have at most {max_tools} tools. Name all tools of a server as server{separator}*.",
                max_tools=MAX_TOOLS,
                separator=SEPARATOR,
            )
        )
    added = [name for name in unique if name not in (*OWN_TOOLS, *already)]
    if not added:
        return unique
    servers = server_names()
    named = {
        name.partition(SEPARATOR)[0] for name in added if SEPARATOR in name and not name.endswith(f"__{EVERY_TOOL}")
    }
    server_offers = offers(named, person=person)
    for offer in server_offers:
        if offer.failure:
            raise BadTools(
                Sentence(
                    "{failure} Until it is back, choose all of its tools as “{every}”, or none.",
                    failure=offer.failure,
                    every=offer.every,
                )
            )
    possible = [*OWN_TOOLS, *(f"{name}{SEPARATOR}{EVERY_TOOL}" for name in servers)]
    possible += [name for offer in server_offers for name, _ in offer.tools]
    unknown = [name for name in added if name not in possible]
    problems = {problem.name: problem.reason for offer in server_offers for problem in offer.problems}
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
                known=", ".join(possible),
            )
        )
    return unique


def tool_choices(server_offers: Iterable[ToolOffer], chosen: Iterable[str]) -> list[ToolOffer]:
    """Return the checkboxes by server: all tools of the server, each tool, and chosen tools that it now lacks.

    Chosen tools of unavailable servers get an offer with a failure.
    """
    server_tools = [name for name in chosen if name not in OWN_TOOLS]
    servers = [_tool_choice(offer, server_tools) for offer in server_offers]
    shown = {name for server in servers for name, _words in server.tools}
    missing: dict[str, list[tuple[str, str]]] = {}
    for name in server_tools:
        if name not in shown:
            missing.setdefault(name.partition(SEPARATOR)[0], []).append((name, ""))
    reason = _("This server is not set up, switched off, or none of your groups may use it.")
    return servers + [ToolOffer(server, names, Sentence.verbatim(reason)) for server, names in missing.items()]


def _tool_choice(offer: ToolOffer, chosen: Iterable[str]) -> ToolOffer:
    all_tools = (offer.every, _("All tools of this server, including tools that it gets later."))
    absent = _("Not offered at the moment.") if offer.tools or offer.failure else ""
    offered = {offer.every, *(name for name, _words in offer.tools)}
    missing = [name for name in chosen if name.startswith(f"{offer.server}{SEPARATOR}") and name not in offered]
    return replace(offer, tools=[all_tools, *offer.tools, *((name, absent) for name in missing)])
