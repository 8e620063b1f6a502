"""The tool servers to which a person signs in: the list of them, and the beginning and end of a sign-in."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from django.urls import reverse

from accounts.access.rights import rights_of
from accounts.models import User
from core.errors import NotFound
from core.net.addresses import host_of
from llm.models import ToolGrant, ToolServer
from llm.oauth import grants
from llm.oauth.bearer import matches_server
from llm.oauth.grants import AuthorizationAnswer, CompletedSignIn, StartedSignIn

CLIENT_DOCUMENT = "oauth-client"  # the names of addresses
RETURN_PAGE = "settings:tools-return"


class ConnectionState(StrEnum):
    """Whether a person is signed in to a tool server. `MORE`: signed in, and it has refused a call for its scope."""

    NONE = "none"
    CONNECTED = "connected"
    MORE = "more"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ToolConnection:
    """A tool server to which a person signs in, or has signed in. `offered`: the person may sign in to it now."""

    server: ToolServer
    grant: ToolGrant | None
    offered: bool

    @property
    def host(self) -> str:
        return host_of(self.server.base_url)

    @property
    def state(self) -> ConnectionState:
        if self.grant is None:
            return ConnectionState.NONE
        if not (self.grant.usable and matches_server(self.grant)):
            return ConnectionState.ENDED
        return ConnectionState.MORE if self.grant.missing_scope else ConnectionState.CONNECTED


def connections(user: User) -> list[ToolConnection]:
    """Return the tool servers to which the user may sign in, and those to which a grant is left, by name."""
    by_server = grants.load_grants(user.pk).grants
    offered = {row.pk: row for row in _offered(user)}
    rows = {**{pk: grant.tool_server for pk, grant in by_server.items()}, **offered}
    listed = [ToolConnection(row, by_server.get(pk), pk in offered) for pk, row in rows.items()]
    return sorted(listed, key=lambda each: each.server.name)


def connection(user: User, pk: UUID) -> ToolConnection:
    """Return one of the connections of the user. Raises `NotFound`."""
    for each in connections(user):
        if each.server.pk == pk:
            return each
    raise NotFound("tool server")


def missing_sign_ins(user: User, names: Collection[str]) -> list[ToolServer]:
    """Return those of the named tool servers to which the user can sign in, and is not signed in now."""
    if not names:
        return []
    return [
        each.server
        for each in connections(user)
        if each.server.name in names and each.offered and each.state in (ConnectionState.NONE, ConnectionState.ENDED)
    ]


def begin_sign_in(*, user: User, server: ToolServer, site: str, session: str = "", then: str = "") -> StartedSignIn:
    """Begin a sign-in. Raises the errors of `grants.begin`.

    `site`: the origin at which people use this site. `session`: the key of the browser's session. `then`: the page to
    open afterwards.
    """
    return grants.begin(
        user=user,
        tool_server=server,
        redirect_uri=redirect_uri(site),
        site=site,
        # Authorization servers read the document over https only.
        document=f"{site}{reverse(CLIENT_DOCUMENT)}" if site.startswith("https://") else "",
        session=session,
        then=then,
    )


def complete_sign_in(*, user: User, answer: AuthorizationAnswer, session: str) -> CompletedSignIn:
    """Complete a sign-in. Raises the errors of `grants.complete`."""
    return grants.complete(user=user, answer=answer, session=session)


def disconnect(*, user: User, grant: ToolGrant) -> bool:
    """End a grant of the user. Return whether its server has ended the tokens, too."""
    return grants.disconnect(user=user, grant=grant)


def redirect_uri(site: str) -> str:
    """Return the address to which authorization servers send browsers back."""
    return f"{site}{reverse(RETURN_PAGE)}"


def _offered(user: User) -> list[ToolServer]:
    rights = rights_of(user)
    rows = ToolServer.objects.filter(enabled=True, access=ToolServer.Access.PERSON)
    return [row for row in rows if rights.uses_server(row.name)]
