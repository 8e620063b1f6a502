"""Store Django's sessions in the database with their users, so that people can see and end their own sessions.

`SESSION_ENGINE` names this module. A page identifies a session by the hash of its key, since the key itself would sign
anybody in.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypedDict, cast
from uuid import UUID

from asgiref.sync import async_to_sync
from channels.layers import channel_layers
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends import db
from django.contrib.sessions.backends.base import SessionBase
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from django_htmx.middleware import HtmxDetails
from redis.exceptions import RedisError

from accounts.models import Session, User
from workspace.models.settings import workspace_at

DAY = 86_400  # seconds
VISIT_INTERVAL = 300  # seconds between two writes of a visit, since not every request should write
VISIT = "visit"  # the key of a `Visit` in the session
MAX_AGENT_LENGTH = 300
PUBLISH_TIMEOUT = 2.0  # seconds that Redis may take to pass a message on to pages
# Browsers by a mark in their User-Agent. The first match counts: many browsers also send the marks of later entries.
BROWSERS = {"Edg": "Edge", "OPR/": "Opera", "Firefox/": "Firefox", "Chrome/": "Chrome", "Safari/": "Safari"}
SYSTEMS = {
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Android": "Android",
    "Windows": "Windows",
    "Mac OS": "macOS",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}


class SignedInRequest(HttpRequest):
    """The request of a view behind `login_required`, for type checkers."""

    user: User
    htmx: HtmxDetails
    csp_nonce: object  # nonce of its content security policy


class Visit(TypedDict, total=False):
    """The use of a session: its first and last request in Unix time, and the browser's User-Agent."""

    began: int
    seen: int
    agent: str


class SessionStore(db.SessionStore[Session]):
    """Sessions with their users.

    `workspace_version` is the version of the workspace (`workspace.models.version`) when the session was read, or None.
    """

    workspace_version: UUID | None = None

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def _get_session_from_db(self) -> Session | None:
        row: Session | None = super()._get_session_from_db()  # type: ignore[misc]  # the stubs leave it out
        self.workspace_version = getattr(row, "workspace_version", None)
        return row

    async def _aget_session_from_db(self) -> Session | None:
        row: Session | None = await super()._aget_session_from_db()  # type: ignore[misc]  # as above
        self.workspace_version = getattr(row, "workspace_version", None)
        return row

    def get_session_cookie_age(self) -> int:
        return workspace_at(self.workspace_version).session_days * DAY

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        return self._with_end(super().create_model_instance(data), data)

    def _with_end(self, row: Session, data: Mapping[str, Any]) -> Session:
        """Set the user and the expiry: that of the cookie, but at most `session_most_days` after the sign-in."""
        row.user_id = data.get(SESSION_KEY)
        began = (data.get(VISIT) or {}).get("began")
        if began is not None:
            max_age = timedelta(days=workspace_at(self.workspace_version).session_most_days)
            row.expire_date = min(row.expire_date, datetime.fromtimestamp(began, UTC) + max_age)
        return row

    def delete(self, session_key: str | None = None) -> None:
        """Delete a session and close its sockets."""
        key = session_key or self.session_key
        super().delete(session_key)
        if key:
            transaction.on_commit(partial(close_session_sockets, [key]))

    async def acreate_model_instance(self, data: dict[str, Any]) -> Session:
        return self._with_end(await super().acreate_model_instance(data), data)


def note_visit(session: SessionBase, agent: str) -> None:
    """Store the time of the visit and the browser in the session, at most every `VISIT_INTERVAL` for a browser."""
    now = int(timezone.now().timestamp())
    previous = _visit_of(session)
    agent = agent[:MAX_AGENT_LENGTH]
    if now - previous.get("seen", 0) > VISIT_INTERVAL or previous.get("agent") != agent:
        visit: Visit = {"began": previous.get("began", now), "seen": now, "agent": agent}
        session[VISIT] = visit


def _visit_of(session: SessionBase | Mapping[str, Any]) -> Visit:
    return cast("Visit", session.get(VISIT) or {})  # a session holds JSON


def public_name(session_key: str) -> str:
    return hashlib.sha256(session_key.encode()).hexdigest()[:32]


def session_group(session_key: str) -> str:
    """Return the channel group of a session's open sockets."""
    return f"session.{public_name(session_key)}"


def token_group(token_id: UUID) -> str:
    """Return the channel group of the sockets that programs have opened with a token."""
    return f"token.{token_id}"


def close_session_sockets(session_keys: Iterable[str]) -> None:
    """Close the sockets of ended sessions. While Redis is down they stay open, but receive no events."""
    for key in session_keys:
        close_sockets(session_group(key))


def end_sessions(*, user: User, but: str | None = None) -> None:
    """End a user's sessions. `but` is the key of the session to keep. Call it within a transaction."""
    end(Session.objects.filter(user=user).exclude(session_key=but))


def end(sessions: Iterable[Session]) -> None:
    """End these sessions, and close their sockets on commit. Call it within a transaction."""
    keys = [row.session_key for row in sessions]
    Session.objects.filter(session_key__in=keys).delete()
    transaction.on_commit(partial(close_session_sockets, keys))


def close_sockets(group: str) -> None:
    with suppress(RedisError, OSError):
        async_to_sync(_publish_end)(group)


async def _publish_end(group: str) -> None:
    async with asyncio.timeout(PUBLISH_TIMEOUT):
        await channel_layers["default"].group_send(group, {"type": "session.ended"})


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A session as its owner sees it; times are None until its first request."""

    name: str
    browser: str
    system: str
    began: datetime | None
    seen: datetime | None
    here: bool


def sessions_of(user: User, current: str | None) -> list[BrowserSession]:
    """Return the user's valid sessions: `current` first, then the most recently used.

    Sessions from before the last change of the password are not valid.
    """
    sessions = [_browser_session(row, visit, current) for row, visit in _usable(user)]
    return sorted(sessions, key=lambda entry: (entry.here, entry.seen.timestamp() if entry.seen else 0), reverse=True)


def _usable(user: User) -> Iterator[tuple[Session, Visit]]:
    for row in Session.objects.visible_to(user):
        data = SessionStore().decode(row.session_data)
        if data.get(HASH_SESSION_KEY) == user.get_session_auth_hash():
            yield row, _visit_of(data)


def _browser_session(row: Session, visit: Visit, current: str | None) -> BrowserSession:
    agent = visit.get("agent", "")
    return BrowserSession(
        name=public_name(row.session_key),
        browser=next((name for mark, name in BROWSERS.items() if mark in agent), ""),
        system=next((name for mark, name in SYSTEMS.items() if mark in agent), ""),
        began=_to_datetime(visit.get("began")),
        seen=_to_datetime(visit.get("seen")),
        here=row.session_key == current,
    )


def _to_datetime(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
