"""Define the tool that searches the web, with the API of SearXNG or Brave, or DuckDuckGo (package `ddgs`)."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from itertools import zip_longest
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2

from core.crypto import KEY_LOST, is_lost
from core.net.addresses import HostListing, HostLists, host_of
from core.net.fetch import read_body
from core.net.outgoing import note
from core.net.url_safety import FetchRefused
from core.sentences import Sentence
from core.text import clean
from llm.types.model_call import ToolDefinition
from llm.types.tools import BadArguments, ToolOutput

BRAVE_URL = "https://api.search.brave.com/res/v1"
DUCKDUCKGO_URL = "https://html.duckduckgo.com/html/"
ServiceKind = Literal["searxng", "brave", "duckduckgo"]
MAX_QUERIES = 5
MAX_QUERY = 400  # characters, Brave's limit
MAX_RESULTS = 20
MAX_RESULTS_PER_QUERY = 10
NO_RESULTS = "Nothing was found. Try other words."
ONE_DENIED = "One result is from a host that this workspace denies. It was left out."
SEVERAL_DENIED = "{count} results are from hosts that this workspace denies. They were left out."
NO_LISTS = HostLists()
_MAX_BYTES = 2_000_000  # of an answer
_MAX_URL = 2_000  # characters
_MAX_TITLE = 300  # characters
_MAX_SNIPPET = 1_000  # characters

_DEFINITION = ToolDefinition(
    "web_search",
    "Search the web. Returns titles, addresses and excerpts.",
    {
        "type": "object",
        "properties": {
            "queries": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": MAX_QUERIES,
                "description": "Different wordings, such as: Python 3.14 release date",
            }
        },
        "required": ["queries"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True)
class SearchService:
    """A search service. `api_key` may be empty for SearXNG, `base_url` for Brave. DuckDuckGo has no key."""

    kind: ServiceKind
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    timeout: float = 10.0  # seconds for a query

    async def search(self, query: str) -> list["WebResult"]:
        """Return the results, best first.

        Raises `FetchRefused` with a sentence for the model, which never contains the key.
        """
        if is_lost(self.api_key):
            raise FetchRefused(KEY_LOST)
        note(host_of(self._url), query)
        if self.kind == "duckduckgo":
            return await self._ask_duckduckgo(query)
        try:
            async with asyncio.timeout(self.timeout), httpx2.AsyncClient(timeout=self.timeout) as client:
                return await self._ask(client, query)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise FetchRefused(f"The search service did not answer within {self.timeout:g} seconds.") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise FetchRefused(
                "The search service cannot be reached. An administrator must check its address."
            ) from error

    async def _ask(self, client: httpx2.AsyncClient, query: str) -> list["WebResult"]:
        # Redirects are not followed: only this address may get the key.
        async with client.stream("GET", self._url, params=self._parameters(query), headers=self._headers) as response:
            if not response.is_success:
                raise FetchRefused(_status_sentence(response.status_code, self.kind))
            body, cut = await read_body(response, _MAX_BYTES)
        try:
            answer = None if cut else json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        return _parse_results(answer, self.kind)

    async def _ask_duckduckgo(self, query: str) -> list["WebResult"]:
        """Return the results of DuckDuckGo. The package blocks a thread until its own time-out."""
        try:
            async with asyncio.timeout(self.timeout):
                entries = await asyncio.to_thread(_search_duckduckgo, self._url, query, int(self.timeout))
        except TimeoutError as error:
            raise FetchRefused(f"The search service did not answer within {self.timeout:g} seconds.") from error
        results = [_parse_result(entry, self.kind) for entry in entries if _valid_url(entry["url"])]
        return results[:MAX_RESULTS_PER_QUERY]

    @property
    def _url(self) -> str:
        if self.kind == "duckduckgo":
            return self.base_url or DUCKDUCKGO_URL
        if self.kind == "searxng":
            return f"{self.base_url.rstrip('/')}/search"
        return f"{(self.base_url or BRAVE_URL).rstrip('/')}/web/search"

    @property
    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "Glasshouse"}
        if not self.api_key:
            return headers
        if self.kind == "brave":
            return {**headers, "X-Subscription-Token": self.api_key}
        return {**headers, "Authorization": f"Bearer {self.api_key}"}

    def _parameters(self, query: str) -> dict[str, str]:
        if self.kind == "searxng":
            return {"q": query, "format": "json"}
        return {"q": query, "count": str(MAX_RESULTS_PER_QUERY), "text_decorations": "false"}


@dataclass(frozen=True, slots=True)
class WebResult:
    """One result of a search. `snippet`: an excerpt of the page."""

    url: str
    title: str
    snippet: str


class WebSearchTool:
    """Tool that searches the web.

    The `data` of its output has three members:

    * `documents`: id and metadata (both are the URL), title, and text (the excerpt) of each result.
    * `notes`: sentences about failed queries, and about results from hosts that `hosts` denies.
    * `denied`: the number of different pages on such hosts.
    """

    definition = _DEFINITION

    def __init__(self, service: SearchService, *, hosts: HostLists = NO_LISTS) -> None:
        self._service = service
        self._hosts = hosts
        self.timeout = service.timeout + 1  # so that each query can report its own time-out

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        queries = _parse_queries(arguments)
        more = Sentence(" and {queries} more", queries=len(queries) - 1) if len(queries) > 1 else Sentence("")
        return Sentence("Searching the web for “{queries}”{more}", queries=queries[0][:100], more=more)

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        queries = _parse_queries(arguments)
        outcomes = await asyncio.gather(*(self._search(query) for query in queries))
        lists = [outcome for outcome in outcomes if isinstance(outcome, list)]
        failures = [
            f"“{query}”: {outcome}"
            for query, outcome in zip(queries, outcomes, strict=True)
            if isinstance(outcome, FetchRefused)
        ]
        if not lists:
            return ToolOutput("\n".join(failures), error=True)
        allowed_lists = [[result for result in results if not self._is_denied(result)] for results in lists]
        denied_count = len({_page_url(result) for results in lists for result in results if self._is_denied(result)})
        documents = [
            {"id": result.url, "title": result.title, "metadata": result.url, "text": result.snippet}
            for result in interleave(allowed_lists)
        ]
        notes = [
            *failures,
            *([SEVERAL_DENIED.format(count=denied_count) if denied_count > 1 else ONE_DENIED] if denied_count else []),
        ]
        if not documents:
            notes.append("Nothing else was found. Try other words." if denied_count else NO_RESULTS)
        texts = [f"{document['title']}\n{document['metadata']}\n{document['text']}" for document in documents]
        return ToolOutput(
            "\n\n".join([*texts, *notes]), {"documents": documents, "notes": notes, "denied": denied_count}
        )

    def _is_denied(self, result: WebResult) -> bool:
        return self._hosts.listing_of(host_of(result.url)) is HostListing.DENIED

    async def _search(self, query: str) -> list[WebResult] | FetchRefused:
        try:
            return await self._service.search(query)
        except FetchRefused as refusal:
            return refusal


def interleave(lists: Sequence[Sequence[WebResult]]) -> list[WebResult]:
    """Merge the lists: the first results of all lists, then the second results, and so on.

    URLs that differ only in the fragment count as one result.
    """
    best: dict[str, WebResult] = {}
    for rank in zip_longest(*lists):
        for result in rank:
            if result is not None:
                best.setdefault(_page_url(result), result)
    return list(best.values())[:MAX_RESULTS]


def _page_url(result: WebResult) -> str:
    return result.url.partition("#")[0]


def _parse_queries(arguments: Mapping[str, Any]) -> list[str]:
    queries = arguments.get("queries")
    if not isinstance(queries, list) or not 1 <= len(queries) <= MAX_QUERIES:
        raise BadArguments(f'Call it with {{"queries": ["…"]}}, one to {MAX_QUERIES} of them.')
    texts = [clean(query).strip() if isinstance(query, str) else "" for query in queries]
    if not all(0 < len(text) <= MAX_QUERY for text in texts):
        raise BadArguments(f"Each query must be text of at most {MAX_QUERY} characters.")
    return list(dict.fromkeys(texts))


def _search_duckduckgo(url: str, query: str, timeout: int) -> list[dict[str, str]]:
    """Return the entries of DuckDuckGo's page for a query, in SearXNG's form. Blocks. Raises `FetchRefused`."""
    # Imported here, since the package starts threads, and a process that forks must have none.
    from ddgs.engines.duckduckgo import Duckduckgo  # noqa: PLC0415 - as above
    from ddgs.exceptions import DDGSException, TimeoutException  # noqa: PLC0415 - as above

    engine = Duckduckgo(timeout=timeout)
    engine.search_url = url
    try:
        results = engine.search(query)
    except TimeoutException as error:
        raise FetchRefused(f"The search service did not answer within {timeout} seconds.") from error
    except DDGSException as error:
        raise FetchRefused("DuckDuckGo cannot be reached. Continue without it, or try again later.") from error
    if results is None:  # a status other than 200; DuckDuckGo sends 202 to suspected robots
        raise FetchRefused("DuckDuckGo refuses more queries for now. Send fewer, or continue without it.")
    return [{"url": _link_target(each.href), "title": each.title, "content": each.body} for each in results]


def _link_target(url: str) -> str:
    """Return the target of a link of DuckDuckGo, which may be a redirect by DuckDuckGo itself.

    The package has decoded the link, so the target in it is not quoted any more. It ends where `rut` begins.
    """
    address = urlsplit(url)
    if (address.hostname or "").endswith("duckduckgo.com") and address.path == "/l/":
        target = url.partition("uddg=")[2]
        return target.rpartition("&rut=")[0] or target
    return url


def _status_sentence(status: int, kind: str) -> str:
    if status == 429:
        return "The search service gets too many queries. Send fewer, or continue without it."
    if status in (401, 403) and kind == "searxng":
        return "The search service refused. An administrator must allow its JSON format or check the key."
    if status in (401, 403, 422) and kind == "brave":
        return "The search service refused the key or the query. An administrator must check the key."
    return f"The search service failed with status {status}. Continue without it, or try again later."


def _parse_results(answer: Any, kind: str) -> list[WebResult]:
    """Return the results in the answer of a search service."""
    if kind == "brave" and isinstance(answer, dict):
        answer = answer.get("web") or {"results": []}  # Brave leaves `web` out if there are no results
    entries = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise FetchRefused("The search service sent an answer in another protocol. An administrator must check it.")
    results = [
        _parse_result(entry, kind) for entry in entries if isinstance(entry, dict) and _valid_url(entry.get("url"))
    ]
    return results[:MAX_RESULTS_PER_QUERY]


def _parse_result(entry: Mapping[str, Any], kind: str) -> WebResult:
    url = _valid_url(entry["url"])
    title = _to_line(entry.get("title"))
    excerpt = _to_line(entry.get("description" if kind == "brave" else "content"))
    if kind == "brave":  # Brave escapes HTML in its texts, SearXNG does not
        title = unescape(title)
        excerpt = unescape(excerpt)
    return WebResult(url, title[:_MAX_TITLE] or url, excerpt[:_MAX_SNIPPET])


def _valid_url(value: Any) -> str:
    url = clean(value.strip()) if isinstance(value, str) else ""
    return url if url.startswith(("http://", "https://")) and len(url) <= _MAX_URL else ""


def _to_line(value: Any) -> str:
    return " ".join(clean(value).split()) if isinstance(value, str) else ""
