"""A passkey made and used in the test's process, as a browser and its device do it (WebAuthn 2, attestation “none”)."""

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import uuid4

from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData

from accounts.models import User

HOST = "testserver"
PRESENT_AND_VERIFIED = AuthenticatorData.FLAG.UP | AuthenticatorData.FLAG.UV


@dataclass(frozen=True, slots=True)
class Passkey:
    """A passkey: the private key, and the ids that the device stores with it."""

    key: ec.EllipticCurvePrivateKey
    handle: str
    ident: bytes

    @classmethod
    def for_person(cls, person: User) -> "Passkey":
        return cls(ec.generate_private_key(ec.SECP256R1()), user_pk_to_url_str(person), uuid4().bytes)

    def create(self, challenge: str) -> str:
        """The answer of a browser at https://testserver that has made this passkey for the challenge, as JSON."""
        coded: Any = ES256.from_cryptography_key(self.key.public_key())  # type: ignore[no-untyped-call]
        public = AttestedCredentialData.create(bytes(16), self.ident, coded)
        flags = PRESENT_AND_VERIFIED | AuthenticatorData.FLAG.AT
        data = AuthenticatorData.create(sha256(HOST.encode()).digest(), flags, 0, bytes(public))
        answer = {
            "clientDataJSON": _client("webauthn.create", challenge),
            "attestationObject": bytes(AttestationObject.create("none", data, {})),
        }
        return json.dumps(_credential(self.ident, answer))

    def signed(self, challenge: str) -> str:
        """The answer of a browser at https://testserver to this challenge, as JSON."""
        client = _client("webauthn.get", challenge)
        data = AuthenticatorData.create(sha256(HOST.encode()).digest(), PRESENT_AND_VERIFIED, 1)
        signature = self.key.sign(data + sha256(client).digest(), ec.ECDSA(SHA256()))
        answer = {"clientDataJSON": client, "authenticatorData": data, "signature": signature}
        return json.dumps(_credential(self.ident, {**answer, "userHandle": self.handle.encode()}))


def with_passkey(person: User) -> Passkey:
    """Stores a passkey of the person's, made just now."""
    passkey = Passkey.for_person(person)
    stored = {"name": "Passkey", "credential": json.loads(passkey.create(websafe_encode(b"challenge")))}
    Authenticator.objects.create(user=person, type="webauthn", data=stored)
    return passkey


def _client(kind: str, challenge: str) -> bytes:
    return json.dumps({"type": kind, "challenge": challenge, "origin": f"https://{HOST}"}).encode()


def _credential(ident: bytes, response: dict[str, bytes]) -> dict[str, Any]:
    name = websafe_encode(ident)
    encoded = {field: websafe_encode(value) for field, value in response.items()}
    return {"id": name, "rawId": name, "type": "public-key", "response": encoded, "clientExtensionResults": {}}
