"""Decide whether a tool call runs, is refused, or waits for a person: one rule for all tools that ask.

A tool of a server asks before each call if it is marked so. `open_url` asks for an address that neither a person nor a
search has named here. Otherwise a text that the model reads could make it leak other texts in a made-up address. A
decision for the conversation holds for the host; for tools without a host it holds for the tool.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import httpx2

from chat.models import Conversation, Message, ToolPermission
from chat.models.tree import branch_rows
from core.background import on_database
from core.net.addresses import HostListing, canonical, find_addresses, host_of
from core.net.url_safety import FetchRefused
from llm.tools.services import host_lists

OPEN_URL = "open_url"
DENIED = "This workspace does not let {host} be reached. Go on without it."
NEVER_HOST = "The person does not want {host} to be reached in this conversation. Do not ask for it again."
NEVER_TOOL = "The person does not want this tool to be used in this conversation. Do not call it again."
NOBODY_TO_ASK = "This call needs a person's permission, and nobody is there to give it, so it did not run."
LEADS_AWAY = "{host} redirects to another host, {url}. To go there, call open_url with that address."


class CallVerdict(NamedTuple):
    """The decision about a call, which runs unless it asks or is refused. `refusal` is a sentence for the model."""

    asks: bool = False
    refusal: str = ""


RUNS = CallVerdict()
ASK_FIRST = CallVerdict(asks=True)


def host_asked_for(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the host that a decision for the conversation holds for; empty if it holds for the tool."""
    url = arguments.get("url")
    return host_of(url) if tool == OPEN_URL and isinstance(url, str) else ""


def remember(conversation: Conversation, *, tool: str, host: str, allowed: bool) -> None:
    """Store a decision for the conversation."""
    ToolPermission.objects.update_or_create(
        conversation=conversation, tool=tool[:200], host=host[:255], defaults={"allowed": allowed}
    )


class Gate:
    """Decides about the tool calls of one turn, by the addresses named on the conversation's active branch.

    `denied`: the number of search results that were left out because the workspace denies their hosts.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._searched_urls: set[str] = set()
        self.denied = 0

    @property
    def can_ask(self) -> bool:
        """Return whether there is a person to ask. Programs of OpenAI's protocol have none."""
        return self._conversation.origin != Conversation.Origin.API

    def learn(self, urls: Iterable[str]) -> None:
        """Remember addresses that this turn's web tools have returned."""
        self._searched_urls.update(filter(None, map(canonical, urls)))

    async def verdict(self, tool: str, arguments: Mapping[str, Any]) -> CallVerdict:
        return await on_database(self._verdict, tool, arguments)

    async def follow(self, source: httpx2.URL, target: httpx2.URL) -> None:
        """Raise `Refused` for a redirect to a host that may not be reached.

        An address that a person or a search has named may redirect anywhere, since the model did not invent it.
        """
        if host_of(str(target)) != host_of(str(source)):
            await on_database(self._follow, str(source), str(target))

    def _verdict(self, tool: str, arguments: Mapping[str, Any]) -> CallVerdict:
        url = str(arguments.get("url", ""))
        host = host_asked_for(tool, arguments)
        if tool == OPEN_URL and not host:
            return RUNS  # the tool itself refuses an invalid address
        free, refusal = self._rule_for(tool, host)
        if refusal:
            return CallVerdict(refusal=refusal)
        if free or (host and self._is_named(url)):
            return RUNS
        return ASK_FIRST if self.can_ask else CallVerdict(refusal=NOBODY_TO_ASK)

    def _follow(self, source: str, target: str) -> None:
        free, refusal = self._rule_for(OPEN_URL, host_of(target))
        if refusal:
            raise FetchRefused(refusal)
        if not (free or self._is_named(source) or self._is_named(target)):
            raise FetchRefused(LEADS_AWAY.format(host=host_of(source), url=target))

    def _rule_for(self, tool: str, host: str) -> tuple[bool, str]:
        """Return whether all calls to this host, or of this tool, run; and the sentence if all are refused, or ""."""
        listed = host_lists().listing_of(host) if host else HostListing.UNLISTED
        if listed is HostListing.DENIED:
            return False, DENIED.format(host=host)
        rows = ToolPermission.objects.filter(conversation=self._conversation.pk, tool=tool[:200], host=host[:255])
        decided = rows.values_list("allowed", flat=True).first()
        if decided is False:
            return False, NEVER_HOST.format(host=host) if host else NEVER_TOOL
        return bool(decided) or listed is HostListing.ALLOWED, ""

    def _is_named(self, url: str) -> bool:
        address = canonical(url)
        return address in self._searched_urls or address in _named_on(self._conversation.leaf_id)


def _named_on(leaf: UUID | None) -> set[str]:
    """Return the addresses in the branch's questions and in the results of its tools.

    Questions from a run do not count, since a model may have written the task.
    """
    rows = Message.objects.filter(pk__in=branch_rows(leaf).values("pk"))
    written = rows.filter(role=Message.Role.USER).exclude(turns__step__isnull=False)
    named = {url for message in written for url in find_addresses(message.text)}
    for parts in rows.filter(role=Message.Role.ASSISTANT).values_list("parts", flat=True):
        documents = (each for part in parts if part["type"] == "tool_result" for each in part.get("documents", ()))
        named |= {canonical(str(each["url"])) for each in documents if "url" in each}
    return named
