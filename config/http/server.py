"""daphne with limits on bodies, slow senders and memory, which an application could not set.

daphne passes a request to an ASGI application only when it has received all of it, and in one piece. Here

1. `TimedChannel` bounds the time for the head of a request and between the parts of its body;
2. `LimitedRequest` counts the body while it arrives, refuses a body that is too large, and stores it on disk;
3. `with_body_pieces` passes the body to the application piece by piece, large ones in turns
   (`config.http.large_bodies`);
4. `LimitedServer.handle_reply` writes the response piece by piece, as the client reads it (`config.http.unread`).

`python -m config.web` starts it.
"""

import asyncio
import logging
import socket
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, suppress
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from io import SEEK_END, BytesIO
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote
from uuid import UUID, uuid4
from weakref import WeakSet

from autobahn.exception import Disconnected
from channels.db import database_sync_to_async
from daphne.cli import CommandLineInterface  # type: ignore[import-untyped]  # has no types
from daphne.http_protocol import HTTPFactory, WebRequest  # type: ignore[import-untyped]  # has no types
from daphne.server import Server  # type: ignore[import-untyped]  # has no types
from django.conf import settings
from django.http import HttpRequest, HttpResponse, parse_cookie
from django.template.loader import render_to_string
from django.urls import Resolver404, resolve
from twisted.internet import tcp
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.basic import LineReceiver
from twisted.web.http import HTTPChannel
from twisted.web.http_headers import Headers

from accounts.access.authentication import user_id_of
from accounts.access.login_throttle import client_address
from config.http import problems
from config.http.handler import LOG_FIELDS
from config.http.large_bodies import LARGE_BODY, LargeBodies
from config.http.middleware import MONITORING_PATHS
from config.http.unread import UNREAD_GRACE, UnreadBytes
from core import memory
from core.asgi_types import AsgiMessage, AsgiReceive, AsgiScope, AsgiSend
from core.errors import ProductError
from core.logs.context import log_context
from core.logs.lines import without_secrets
from core.net.bearer import api_token
from core.outside import before_waits
from core.requests import SLOT_RELEASE
from core.sentences import Sentence
from files.index.embedders import embed_in_workers

logger = logging.getLogger(__name__)
access = logging.getLogger("access")

MAX_ANONYMOUS_BYTES = 100_000  # a client that is not signed in sends at most a form
FORM_BYTES = 1_000_000  # that a multipart form may have in addition to the file
UPLOADS = {  # the views that take files
    *("files:list", "projects:upload", "chat:imports", "file-list", "import-list", "openai-files"),
    *("admin:projects_project_add", "admin:projects_project_change"),
}
HEAD_SECONDS = 20  # for the whole head (first line and headers) of a connection's first request
KEEP_ALIVE_SECONDS = 75  # between requests; a proxy keeps a connection for 60 s and must be the first to end it
BODY_SECONDS = 30  # in which `BODY_BYTES` must arrive
BODY_BYTES = 10_000
UNREAD_SECONDS = 300  # in which a client must read the buffer of its connection
CANCEL_SECONDS = 1.0  # in which answers must stop that are cancelled at the end of the process
LINGER_SECONDS = 5  # for which a client may send after a refusal; if it were cut off, it would not read the refusal
SERVICE_RESTART = 1012  # a close code (IANA's list) after which the page reconnects to another process
MEMORY_BYTES = 100_000  # a longer body waits on disk
PIECE_BYTES = 65_536
MAX_SHOWN_LENGTH = 300  # bytes at the beginning of a too long request line, in which the path is looked up
UNSENT_BYTES = 131_072  # that the kernel may buffer; by default it buffers megabytes
CHECK_INTERVAL = 1.0  # seconds between two checks while too many bytes wait for clients to read them

App = Callable[..., Awaitable[None]]


class Sender(NamedTuple):
    """The sender of a body above `MAX_ANONYMOUS_BYTES`. `upload`: whether it is for a view that takes files."""

    person: UUID
    upload: bool


class LimitedRequest(WebRequest):  # type: ignore[misc]  # has no types
    """Counts its body while it arrives, chunked or not, and refuses a body that is too large.

    Before it reads more than `MAX_ANONYMOUS_BYTES`, it looks up the sender. It reads nothing during the look-up.
    """

    def __init__(self, channel: "TimedChannel", queued: object) -> None:
        super().__init__(channel, queued, parsePOSTFormSubmission=False)  # Django does, without holding it in memory
        self.most = MAX_ANONYMOUS_BYTES
        self.received = 0
        self.looked_up = self.looking = self.refused = self.complete = self.upload = False
        self.uploader: UUID | None = None
        self.sender: Sender | None = None  # set by the look-up
        self.body: BinaryIO = BytesIO()
        self.log_fields: dict[str, str] = {}  # filled by the middleware

    def gotLength(self, length: int | None) -> None:
        small = length is not None and length <= MEMORY_BYTES
        # Closed with the request, by Twisted or by `with_body_pieces`.
        self.content = BytesIO() if small else tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR)  # noqa: SIM115
        self._check_size(length or 0)

    def handleContentChunk(self, data: bytes) -> None:
        self._check_size(self.received + len(data))
        self.received += len(data)
        if not self.refused:
            super().handleContentChunk(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        self.complete = True
        if self.refused:
            self.channel.loseConnection()
        else:
            super().requestReceived(command, path, version)

    def process(self) -> Any:
        # daphne would read all of `content` into memory; `LimitedServer` reads `body`.
        self.body = self.content
        self.content = BytesIO()
        # daphne would trust this header from any client, and answer 500 if it is not ASCII.
        self.requestHeaders.removeHeader(b"daphne-root-path")
        if not self.requestHeaders.hasHeader(b"content-length") and self.received:
            # Django REST framework ignores a body without a length, such as a chunked body.
            self.requestHeaders.setRawHeaders(b"content-length", [str(self.received).encode()])
        return super().process()

    def connectionLost(self, reason: Any) -> None:
        self.complete = True
        self._end_upload()
        super().connectionLost(reason)

    def finish(self) -> None:
        self._end_upload()
        super().finish()

    def address(self) -> str:
        """Return the client's address, also behind proxies. It is empty if unknown."""
        direct = str(getattr(self.channel.getPeer(), "host", ""))
        forwarded = b",".join(self.requestHeaders.getRawHeaders(b"x-forwarded-for") or ())
        return client_address(direct, forwarded.decode("latin-1"))

    @property
    def resumable(self) -> bool:
        """Return whether the response is a stream of events that the client can resume."""
        kind = self.responseHeaders.getRawHeaders(b"content-type") or [b""]
        return bool(self.method == b"GET" and self._response_started and kind[0].startswith(b"text/event-stream"))

    def end_stream(self) -> None:
        if not self.finished and self.channel is not None:
            self.finish()

    def handle_exception(self, exception: BaseException) -> None:
        """Abort the connection if its answer has begun, since that cannot become a 500.

        daphne would raise an error here, after which no connection of the process would time out.
        """
        if self._response_started:
            self.channel.transport.abortConnection()
        else:
            super().handle_exception(exception)

    def _check_size(self, size: int) -> None:
        if self.refused or self.looking or size <= self.most:
            return
        if self.looked_up:
            self._refuse(self._too_large())
            return
        self.looked_up = True
        token, session = self._credential()
        if not (token or session):
            self._refuse(self._too_large())
            return
        self.looking = True  # bytes that were read before still arrive; they are counted after the look-up
        self.channel.pause_reading()
        self._looking_up = asyncio.ensure_future(self._look_up(token, session, size))

    async def _look_up(self, token: str, session: str, size: int) -> None:
        channel = self.channel
        try:
            user_id = await database_sync_to_async(user_id_of, thread_sensitive=False)(token, session)
            if not self.complete:
                self._admit(user_id, size)
        except Exception as error:
            logger.warning("the sender of a body could not be looked up, so it is refused: %s", error)
            if not self.complete:
                detail = Sentence("The server cannot accept this request now. Try again in a minute.")
                self._refuse(ProductError("unavailable", detail, status=503, retry_after=60))
        finally:
            self.looking = False
            channel.resume_reading()

    def _admit(self, user_id: UUID | None, size: int) -> None:
        if user_id is None:
            detail = Sentence(
                "This request is too large for a visitor who is not signed in. Sign in, or send a valid token."
            )
            self._refuse(ProductError("not_authenticated", detail, status=401))
            return
        self.upload = self._view() in UPLOADS
        self.sender = Sender(user_id, self.upload)
        self.most = settings.MAX_UPLOAD_BYTES + FORM_BYTES if self.upload else settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        if max(size, self.received) > self.most:
            self._refuse(self._too_large())
        elif self.upload and self.server.uploading[user_id] >= settings.UPLOADS_AT_ONCE:
            detail = Sentence(
                "{uploads_at_once} of your uploads are running. Wait until one of them has finished.",
                uploads_at_once=settings.UPLOADS_AT_ONCE,
            )
            self._refuse(ProductError("too_many_uploads", detail, status=429, retry_after=10))
        elif self.upload:
            self.uploader = user_id
            self.server.uploading[user_id] += 1

    def _credential(self) -> tuple[str, str]:
        """Return the bearer token or the session key of the request."""
        _method, path = self.channel.address()
        headers = self.requestHeaders
        token = api_token(path, _last_header(headers, b"authorization"), _last_header(headers, b"x-api-key"))
        if token is not None:
            return token, ""
        return "", parse_cookie(_last_header(self.requestHeaders, b"cookie")).get(settings.SESSION_COOKIE_NAME, "")

    def _view(self) -> str:
        method, path = self.channel.address()
        try:
            return resolve(path).view_name if method == "POST" else ""
        except Resolver404:
            return ""

    def _too_large(self) -> ProductError:
        if self.upload:
            detail = Sentence(
                "A file can have at most {most} MB. Split it and upload the parts.",
                most=round(settings.MAX_UPLOAD_BYTES / 1_000_000),
            )
            return ProductError("file_too_large", detail, status=413)
        detail = Sentence(
            "A request can have at most {most} MB here. Send less at once.",
            most=Decimal(f"{self.most / 1_000_000:.1f}"),
        )
        return ProductError("too_large", detail, status=413)

    def _refuse(self, error: ProductError) -> None:
        self.refused = True
        self.content = BytesIO()
        self.channel.refuse(error)

    def _end_upload(self) -> None:
        if self.uploader is not None:
            self.server.uploading -= Counter([self.uploader])  # removes people without uploads
            self.uploader = None


_Channel: Any = HTTPChannel  # Twisted has types for only a part of it (zope interfaces)


class TimedChannel(_Channel):  # type: ignore[misc]  # has no types
    """A connection with a time limit for a request's whole head, and for every `BODY_BYTES` of its body.

    Twisted restarts its time limit with every byte, so a client that sends one byte a minute would keep a connection
    open forever.
    """

    def connectionMade(self) -> None:
        self.timeOut = HEAD_SECONDS
        self._arrived = 0  # bytes of a body since the time limit was restarted
        self._lingering: Any = None
        self._paused = self._continue_due = self._head_refused = False
        self._drained: asyncio.Future[None] | None = None  # set while the client must read first
        self._unread: Any = None
        if isinstance(self.transport, tcp.Server) and self.transport.getHandle().family != socket.AF_UNIX:
            self.transport.getHandle().setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        super().connectionMade()

    def dataReceived(self, data: bytes) -> None:
        if self._head_refused:
            return
        LineReceiver.dataReceived(self, data)  # type: ignore[no-untyped-call]  # HTTPChannel would restart the time limit

    def lineReceived(self, line: bytes) -> None:
        if self._receivedHeaderSize + len(line) > self.totalHeadersSize:
            self._refuse_long_head(line)
        else:
            super().lineReceived(line)

    def lineLengthExceeded(self, line: bytes) -> None:
        self._refuse_long_head(line)

    def headerReceived(self, line: bytes) -> bool:
        if self._receivedHeaderCount >= self.maxHeaders:
            self._refuse_headers()
            return False
        return bool(super().headerReceived(line))

    def _refuse_long_head(self, line: bytes) -> None:
        """Refuse a head that became too long with `line`, and name the longest part of the head."""
        first = line if not self.requests else self._first_line()
        if len(first) <= self.totalHeadersSize // 2:
            self._refuse_headers()
            return
        detail = Sentence(
            "The address is too long. Address and headers may have {totalheaderssize} bytes together. Shorten it.",
            totalheaderssize=self.totalHeadersSize,
        )
        self._refuse_head(ProductError("address_too_long", detail, status=414), first)

    def _refuse_headers(self) -> None:
        detail = Sentence(
            "The headers are too long. A request may have {maxheaders} headers, and {totalheaderssize} bytes with its"
            " address. Delete this site's cookies, or send fewer headers.",
            maxheaders=self.maxHeaders,
            totalheaderssize=self.totalHeadersSize,
        )
        self._refuse_head(ProductError("headers_too_long", detail, status=431), self._first_line())

    def _respondToBadRequestAndDisconnect(self) -> None:
        """Answer with a sentence. Twisted's own answer has no text."""
        detail = Sentence("This is not a valid HTTP request. Correct the program that sent it.")
        self._refuse_head(ProductError("bad_request", detail, status=400), self._first_line())

    def _first_line(self) -> bytes:
        """Return the request line as far as it has been parsed. It is empty before that."""
        return b" ".join(getattr(self, name, b"") for name in ("_command", "_path"))

    def _refuse_head(self, error: ProductError, first: bytes) -> None:
        """Refuse a request before its head is complete. `first` begins with its method and address."""
        if self._lingering is None:
            words = first[:MAX_SHOWN_LENGTH].split(b" ")
            self._answer(error, _path(words[1] if len(words) > 1 else b""))
        self._head_refused = True
        self.clearLineBuffer()

    def allHeadersReceived(self) -> None:
        super().allHeadersReceived()
        if self._lingering is None:
            self.setTimeout(BODY_SECONDS)

    def rawDataReceived(self, data: bytes) -> None:
        if not self._handlingRequest:
            self._arrived += len(data)
            if self._arrived >= BODY_BYTES:
                self._arrived = 0
                self.resetTimeout()
        super().rawDataReceived(data)

    def pauseProducing(self) -> None:
        """Stop writing until the client has read, and abort the connection after `UNREAD_SECONDS`."""
        super().pauseProducing()
        if self._drained is None:
            self._drained = asyncio.get_running_loop().create_future()
            self._unread = self.callLater(UNREAD_SECONDS, self.transport.abortConnection)

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self._set_drained()

    @property
    def stalled(self) -> bool:
        """Return whether writing waits until the client has read."""
        return self._drained is not None

    def abort(self) -> None:
        self.transport.abortConnection()

    async def drained(self) -> None:
        """Wait until the client has read the buffer, or has left."""
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def _set_drained(self) -> None:
        if self._drained is not None:
            if self._unread.active():
                self._unread.cancel()
            self._drained.set_result(None)
            self._drained = None

    def requestDone(self, request: WebRequest) -> None:
        self._savedTimeOut = KEEP_ALIVE_SECONDS
        super().requestDone(request)

    def timeoutConnection(self) -> None:
        if self.requests:
            detail = Sentence("The request did not arrive in time. Send it again, faster or in smaller parts.")
            self.refuse(ProductError("too_slow", detail, status=408))
        self.transport.loseConnection()

    def connectionLost(self, reason: Any = connectionDone) -> None:
        super().connectionLost(reason)
        self._set_drained()
        if self._lingering and self._lingering.active():
            self._lingering.cancel()

    def close_after_request(self) -> None:
        """Accept no further request after the current one."""
        if self.requests:
            self.persistent = False
        else:
            self.transport.loseConnection()

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`. A client that waits for `100 Continue` gets it only then."""
        self._paused = True
        self._networkProducer.pauseProducing()

    def resume_reading(self) -> None:
        self._paused = False
        self._networkProducer.resumeProducing()
        if self._continue_due:
            self._send100Continue()

    def address(self) -> tuple[str, str]:
        """Return method and path of the request whose body is arriving."""
        return self._command.decode("latin-1"), _path(self._path)

    def refuse(self, error: ProductError) -> None:
        """Answer at once, and end the connection after `LINGER_SECONDS`. Bytes that arrive in this time are dropped.

        A client that is cut off while it sends does not read the answer.
        """
        self._answer(error, self.address()[1])

    def _answer(self, error: ProductError, path: str) -> None:
        self.setTimeout(None)
        self.transport.write(_raw_response(path, error))
        self._lingering = self.callLater(LINGER_SECONDS, self.transport.abortConnection)

    def _send100Continue(self) -> None:
        self._continue_due = self._paused
        if self._lingering is None and not self._paused:
            super()._send100Continue()


class LimitedFactory(HTTPFactory):  # type: ignore[misc]  # has no types
    protocol = TimedChannel

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.channels: WeakSet[Any] = WeakSet()
        self.unread = UnreadBytes()

    def buildProtocol(self, addr: IAddress) -> Protocol:
        channel: Any = super().buildProtocol(addr)
        channel.requestFactory = LimitedRequest
        self.channels.add(channel)
        return channel  # type: ignore[no-any-return]  # as above


class LimitedServer(Server):  # type: ignore[misc]  # has no types
    """daphne's server with our factory. `Server.run` sets a factory of its own, which the setter replaces."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.uploading: Counter[UUID] = Counter()  # uploads that are arriving at this process, by person
        self._ports: list[Any] = []  # ports that it listens on
        self._ending: asyncio.TimerHandle | None = None  # set while too much waits for clients to read it

    @property
    def http_factory(self) -> HTTPFactory:
        return self._factory

    @http_factory.setter
    def http_factory(self, _factory: HTTPFactory) -> None:
        self._factory = LimitedFactory(self)

    def listen_success(self, port: Any) -> None:
        self._ports.append(port)
        super().listen_success(port)

    def kill_all_applications(self) -> Any:
        """Drain the server at the end of the process. Twisted waits for the returned object."""
        return Deferred.fromFuture(asyncio.ensure_future(self._drain()))

    async def _drain(self) -> None:
        """Accept no further requests, and end the current ones.

        Sockets and resumable streams end at once, so that their clients reconnect to another process. Other
        answers have `DRAIN_SECONDS`.
        """
        for port in self._ports:
            port.stopListening()  # the sockets are closed a moment later; no need to wait
        for channel in list(self._factory.channels):
            channel.close_after_request()
        for protocol in list(self.connections):
            if not isinstance(protocol, LimitedRequest):
                protocol.sendCloseFrame(code=SERVICE_RESTART, isReply=False)
            elif protocol.resumable:
                protocol.end_stream()
        clock = asyncio.get_running_loop().time
        until = clock() + settings.DRAIN_SECONDS
        while (left := self._running_applications()) and clock() < until:
            # More may still begin: requests that were read already.
            await asyncio.wait(left, timeout=min(1.0, until - clock()))
        for each in left:
            each.cancel()
        if left:  # a hanging thread cannot be ended
            await asyncio.wait(left, timeout=CANCEL_SECONDS)

    def _running_applications(self) -> "list[asyncio.Future[Any]]":
        running = (details.get("application_instance") for details in self.connections.values())
        return [each for each in running if each is not None and not each.done()]

    async def handle_reply(self, protocol: Any, message: AsgiMessage) -> None:
        """Write a message of the application piece by piece.

        Each piece waits until the client has read the previous piece. Messages to a socket that is closing are dropped.
        """
        channel = getattr(protocol, "channel", None)
        if not isinstance(channel, TimedChannel):
            with suppress(Disconnected), log_context(getattr(protocol, "log_fields", {})):
                await super().handle_reply(protocol, message)
            return
        body = message.get("body", b"")
        more = message.get("more_body", False)
        if message["type"] != "http.response.body" or len(body) <= PIECE_BYTES:
            await self._wait_for_client(protocol, channel, len(body))
            with log_context(protocol.log_fields):
                await super().handle_reply(protocol, message)
            return
        for start in range(0, len(body), PIECE_BYTES):
            await self._wait_for_client(protocol, channel, len(body) - start)
            if protocol.channel is None:
                return  # the client has left
            last = start + PIECE_BYTES >= len(body)
            piece = {**message, "body": body[start : start + PIECE_BYTES], "more_body": more or not last}
            with log_context(protocol.log_fields):
                await super().handle_reply(protocol, piece)

    async def _wait_for_client(self, protocol: "LimitedRequest", channel: TimedChannel, size: int) -> None:
        """Wait until the client has read its buffer, while `size` bytes wait in memory."""
        if not channel.stalled:
            return
        unread: UnreadBytes = self._factory.unread
        loop = asyncio.get_running_loop()
        unread.add(channel, address=protocol.address(), size=size, now=loop.time())
        if unread.over and self._ending is None:
            self._ending = loop.call_later(UNREAD_GRACE, self._end_some)
        try:
            await channel.drained()
        finally:
            unread.remove(channel)

    def _end_some(self) -> None:
        """End connections whose clients read nothing. Repeats every `CHECK_INTERVAL` seconds while too much waits."""
        unread: UnreadBytes = self._factory.unread
        loop = asyncio.get_running_loop()
        if ended := unread.end_some(loop.time()):
            logger.warning("%d connections were ended, since their clients did not read their answers", ended)
        self._ending = loop.call_later(CHECK_INTERVAL, self._end_some) if unread.over else None

    def create_application(self, protocol: Any, scope: AsgiScope) -> Any:
        if isinstance(protocol, LimitedRequest):
            scope["body"] = protocol.body
            scope["sender"] = protocol.sender
            scope[LOG_FIELDS] = protocol.log_fields
        return super().create_application(protocol, scope)

    def log_action(self, protocol: str, action: str, details: Mapping[str, Any]) -> None:
        """Write a line of the access log, except for successful health checks, since proxies send them every second."""
        path = details["path"]
        address = path.decode(errors="replace") if isinstance(path, bytes) else path
        if address in MONITORING_PATHS and details.get("status") == HTTPStatus.OK:
            return
        fields = {**details, "path": without_secrets(address)}
        if settings.LOG_FORMAT != "json":
            super().log_action(protocol, action, fields)
        elif self.action_logger:
            seconds = fields.pop("time_taken", None)
            if seconds is not None:
                fields["seconds"] = round(seconds, 4)
            access.info("%s %s", protocol, action, extra={"fields": fields})


class CommandLine(CommandLineInterface):  # type: ignore[misc]  # has no types
    """daphne's command line with our server."""

    server_class = LimitedServer

    def load_asgi_app(self, asgi_app_path: str) -> App:
        application = super().load_asgi_app(asgi_app_path)
        embed_in_workers()
        memory.watch()
        return with_body_pieces(application)


def with_body_pieces(application: App) -> App:
    """Wrap the application, so that it gets a request body piece by piece. A large body first waits for its turn."""
    turns = LargeBodies()

    async def app(scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        body = scope.pop("body", None)
        sender = scope.pop("sender", None)
        if body is None:
            await application(scope, receive, send)
            return
        with closing(body):
            size = body.seek(0, SEEK_END)
            body.seek(0)
            pieces = _pieces(body, receive)
            if size < LARGE_BODY or sender is None or sender.upload:
                await application(scope, pieces, send)
            else:
                await _run_in_turn(turns, application, scope, pieces, send, sender.person)
        if size >= LARGE_BODY:
            await asyncio.to_thread(memory.note_released, size)

    return app


async def _run_in_turn(
    turns: LargeBodies, application: App, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend, person: UUID
) -> None:
    """Run the application when it is the turn of the person's body. Answers with `busy` if it must wait too long."""
    try:
        async with turns.turn(person) as turn:

            async def answer(message: AsgiMessage) -> None:
                turn.end()
                await send(message)

            scope[SLOT_RELEASE] = turn.end
            # Views wait on threads; the turns belong to the event loop.
            with before_waits(partial(asyncio.get_running_loop().call_soon_threadsafe, turn.leave)):
                await application(scope, receive, answer)
    except ProductError as error:
        response = _error_response(scope["path"], error)
        headers = [(name.lower().encode(), value.encode()) for name, value in response.items()]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": response.content})


def _pieces(body: BinaryIO, receive: AsgiReceive) -> AsgiReceive:
    """Return a function that returns the messages of a body, and then the messages from `receive`."""
    more = True

    async def piece() -> AsgiMessage:
        nonlocal more
        if more:
            data = body.read(PIECE_BYTES)
            more = len(data) == PIECE_BYTES
            await asyncio.sleep(0)  # lets other requests run while a large body is copied
            return {"type": "http.request", "body": data, "more_body": more}
        message = await receive()
        return await receive() if message["type"] == "http.request" else message  # the first is daphne's empty body

    return piece


def _raw_response(path: str, error: ProductError) -> bytes:
    response = _error_response(path, error)
    response["Connection"] = "close"
    lines = [f"HTTP/1.1 {response.status_code} {response.reason_phrase}"]
    lines += [f"{name}: {value}" for name, value in response.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + response.content


def _error_response(path: str, error: ProductError) -> HttpResponse:
    request = HttpRequest()
    request.path = path
    request.request_id = uuid4().hex  # type: ignore[attr-defined]  # for the log
    logger.warning("%s refused: %s", request.request_id, error.code)  # type: ignore[attr-defined]  # for the log
    if problems.is_api(path):
        response: HttpResponse = problems.json_problem(request, error)
    else:
        context = {"code": error.code, "detail": error.sentence}
        response = HttpResponse(render_to_string("ui/_problem.html", context), status=error.status)
    response["Content-Length"] = str(len(response.content))
    response["X-Request-ID"] = request.request_id  # type: ignore[attr-defined]  # for the log
    return response


def _path(address: bytes) -> str:
    return unquote(address.partition(b"?")[0].decode("latin-1"))


def _last_header(headers: Headers, name: bytes) -> str:
    return (headers.getRawHeaders(name) or [b""])[-1].decode("latin-1")
