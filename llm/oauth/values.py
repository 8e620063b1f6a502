"""Define the values that the protocol of a sign-in and its rows exchange."""

from dataclasses import dataclass
from typing import TypedDict

import httpx2

PRODUCT = "Glasshouse"  # the client's name that people see when they sign in
GRANTS = ("authorization_code", "refresh_token")
# Sources of the client of a sign-in.
BY_HAND = "by_hand"
REGISTERED = "registered"
DOCUMENT = "document"


@dataclass(frozen=True, slots=True)
class SignInTarget:
    """A tool server where people sign in, as its administrator describes it. Empty fields have to be discovered."""

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
    """The authorization server of a tool server. Endpoints that it lacks are empty.

    `resource`: the tool server's identifier (RFC 8707). `scope`: the permissions to ask for. `auth_methods`: ways in
    which clients may authenticate at the token endpoint. `documents`: the address of a document may be a client's ID.
    `iss_required`: answers must name the issuer (RFC 9207). `sources`: the addresses of the documents that were read.
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
    """The description of the workspace as a client, with the members of RFC 7591."""

    client_id: str
    client_name: str
    client_uri: str
    redirect_uris: list[str]
    grant_types: list[str]
    response_types: list[str]
    token_endpoint_auth_method: str


class StoredDiscovery(TypedDict):
    """The newest discovery, stored in `ToolServer.sign_in` for administrators to read. No sign-in uses it."""

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
    """An endpoint for requests about tokens, and the client that sends them."""

    url: str
    client_id: str
    client_secret: str
    auth_method: str
    resource: str
    named_hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a response. `expires_in`: seconds, or None if unknown.

    Empty: the response does not change the field.
    """

    access_token: str
    refresh_token: str = ""
    expires_in: int | None = None
    scope: str = ""


def client_document(*, client_id: str, site: str, redirect_uri: str) -> ClientDocument:
    """Return the document that describes the workspace as a client. `client_id`: the address of the document."""
    return {
        "client_id": client_id,
        "client_name": PRODUCT,
        "client_uri": site,
        "redirect_uris": [redirect_uri],
        "grant_types": list(GRANTS),
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
