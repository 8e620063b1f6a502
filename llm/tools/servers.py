"""What a tool server is, and that it failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field


class ServerFailed(Exception):
    """The sentence is for the model and for people; the cause is in the log."""


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
