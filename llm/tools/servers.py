"""Define the values of tool servers: their configuration, the problems of their tools, and their failures."""

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
    """A tool as stored in `ToolServer.tools`. `tool`: its name at the server. `name`: its name for models.

    `operation`: the request of a call, for a tool that is an operation of an OpenAPI document.
    """

    tool: str
    name: str
    description: str
    parameters: JsonObject
    operation: NotRequired[StoredOperation]


class ServerFailed(Exception):
    """A tool server cannot be used.

    `sentence` is for the model, and for people who cannot change the server. `code` (the cause) and `advice` (the
    remedy) are for administrators. None of them contains a secret.
    """

    def __init__(self, sentence: Sentence, code: str = "tool_server_failed", advice: Sentence | None = None) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence
        self.code = code
        self.advice = advice or sentence


@dataclass(frozen=True, slots=True)
class ToolServerConfig:
    """Configuration of a tool server. With `url`, requests go over HTTP. Without it, `command` is started.

    `sse`: the server speaks the protocol's older transport, HTTP with SSE, instead of streamable HTTP. The command is
    split like in a shell, but no shell runs. `secrets`: HTTP headers or environment variables. `bearer`: the sign-in of
    the person whose tokens replace the secrets. `approval_required`: a person must allow each call; the caller enforces
    it. `reaches_out`: its tools send their arguments out of the workspace.

    `operations`: the tools of a server that an OpenAPI document describes; None for an MCP server. `own_network`: such
    a server may have a private address. `hosts`: lists with the hosts that are denied to it.
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
    """The scope of open sessions with tool servers: successive answers of one conversation.

    `slot`: the position of an answer among the concurrent answers to one question, which must not share a session.
    `person`: the owner of the conversation.
    """

    person: UUID
    conversation: UUID
    slot: int = 0


@dataclass(frozen=True, slots=True)
class ToolProblem:
    """A tool that is left out or changed, and the reason. `offered`: it is offered, but changed."""

    name: str
    reason: Sentence
    offered: bool = False
