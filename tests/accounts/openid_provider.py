"""An OpenID provider for tests, as strict as real ones.

It has discovery over real HTTP, rotating keys, PKCE and claims of groups. A test can make its tokens wrong."""

import base64
import hmac
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from joserfc.jws import JWSRegistry

CLIENT, SECRET = "glasshouse", "client-secret-that-nobody-may-see: %&+"
LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
_RSA = [RSAKey.generate_key(2048, {"kid": f"rsa-{number}", "use": "sig"}) for number in range(2)]
_EC = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"})


@dataclass
class Provider:
    """The provider's state.

    `person`: the claims of the person signed in there. `wrong`: claims that replace right ones in the next tokens;
    None leaves a claim out. `header`, `key`: used to sign. `secret`: used instead of `key`; empty means no signature.
    `redirects`: the registered addresses."""

    issuer: str
    person: dict[str, Any] = field(default_factory=lambda: {"sub": "248289761001"})
    wrong: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=lambda: {"alg": "RS256"})
    secret: bytes | None = None
    key: Any = field(default_factory=lambda: _RSA[0])
    keys: list[Any] = field(default_factory=lambda: [_RSA[0], _EC])
    redirects: set[str] = field(default_factory=set)
    document: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def rotate(self) -> None:
        """Replace the key for signatures. The old one is no longer published."""
        self.key = _RSA[1] if self.key is _RSA[0] else _RSA[0]
        self.keys = [self.key]

    def sign_in(self, address: str) -> str:
        """Sign the person in at the address of their browser. Return the address to which it is sent back."""
        assert address.startswith(f"{self.issuer}/authorize?"), address
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["client_id"] == CLIENT and query["response_type"] == "code"
        assert query["redirect_uri"] in self.redirects, query["redirect_uri"]
        assert "openid" in query["scope"].split() and query["code_challenge_method"] == "S256"
        assert all(len(query[name]) >= 20 for name in ("state", "nonce", "code_challenge"))
        code = secrets.token_urlsafe()
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'iss': self.issuer})}"

    def signed(self, claims: dict[str, Any]) -> str:
        """A token; the claims that are `wrong` are put in the place of the right ones, once."""
        now = int(time.time())
        whole = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, **claims, **self.wrong}
        self.wrong = {}
        body = {name: value for name, value in whole.items() if value is not None}
        header = {"kid": self.key.kid, **self.header}
        if self.secret is not None:
            text = ".".join(_plain(json.dumps(each).encode()) for each in (header, body))
            signature = hmac.digest(self.secret, text.encode(), "sha256") if self.secret else b""
            return f"{text}.{_plain(signature)}"
        return str(jwt.encode(header, body, self.key, registry=JWSRegistry(algorithms=[header["alg"]])))

    def logout_token(self, **claims: Any) -> str:
        return self.signed({"jti": secrets.token_hex(8), "events": {LOGOUT: {}}, **claims})

    def answer(self, method: str, path: str, headers: Any, body: str) -> tuple[int, dict[str, Any]]:
        self.requests.append(path)
        if path == "/.well-known/openid-configuration":
            return 200, self._document()
        if path == "/keys":
            return 200, dict(KeySet(self.keys).as_dict(private=False))
        if path == "/token" and method == "POST":
            return self._token(headers, {name: values[0] for name, values in parse_qs(body).items()})
        if path == "/userinfo" and headers.get("Authorization") == "Bearer access":
            return 200, {"sub": self.person["sub"], **self.userinfo}
        return 404, {"error": "not_found"}

    def _document(self) -> dict[str, Any]:
        places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "userinfo_endpoint": "userinfo"}
        return {
            "issuer": self.issuer,
            **{name: f"{self.issuer}/{place}" for name, place in places.items()},
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["RS256", "ES256", "HS256", "none"],
            "code_challenge_methods_supported": ["S256"],
            **self.document,
        }

    def _token(self, headers: Any, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        kind, _, encoded = headers.get("Authorization", "").partition(" ")
        name, _, secret = base64.b64decode(encoded).decode().partition(":") if kind == "Basic" else ("", "", "")
        if (unquote(name), unquote(secret)) != (CLIENT, SECRET):
            return 401, {"error": "invalid_client"}
        sign_in = self.codes.pop(form.get("code", ""), None)  # taken once
        if (
            sign_in is None
            or form.get("grant_type") != "authorization_code"
            or form.get("redirect_uri") != sign_in["redirect_uri"]
            or create_s256_code_challenge(form.get("code_verifier", "")) != sign_in["code_challenge"]
        ):
            return 400, {"error": "invalid_grant"}
        more = {"auth_time": int(time.time())} if "max_age" in sign_in else {}
        token = self.signed({"nonce": sign_in["nonce"], **more, **self.person})
        return 200, {"access_token": "access", "token_type": "Bearer", "expires_in": 300, "id_token": token}


def _plain(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@contextmanager
def providing() -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, answer = provider.answer(self.command, urlsplit(self.path).path, self.headers, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: `requests` has the paths."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = Provider(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
