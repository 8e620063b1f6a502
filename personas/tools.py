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

WEB_TOOLS = ("web_search", "open_url")
TASK_TOOLS = "tasks"  # one choice for all tools that read and change tasks
# The product's own tools, with a description for the person who chooses. Tools without a description are always
# available if the conversation has something to search, so choosing them changes nothing.
OWN_TOOLS = {
    "web_search": gettext_lazy("Searches the web and cites what it finds."),
    "open_url": gettext_lazy("Reads a page whose address comes from a person or a search."),
    "search_files": "",
    "read_file": "",
    "search_conversation": "",
    TASK_TOOLS: gettext_lazy(
        "Lists your tasks, creates them, drafts checklists and ticks items. Only you clear a breakpoint."
    ),
}
# Titles for people. Models and programs use the names.
TOOL_TITLES = {
    "web_search": gettext_lazy("Search the web"),
    "open_url": gettext_lazy("Read web pages"),
    TASK_TOOLS: gettext_lazy("Your tasks"),
}
ASKS_BEFORE_SEARCH = gettext_lazy("You are asked before each search.")
SERVER_SEPARATOR = "__"
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
    def wildcard(self) -> str:
        """Return the name that stands for all tools of the server."""
        return f"{self.server}{SERVER_SEPARATOR}{EVERY_TOOL}"


def own_tools(*, search_asks: bool) -> list[tuple[str, str]]:
    """Return the product's own tools as (name, description); the description of permanent tools is empty.

    `search_asks`: web searches wait for the permission of the user who sees this list.
    """
    descriptions = {name: str(text) for name, text in OWN_TOOLS.items()}
    if search_asks:
        descriptions["web_search"] += f" {ASKS_BEFORE_SEARCH}"
    return list(descriptions.items())


def server_names(only: Collection[str] | None = None) -> list[str]:
    """Return the names of the enabled tool servers; with `only`, those among these names."""
    return [server.name for server in tool_servers() if only is None or server.name in only]


def query_servers(only: Collection[str] | None = None, *, person: UUID) -> list[ToolOffer]:
    """Query the enabled tool servers for their tools, all at once.

    `only`: names of servers; other servers are not queried. `person`: the user whose sign-ins are used. A failing
    server takes up to 15 seconds. It gets an offer with `failure` instead of an error.
    """
    servers = [server for server in tool_servers(person) if only is None or server.name in only]

    async def ask() -> list[ToolOffer]:
        return list(await asyncio.gather(*(_query_server(server) for server in servers)))

    if not servers:
        return []
    with wait_outside():
        return asyncio.run(ask())


async def _query_server(server: ToolServerConfig) -> ToolOffer:
    try:
        listing = await list_tools(server)
    except ServerFailed as failure:
        return ToolOffer(server.name, failure=failure.sentence)
    return _make_offer(server.name, listing)


def _make_offer(server: str, listing: Listing) -> ToolOffer:
    tools = [(tool.definition.name, tool.definition.description) for tool in listing.tools]
    return ToolOffer(server, tools, problems=listing.problems)


def cached_offers(only: Collection[str] | None = None, *, person: UUID) -> list[ToolOffer]:
    """Return the last known tools of each enabled tool server, without a request.

    `only`: names of servers; other servers are left out. The offer of a server that was never queried is empty.
    """
    listings = [
        (server.name, listing) for server, listing in known_tools(person) if only is None or server.name in only
    ]
    return [_make_offer(name, listing) if listing is not None else ToolOffer(name) for name, listing in listings]


def excess_warning(offers: Iterable[ToolOffer], chosen: Collection[str], model: Model | None) -> str:
    """Return a note if a persona has more server tools than its model's provider accepts, else an empty text."""
    names: set[str] = set()
    for offer in offers:
        listed = [name for name, _description in offer.tools if name != offer.wildcard]
        names.update(listed if offer.wildcard in chosen else (name for name in listed if name in chosen))
    limit = model.provider.tool_limit if model is not None else None
    if limit is None or len(names) <= limit:
        return ""
    return _(
        "These are %(count)s tools of servers. The provider of %(model)s accepts at most %(limit)s tools in one "
        "request, including the product's own. So the model gets only their names, and loads the tools that it needs. "
        "Choose single tools instead of whole servers to have them ready at once."
    ) % {"count": grouped(len(names)), "model": model.label if model else "", "limit": grouped(limit)}


def check_tools(names: Iterable[object], stored_names: Collection[str] = (), *, person: UUID) -> list[str]:
    """Return the names without repetitions. Raises `BadTools` for an unknown tool, and for more than `MAX_TOOLS` names.

    `person`: the user whose sign-ins at tool servers are used. Names in `stored_names` are not checked, so that a
    persona can be edited while a server is unavailable.
    """
    unique = list(dict.fromkeys(str(name) for name in names))
    if len(unique) > MAX_TOOLS:
        raise BadTools(
            Sentence(
                "A persona can have at most {max_tools} tools. Name all tools of a server as server{separator}*.",
                max_tools=MAX_TOOLS,
                separator=SERVER_SEPARATOR,
            )
        )
    added = [name for name in unique if name not in (*OWN_TOOLS, *stored_names)]
    if not added:
        return unique
    servers = server_names()
    queried = {
        name.partition(SERVER_SEPARATOR)[0]
        for name in added
        if SERVER_SEPARATOR in name and not name.endswith(f"__{EVERY_TOOL}")
    }
    server_offers = query_servers(queried, person=person)
    for offer in server_offers:
        if offer.failure:
            raise BadTools(
                Sentence(
                    "{failure} Until it is back, choose all of its tools as “{every}”, or none.",
                    failure=offer.failure,
                    every=offer.wildcard,
                )
            )
    choosable = [*OWN_TOOLS, *(f"{name}{SERVER_SEPARATOR}{EVERY_TOOL}" for name in servers)]
    choosable += [name for offer in server_offers for name, _ in offer.tools]
    unknown = [name for name in added if name not in choosable]
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
                known=", ".join(choosable),
            )
        )
    return unique


def tool_choices(server_offers: Iterable[ToolOffer], chosen: Iterable[str]) -> list[ToolOffer]:
    """Return the checkboxes by server: all tools of the server, each tool, and chosen tools that it now lacks.

    Chosen tools of unavailable servers get an offer with a failure.
    """
    server_tools = [name for name in chosen if name not in OWN_TOOLS]
    servers = [_tool_choice(offer, server_tools) for offer in server_offers]
    offered = {name for server in servers for name, _description in server.tools}
    missing: dict[str, list[tuple[str, str]]] = {}
    for name in server_tools:
        if name not in offered:
            missing.setdefault(name.partition(SERVER_SEPARATOR)[0], []).append((name, ""))
    reason = _("This server is not set up or is switched off, or none of your groups may use it.")
    return servers + [ToolOffer(server, names, Sentence.verbatim(reason)) for server, names in missing.items()]


def _tool_choice(offer: ToolOffer, chosen: Iterable[str]) -> ToolOffer:
    all_tools = (offer.wildcard, _("All tools of this server, including tools that it gets later."))
    absence_note = _("Not offered at the moment.") if offer.tools or offer.failure else ""
    offered = {offer.wildcard, *(name for name, _description in offer.tools)}
    missing = [name for name in chosen if name.startswith(f"{offer.server}{SERVER_SEPARATOR}") and name not in offered]
    return replace(offer, tools=[all_tools, *offer.tools, *((name, absence_note) for name in missing)])
