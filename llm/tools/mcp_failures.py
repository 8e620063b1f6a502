"""Turn the failure of a tool server into a `ServerFailed` with advice for an administrator.

`Exchange` collects the observations of a session. `_find_cause` finds the most specific cause in them, with the advice.
"""

import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx2

from core.net.addresses import host_of
from core.sentences import Sentence
from core.text import clean
from llm.oauth.errors import SignInRequired, SignInUnavailable
from llm.tools.servers import ServerFailed, ToolServerConfig

# Bounds of the quoted last output of a process.
MAX_TAIL_LINES = 8
MAX_TAIL = 1_000  # characters
MIN_SECRET_LENGTH = 4  # characters; a shorter text is no secret, and any word may contain it
_SECRET_PATTERNS = re.compile(
    r"\b(?:sk|key|ghp|gho|github_pat|glpat|xox[abp]|AKIA|AIza)[-_]?[\w-]{10,}"
    r"|\b(?:Bearer|Basic)\s+[\w.~+/=-]{4,}"
    r"|(?<=://)[^/\s@]+(?=@)"
    r"|(?i:(?<=token=)|(?<=api_key=)|(?<=apikey=)|(?<=password=)|(?<=secret=))[^\s&'\"]+"
)
SIGN_IN_REQUIRED = "tool_server_sign_in_required"
_DENIED_STATUSES = (401, 403)
_WRONG_TRANSPORT_STATUSES = (404, 405, 406, 415)
_UNREADABLE = "Failed to parse"  # the package's error for an answer that it cannot read
_PROTOCOL_MEDIA_TYPES = ("application/json", "text/event-stream")
_TLS = re.compile(r"certificate|\bssl\b|\btls\b", re.IGNORECASE)
_NO_HOST = re.compile(r"name or service|nodename|no address|name resolution|getaddrinfo", re.IGNORECASE)


@dataclass(slots=True)
class Exchange:
    """Observations of one session with a server, which explain a failure.

    `status` and `media_type`: those of the newest answer over HTTP. `location`: the target of its redirect. `session`:
    the server has opened a session over HTTP. `ended`: the process has closed its output by itself. `exit_code`: its
    exit code, or None. `stderr`: the last bytes of its standard error. `invalid_output`: the first output that is not a
    message of the protocol, or None. `too_large`: an answer was too large to be read. `challenge`: the header
    `WWW-Authenticate` of the newest answer with status 401, in lower case. `sign_in`: the reason why a request had no
    token of its person.
    """

    status: int = 0
    media_type: str = ""
    location: str = ""
    session: bool = False
    ended: bool = False
    exit_code: int | None = None
    stderr: bytes = b""
    invalid_output: str | None = None
    too_large: bool = False
    challenge: str = ""
    sign_in: SignInRequired | SignInUnavailable | None = None

    def note_invalid_output(self, output: bytes) -> None:
        """Store the output if it is the first that is not a message of the protocol."""
        self.invalid_output = self.invalid_output or clean(output[:400].decode("utf-8", "replace")).strip()


def to_failure(
    server: ToolServerConfig, exchange: Exchange, error: BaseException | None, message: str = ""
) -> ServerFailed:
    """Return the failure of a session. `message`: the server's own message if it answered with an error."""
    if (sign_in_problem := _sign_in_problem(exchange, error)) is not None:
        code = SIGN_IN_REQUIRED if isinstance(sign_in_problem, SignInRequired) else "tool_server_sign_in"
        return ServerFailed(sign_in_problem.sentence, code)
    code, advice = _find_cause(server, exchange, error, message)
    if message and code == "tool_server_error":
        refusal = without_secrets(message, server)[:1000]
        sentence = Sentence("{name} refused: {refusal}", name=server.name, refusal=refusal)
    elif code == "tool_server_too_large":
        sentence = Sentence("{name} sent more than can be received. Ask it for less.", name=server.name)
    else:
        sentence = Sentence(
            "The tool server {name} cannot be reached or broke the connection. Continue without it.", name=server.name
        )
    return ServerFailed(sentence, code, advice)


def _sign_in_problem(exchange: Exchange, error: BaseException | None) -> SignInRequired | SignInUnavailable | None:
    """Return the error that kept the person's token from being sent, or None."""
    causes = _iterate_causes(error) if error is not None else ()
    raised = (cause for cause in causes if isinstance(cause, SignInRequired | SignInUnavailable))
    return exchange.sign_in or next(raised, None)


def timeout_failure(server: ToolServerConfig, seconds: float, exchange: Exchange) -> ServerFailed:
    """Return the failure of a server that did not list its tools in time."""
    sentence = Sentence(
        "{name} did not list its tools within {seconds} seconds.", name=server.name, seconds=f"{seconds:g}"
    )
    if server.url:
        advice = Sentence(
            "{sentence} Check that {server} is the right host and is not overloaded, then try again.",
            sentence=sentence,
            server=_host_and_port(server),
        )
    elif exchange.invalid_output:
        advice = Sentence("{problem} {advice}", problem=sentence, advice=_invalid_output_advice(server, exchange))
    else:
        advice = Sentence(
            "{sentence}{exchange} Check that the command starts a server of the protocol, and "
            "run it once by hand if it has to download something first.",
            sentence=sentence,
            exchange=_quote_stderr(server, exchange),
        )
    return ServerFailed(sentence, "tool_server_timeout", advice)


Cause = tuple[str, Sentence]  # a code, and the advice for administrators


def _find_cause(server: ToolServerConfig, exchange: Exchange, error: BaseException | None, message: str) -> Cause:
    if exchange.too_large:
        advice = Sentence("{name} sent an answer that is too large. Let it answer in pages.", name=server.name)
        return "tool_server_too_large", advice
    causes = list(_iterate_causes(error)) if error is not None else []
    if server.url:
        cause = _connection_cause(_host_and_port(server), causes) or _status_cause(server, exchange)
    else:
        cause = _start_cause(server, causes) or _process_cause(server, exchange)
    if cause is not None:
        return cause
    # A server of another protocol may also break its next connection. Its answer shows the cause better.
    if message.startswith(_UNREADABLE) or (not message and server.url and exchange.invalid_output is not None):
        return "tool_server_invalid", _unreadable_answer_advice(
            _host_and_port(server), _quote_invalid_output(server, exchange)
        )
    if message:
        text = without_secrets(message, server)[:500]
        return "tool_server_error", Sentence(
            "{name} answers, but with an error: “{text}”.", name=server.name, text=text
        )
    return (
        "tool_server_invalid",
        Sentence(
            "{name} answers, but not in the Model Context Protocol.{exchange} Check that "
            "its address or command is that of an MCP server, and that the server is up to date.",
            name=server.name,
            exchange=_quote_stderr(server, exchange),
        ),
    )


def _quote_invalid_output(server: ToolServerConfig, exchange: Exchange) -> str:
    """Return the invalid output without secrets, shortened to 200 characters."""
    return without_secrets(exchange.invalid_output or "", server)[:200]


def _unreadable_answer_advice(host: str, text: str) -> Sentence:
    if not text:
        return Sentence("{host} sent an empty answer. Check the URL, and that the server is up to date.", host=host)
    return Sentence(
        "{host} answered “{text}”, which is not a message of the Model Context Protocol. Check the URL, and that the "
        "server is up to date.",
        host=host,
        text=text,
    )


def _connection_cause(host: str, causes: Sequence[BaseException]) -> Cause | None:
    for cause in causes:
        if isinstance(cause, httpx2.TimeoutException):
            return "tool_server_timeout", Sentence(
                "{host} did not answer in time. Check that it is running, then try again.", host=host
            )
        if isinstance(cause, ssl.SSLError) or (isinstance(cause, httpx2.ConnectError) and _TLS.search(str(cause))):
            return (
                "tool_server_tls",
                Sentence(
                    "The connection to {host} cannot be secured. Check the certificate of the server, and whether its "
                    "URL begins with http:// or https://.",
                    host=host,
                ),
            )
        if isinstance(cause, socket.gaierror) or (
            isinstance(cause, httpx2.ConnectError) and _NO_HOST.search(str(cause))
        ):
            return "tool_server_unknown_host", Sentence("There is no host {host}. Correct the URL.", host=host)
    if any(isinstance(cause, httpx2.ConnectError) for cause in causes):
        advice = Sentence(
            "Nothing accepts connections at {host}. Start the server there, or correct host and port of the URL.",
            host=host,
        )
        return "tool_server_refused", advice
    return None


def _status_cause(server: ToolServerConfig, exchange: Exchange) -> Cause | None:
    host = _host_and_port(server)
    status = exchange.status
    if status == 401 and not server.secrets and exchange.challenge.startswith("bearer"):
        return (
            "tool_server_wants_sign_in",
            Sentence(
                "{host} answered 401: it requires a sign-in. If it supports OAuth, let each person sign in. Otherwise "
                "enter its secret, with “Bearer ” before it.",
                host=host,
            ),
        )
    if status in _DENIED_STATUSES:
        return (
            "tool_server_denied",
            Sentence(
                "{host} answered {status}: it refuses the secret, or requires one. Enter the secret again, with its "
                "scheme if the server requires one (such as “Bearer …”), and check the name of the header.",
                host=host,
                status=status,
            ),
        )
    if status in _WRONG_TRANSPORT_STATUSES:
        return (
            "tool_server_wrong_transport",
            Sentence(
                "{host} answered {status}: this address does not speak SSE. Is it the address of streamable HTTP? Then "
                "choose that kind. The address of an SSE server mostly ends in /sse.",
                host=host,
                status=status,
            )
            if server.sse
            else Sentence(
                "{host} answered {status}: this address does not speak streamable HTTP. Is this the address of an SSE "
                "server? Then choose that kind, or enter the address of streamable HTTP, which mostly ends in /mcp.",
                host=host,
                status=status,
            ),
        )
    if exchange.location:
        return (
            "tool_server_redirect",
            Sentence(
                "{host} redirects to {location}. Redirects are not followed. Enter that address if it is right.",
                host=host,
                location=exchange.location[:200],
            ),
        )
    if status >= 400:
        advice = Sentence(
            "{host} answered with status {status}. Check the log of the server, then try again.",
            host=host,
            status=status,
        )
        return "tool_server_http_error", advice
    if status == 200 and not exchange.media_type.startswith(_PROTOCOL_MEDIA_TYPES):
        media_type = exchange.media_type[:60] or "no media type"
        advice = Sentence(
            "{host} answered with {media_type}, not with the Model Context Protocol. Check the URL.",
            host=host,
            media_type=media_type,
        )
        return "tool_server_wrong_address", advice
    return None


def _start_cause(server: ToolServerConfig, causes: Sequence[BaseException]) -> Cause | None:
    if any(isinstance(cause, FileNotFoundError) for cause in causes):
        return (
            "tool_server_no_program",
            Sentence(
                "There is no program “{server}” on the machine of the worker. Install it there, or correct the "
                "command.",
                server=_program_name(server),
            ),
        )
    if any(isinstance(cause, PermissionError) for cause in causes):
        advice = Sentence(
            "The worker may not execute “{server}”. Correct its permissions, or the command.",
            server=_program_name(server),
        )
        return "tool_server_no_program", advice
    return None


def _process_cause(server: ToolServerConfig, exchange: Exchange) -> Cause | None:
    if exchange.ended:
        return (
            "tool_server_ended",
            Sentence(
                "The process {exit_code} before it answered.{exchange} "
                "Check the command, its arguments and its environment variables.",
                exit_code=_describe_end(exchange.exit_code),
                exchange=_quote_stderr(server, exchange),
            ),
        )
    return ("tool_server_invalid", _invalid_output_advice(server, exchange)) if exchange.invalid_output else None


def _invalid_output_advice(server: ToolServerConfig, exchange: Exchange) -> Sentence:
    text = _quote_invalid_output(server, exchange)
    return Sentence(
        "The process wrote “{text}”, which is not a message of the Model Context Protocol. Check that the command "
        "starts an MCP server over stdio, and that it writes its log to the standard error.",
        text=text,
    )


def _describe_end(code: int | None) -> str:
    if code is None:
        return "closed its output"
    return f"ended by signal {-code}" if code < 0 else f"ended with code {code}"


def _quote_stderr(server: ToolServerConfig, exchange: Exchange) -> str:
    lines = [line.strip() for line in exchange.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    text = without_secrets("\n".join(lines[-MAX_TAIL_LINES:]), server)[-MAX_TAIL:]
    return f" Its last output: “{text}”" if text else ""


def without_secrets(text: str, server: ToolServerConfig) -> str:
    """Return the text without the server's secrets, keys of other services, and control characters."""
    secrets = {part for value in server.secrets.values() for part in (value, *value.split())}
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET_LENGTH and secret not in ("Bearer", "Basic", "Token"):
            text = text.replace(secret, "…")
    printable = "".join(each if each.isprintable() or each == "\n" else " " for each in clean(text))
    return _SECRET_PATTERNS.sub("…", printable)


def _host_and_port(server: ToolServerConfig) -> str:
    """Return the host with its port. The rest of the address may contain a key."""
    try:
        url = httpx2.URL(server.url)
    except (httpx2.InvalidURL, ValueError):
        return host_of(server.url) or server.name
    return f"{url.host}:{url.port}" if url.port else url.host


def _program_name(server: ToolServerConfig) -> str:
    return server.command.split(maxsplit=1)[0][:200] if server.command.strip() else ""


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, the errors that it groups, and their causes."""
    pending = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        pending += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions
