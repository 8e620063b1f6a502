"""Define values for tool servers: their configuration, problems of their tools, and failures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict
from uuid import UUID

from core.json_types import JsonObject
from core.net.addresses import HostLists
from core.sentences import Sentence
from llm.oauth.bearer import PersonBearer
from llm.tools.openapi import StoredOperation


class StoredServerTool(TypedDict):
    """A tool as stored in `ToolServer.tools`. `tool`: its name at the server; `name`: its name for models.

    `operation`: how to call it, if it is an operation of an OpenAPI document.
    """

    tool: str
    name: str
    description: str
    parameters: JsonObject
    operation: NotRequired[StoredOperation]


class ServerFailed(Exception):
    """A tool server that cannot be used.

    The text is for the model and for people who cannot change the server. `code` (the cause) and `advice` (how to fix
    it) are for administrators. Neither contains a secret.
    """

    def __init__(self, sentence: Sentence, code: str = "tool_server_failed", advice: Sentence | None = None) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence
        self.code = code
        self.advice = advice or sentence


@dataclass(frozen=True, slots=True)
class ToolServerConfig:
    """Configuration of a tool server. With `url` it is reached over HTTP, otherwise `command` is started.

    `sse`: the address speaks the protocol's older transport, HTTP with SSE, instead of streamable HTTP.

    The command is split as a shell would split it, but no shell runs. `secrets` are HTTP headers or environment
    variables. `bearer`: the sign-in of the person whose tokens go along instead. `approval_required`: a person must
    allow each call; the caller enforces it. `reaches_out`: its tools send their arguments out of the workspace.

    `operations`: the tools of a server that an OpenAPI document describes; None for an MCP server. `own_network`: such
    a server may have a private address. `hosts`: the hosts that it may not have.
    """

    name: str
    url: str = ""
    command: str = ""
    sse: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 60.0  # seconds for a call
    approval_required: bool = False
    reaches_out: bool = True
    operations: Sequence[StoredServerTool] | None = field(default=None, repr=False)
    own_network: bool = False
    hosts: HostLists = field(default_factory=HostLists, repr=False)
    bearer: PersonBearer | None = None


@dataclass(frozen=True, slots=True)
class SessionScope:
    """The place in which sessions with tool servers stay open: answers of one conversation, one after the other.

    `slot` is the place of an answer among answers side by side, which must not share a session. `person` owns the
    conversation.
    """

    person: UUID
    conversation: UUID
    slot: int = 0


@dataclass(frozen=True, slots=True)
class ToolProblem:
    """A tool that is not offered as the server lists it, and the reason. `offered`: it is offered, but in part."""

    name: str
    reason: Sentence
    offered: bool = False
