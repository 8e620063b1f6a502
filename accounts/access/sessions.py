"""Sessions in the database, as Django keeps them, that know whose they are: so one can see and end one's own.

Named by `SESSION_ENGINE`. A page shows a session under the hash of its key: the key itself would sign anybody in.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
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
GRAIN = 300  # seconds; one write in so many, not one a request
VISIT = "visit"  # in the session: {"began", "seen": seconds since 1970, "agent": the browser's User-Agent}
LONGEST_AGENT = 300
TOLD_WITHIN = 2.0  # seconds that Redis has to hand on what pages are told
# The first that a User-Agent holds; many browsers also name those after them.
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
    """For type checkers: the request of a view behind `login_required`."""

    user: User
    htmx: HtmxDetails
    csp_nonce: object  # of its content security policy


class SessionStore(db.SessionStore[Session]):
    """`workspace_version`: of when the session was read (`workspace.services`); None where there was none to read."""

    workspace_version: UUID | None = None

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def _get_session_from_db(self) -> Session | None:
        row: Session | None = super()._get_session_from_db()  # type: ignore[misc]  # the stubs leave it out
        return self._noted(row)

    async def _aget_session_from_db(self) -> Session | None:
        row: Session | None = await super()._aget_session_from_db()  # type: ignore[misc]  # as above
        return self._noted(row)

    def _noted(self, row: Session | None) -> Session | None:
        self.workspace_version = getattr(row, "workspace_version", None)
        return row

    def get_session_cookie_age(self) -> int:
        return workspace_at(self.workspace_version).session_days * DAY

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        return self._ending(super().create_model_instance(data), data)

    def _ending(self, row: Session, data: dict[str, Any]) -> Session:
        """Without use it ends as its cookie does; used or not, so many days after the sign-in."""
        row.user_id = data.get(SESSION_KEY)
        began = (data.get(VISIT) or {}).get("began")
        if began is not None:
            most = timedelta(days=workspace_at(self.workspace_version).session_most_days)
            row.expire_date = min(row.expire_date, datetime.fromtimestamp(began, UTC) + most)
        return row

    def delete(self, session_key: str | None = None) -> None:
        """Signing out, and any other end: what the session has open ends with it."""
        key = session_key or self.session_key
        super().delete(session_key)
        if key:
            transaction.on_commit(partial(cut_off, [key]))

    async def acreate_model_instance(self, data: dict[str, Any]) -> Session:
        return self._ending(await super().acreate_model_instance(data), data)


def note_visit(session: SessionBase, agent: str) -> None:
    """Writes down when the session was last used and by which browser, when that has changed."""
    now, before = int(timezone.now().timestamp()), session.get(VISIT) or {}
    agent = agent[:LONGEST_AGENT]
    if now - before.get("seen", 0) > GRAIN or before.get("agent") != agent:
        session[VISIT] = {"began": before.get("began", now), "seen": now, "agent": agent}


def public_name(session_key: str) -> str:
    return hashlib.sha256(session_key.encode()).hexdigest()[:32]


def group_of(session_key: str) -> str:
    """The channel group of a session's open sockets."""
    return f"session.{public_name(session_key)}"


def group_of_token(token_id: UUID) -> str:
    """The channel group of the sockets that programs have opened with a token."""
    return f"token.{token_id}"


def cut_off(session_keys: Iterable[str]) -> None:
    """Closes the sockets that ended sessions have open. With Redis away they get no events either."""
    for key in session_keys:
        close_sockets(group_of(key))


def end_sessions(*, user: User, but: str | None = None) -> None:
    """`but` is the key of the session to keep. Within a transaction."""
    end(Session.objects.filter(user=user).exclude(session_key=but))


def end(sessions: Iterable[Session]) -> None:
    keys = [row.session_key for row in sessions]
    Session.objects.filter(session_key__in=keys).delete()
    transaction.on_commit(partial(cut_off, keys))


def close_sockets(group: str) -> None:
    with suppress(RedisError, OSError):
        async_to_sync(_tell_ended)(group)


async def _tell_ended(group: str) -> None:
    async with asyncio.timeout(TOLD_WITHIN):
        await channel_layers["default"].group_send(group, {"type": "session.ended"})


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session as its owner sees it; times are None until its first request."""

    name: str
    browser: str
    system: str
    began: datetime | None
    seen: datetime | None
    here: bool


def sessions_of(user: User, current: str | None) -> list[SignedIn]:
    """Those that still sign the person in, `current` first, then the last used; a new password has ended the others."""
    found = [_signed_in(row, visit, current) for row, visit in _usable(user)]
    return sorted(found, key=lambda each: (each.here, each.seen.timestamp() if each.seen else 0), reverse=True)


def _usable(user: User) -> Iterator[tuple[Session, dict[str, Any]]]:
    for row in Session.objects.visible_to(user):
        data = SessionStore().decode(row.session_data)
        if data.get(HASH_SESSION_KEY) == user.get_session_auth_hash():
            yield row, data.get(VISIT) or {}


def _signed_in(row: Session, visit: dict[str, Any], current: str | None) -> SignedIn:
    agent = visit.get("agent", "")
    began, seen = (datetime.fromtimestamp(visit[name], UTC) if name in visit else None for name in ("began", "seen"))
    return SignedIn(
        name=public_name(row.session_key),
        browser=next((name for mark, name in BROWSERS.items() if mark in agent), ""),
        system=next((name for mark, name in SYSTEMS.items() if mark in agent), ""),
        began=began,
        seen=seen,
        here=row.session_key == current,
    )
