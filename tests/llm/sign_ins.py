"""People who sign in to a tool server."""

from accounts.models import User
from llm.models import ToolGrant, ToolServer
from llm.oauth.grants import AuthorizationAnswer, CompletedSignIn, begin, complete
from tests.llm.oauth_server import OAuthServer

SITE = "http://127.0.0.1:8000"
REDIRECT = f"{SITE}/settings/tools/return/"


def begun(user: User, row: ToolServer, *, document: str = "", session: str = "browser") -> str:
    """Begin a sign-in. Returns the address for the browser."""
    return begin(
        user=user, tool_server=row, redirect_uri=REDIRECT, site=SITE, document=document, session=session
    ).address


def answer_of(oauth: OAuthServer, address: str, account: str) -> AuthorizationAnswer:
    """Sign in at the server's page as this account. Returns the parameters with which the browser comes back."""
    oauth.accounts.person = account
    values = oauth.authorize(address).params
    return AuthorizationAnswer(
        state=values.get("state", ""),
        code=values.get("code", ""),
        iss=values.get("iss"),
        error=values.get("error", ""),
        description=values.get("error_description", ""),
    )


def completed(user: User, answer: AuthorizationAnswer, *, session: str = "browser") -> CompletedSignIn:
    return complete(user=user, answer=answer, session=session)


def signed_in(user: User, row: ToolServer, oauth: OAuthServer, account: str) -> ToolGrant:
    """Sign a person in to a tool server, where they have this account."""
    return completed(user, answer_of(oauth, begun(user, row), account)).grant
