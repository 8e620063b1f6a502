"""Pages that tests open with the tool, on loopback."""

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_network
from types import MappingProxyType
from typing import Any

from core.net.fetch import Fetcher, Follow
from core.net.url_safety import Guard
from llm.tools.open_url import OpenUrlTool
from llm.types.tools import Tool, ToolOutput, run_tool
from tests.llm.raw_server import Play, RawServer

OPEN = ip_network("127.0.0.2/32")  # stands for the public internet; all other loopback addresses stay closed
STORY = "It was a dark and stormy night. " * 20


class Names:
    """A name server. It gives the addresses of each look-up in order, and then repeats the last."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.hosts: list[str] = []
        self._answers = answers

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.hosts.append(host)
        return self._answers[min(len(self.hosts), len(self._answers)) - 1]


def tool_for(
    *servers: RawServer,
    names: Names | None = None,
    readers: Mapping[str, Callable[[bytes], str]] = MappingProxyType({}),
    follow: Follow | None = None,
    **changes: Any,
) -> Tool:
    """`changes` are fields of the fetcher."""
    ports = frozenset(server.port for server in servers)
    guard = Guard(ports=ports, allowed_networks=(OPEN,), resolve=names or Names(["127.0.0.2"]))
    return OpenUrlTool(Fetcher(guard, **changes), readers=readers, follow=follow)


async def opened(play: Play, path: str = "/", **changes: Any) -> ToolOutput:
    with RawServer(play) as server:
        return await run_tool(tool_for(server, **changes), {"url": f"http://site.example:{server.port}{path}"})


def document_of(output: ToolOutput) -> dict[str, str]:
    assert not output.error, output.text
    assert output.data is not None
    [document] = output.data["documents"]
    return dict(document)
