"""Tool servers: how one is reached, what it lists, and why it failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.sentences import Sentence


class ServerFailed(Exception):
    """A tool server that cannot be used.

    The text is for the model and for people who cannot change the server. `code` and `advice` are for administrators:
    the cause, and a sentence that says what to do about it. Neither holds a secret.
    """

    def __init__(self, sentence: Sentence, code: str = "tool_server_failed", advice: Sentence | None = None) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence
        self.code = code
        self.advice = advice or sentence


@dataclass(frozen=True, slots=True)
class Server:
    """A tool server: with `url` over HTTP, otherwise `command` is started, split as a shell would but without one.

    `secrets` are HTTP headers or environment variables. `approval_required`: a person has to allow each call; whoever
    runs the tools sees to it. `reaches_out`: its tools send what they are called with out of the workspace.
    """

    name: str
    url: str = ""
    command: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 60.0  # seconds for a call
    approval_required: bool = False
    reaches_out: bool = True


@dataclass(frozen=True, slots=True)
class ToolProblem:
    """A tool that is not offered as the server lists it, and the reason. `offered`: only a part of it is missing."""

    name: str
    reason: Sentence
    offered: bool = False
