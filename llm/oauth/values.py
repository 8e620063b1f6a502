"""The values of a sign-in that pass between the protocol and the rows."""

from dataclasses import dataclass
from typing import TypedDict

import httpx2

PRODUCT = "Glasshouse"  # the name of the client that people read when they sign in
GRANTS = ("authorization_code", "refresh_token")
# How the client of a sign-in came about.
BY_HAND = "by_hand"
REGISTERED = "registered"
DOCUMENT = "document"


@dataclass(frozen=True, slots=True)
class SignInTarget:
    """A tool server whose people sign in, as its administrator describes it. Empty fields are to be discovered."""

    name: str
    address: str
    sse: bool = False
    issuer: str = ""
    scope: str = ""
    client_id: str = ""

    @property
    def named_hosts(self) -> frozenset[str]:
        """Return the hosts that the administrator has named. They may be in a private network."""
        return frozenset(httpx2.URL(address).host for address in (self.address, self.issuer) if address)


@dataclass(frozen=True, slots=True)
class SignInDiscovery:
    """The authorization server of a tool server. Endpoints that it does not have are empty.

    `resource`: the tool server's own name for itself (RFC 8707). `scope`: what to ask for. `auth_methods`: how clients
    may authenticate at the token endpoint. `documents`: a client may name itself by the address of its document.
    `sources`: the addresses from which this was read.
    """

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    resource: str = ""
    scope: str = ""
    auth_methods: tuple[str, ...] = ()
    documents: bool = False
    iss_required: bool = False
    sources: tuple[str, ...] = ()


class ClientDocument(TypedDict):
    """The workspace as a client, in the members of RFC 7591."""

    client_id: str
    client_name: str
    client_uri: str
    redirect_uris: list[str]
    grant_types: list[str]
    response_types: list[str]
    token_endpoint_auth_method: str


class StoredDiscovery(TypedDict):
    """The newest discovery, as an administrator reads it. Stored in `ToolServer.sign_in`. No sign-in relies on it."""

    at: str
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str
    revocation_endpoint: str
    resource: str
    scope: str
    documents: bool
    sources: list[str]


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """The workspace as a client of an authorization server.

    `source`: `BY_HAND`, `REGISTERED` or `DOCUMENT`. `secret_expires`: Unix time; 0 for a secret that does not expire.
    """

    client_id: str
    client_secret: str
    auth_method: str
    source: str
    secret_expires: int = 0


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Names the receiver and the sender of a request about tokens."""

    url: str
    client_id: str
    client_secret: str
    auth_method: str
    resource: str
    named_hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a response. `expires_in`: seconds; None if the server does not say. Empty fields are unchanged."""

    access_token: str
    refresh_token: str = ""
    expires_in: int | None = None
    scope: str = ""


def client_document(*, client_id: str, site: str, redirect_uri: str) -> ClientDocument:
    """Return the document by which a client names itself. `client_id`: the address of the document."""
    return {
        "client_id": client_id,
        "client_name": PRODUCT,
        "client_uri": site,
        "redirect_uris": [redirect_uri],
        "grant_types": list(GRANTS),
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
