"""Whether a call of a tool runs, is refused, or waits for a person: one rule for all tools that ask.

A tool of a server that is marked so asks before each call. `open_url` asks for an address that neither a person nor a
search has named here: who can write into what a model reads could otherwise have it carry away what else it reads, in
an address made up for that. A decision for the conversation holds for the host, of other tools for the tool.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import httpx2

from chat.models import Conversation, Message, ToolPermission
from chat.models.tree import branch_rows
from core.background import on_database
from core.net.addresses import HostListing, canonical, host_of, named_in
from core.net.url_safety import FetchRefused
from llm.tools.services import host_lists

OPEN_URL = "open_url"
DENIED = "This workspace does not let {host} be reached. Go on without it."
NEVER_HOST = "The person does not want {host} to be reached in this conversation. Do not ask for it again."
NEVER_TOOL = "The person does not want this tool to be used in this conversation. Do not call it again."
NOBODY = "This call needs a person's permission, and nobody is there to give it, so it did not run."
LEADS_AWAY = "{host} redirects to another host, {url}. To go there, call open_url with that address."


class Verdict(NamedTuple):
    """Without either the call runs. `refusal` is for the model."""

    asks: bool = False
    refusal: str = ""


RUNS, ASKS = Verdict(), Verdict(asks=True)


def host_asked_for(tool: str, arguments: Mapping[str, Any]) -> str:
    """What a decision for the conversation is about, beside the tool; empty where it is the tool as such."""
    url = arguments.get("url")
    return host_of(url) if tool == OPEN_URL and isinstance(url, str) else ""


def remember(conversation: Conversation, *, tool: str, host: str, allowed: bool) -> None:
    ToolPermission.objects.update_or_create(
        conversation=conversation, tool=tool[:200], host=host[:255], defaults={"allowed": allowed}
    )


class Gate:
    """Of one turn, whose conversation's `leaf` is the branch that counts.

    `denied`: how many results of its searches were left out, since they are of hosts that the workspace denies.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._found: set[str] = set()
        self.denied = 0

    def learn(self, urls: Iterable[str]) -> None:
        """What this turn's tools for the web have found."""
        self._found.update(filter(None, map(canonical, urls)))

    async def verdict(self, tool: str, arguments: Mapping[str, Any]) -> Verdict:
        return await on_database(self._verdict, tool, arguments)

    async def follow(self, asked: httpx2.URL, target: httpx2.URL) -> None:
        """Raises `FetchRefused` for a redirect that would reach, through a host that may be reached, one that may not.

        An address that a person or a search has named may lead anywhere: what it says to whom is not the model's doing.
        """
        if host_of(str(target)) != host_of(str(asked)):
            await on_database(self._follow, str(asked), str(target))

    def _verdict(self, tool: str, arguments: Mapping[str, Any]) -> Verdict:
        url, host = str(arguments.get("url", "")), host_asked_for(tool, arguments)
        if tool == OPEN_URL and not host:
            return RUNS  # it says itself that this is no address
        free, refusal = self._standing(tool, host)
        if refusal:
            return Verdict(refusal=refusal)
        if free or (host and self._is_named(url)):
            return RUNS
        return Verdict(refusal=NOBODY) if self._conversation.origin == Conversation.Origin.API else ASKS

    def _follow(self, asked: str, target: str) -> None:
        free, refusal = self._standing(OPEN_URL, host_of(target))
        if refusal:
            raise FetchRefused(refusal)
        if not (free or self._is_named(asked) or self._is_named(target)):
            raise FetchRefused(LEADS_AWAY.format(host=host_of(asked), url=target))

    def _standing(self, tool: str, host: str) -> tuple[bool, str]:
        """Whether every call to this host, without one of this tool, runs; or the sentence that refuses each."""
        listed = host_lists().listing_of(host) if host else HostListing.UNLISTED
        if listed is HostListing.DENIED:
            return False, DENIED.format(host=host)
        about = ToolPermission.objects.filter(conversation=self._conversation.pk, tool=tool[:200], host=host[:255])
        decided = about.values_list("allowed", flat=True).first()
        if decided is False:
            return False, NEVER_HOST.format(host=host) if host else NEVER_TOOL
        return bool(decided) or listed is HostListing.ALLOWED, ""

    def _is_named(self, url: str) -> bool:
        wanted = canonical(url)
        return wanted in self._found or wanted in _named_on(self._conversation.leaf_id)


def _named_on(leaf: UUID | None) -> set[str]:
    """What stands in the branch's questions, but for those that a run has put together, and in what was found there."""
    rows = Message.objects.filter(pk__in=branch_rows(leaf).values("pk"))
    written = rows.filter(role=Message.Role.USER).exclude(turns__step__isnull=False)
    named = {url for message in written for url in named_in(message.text)}
    for parts in rows.filter(role=Message.Role.ASSISTANT).values_list("parts", flat=True):
        documents = (each for part in parts if part["type"] == "tool_result" for each in part.get("documents", ()))
        named |= {canonical(str(each["url"])) for each in documents if "url" in each}
    return named
