"""What a provider says of itself, for whoever sets it up."""

from dataclasses import dataclass

from accounts.models import OpenIDProvider
from accounts.openid import connection
from accounts.openid.tokens import ALGORITHMS
from core.errors import ProductError
from core.sentences import Sentence


@dataclass(frozen=True, slots=True)
class Found:
    """`lacks`: something without which signing in may fail."""

    sentence: Sentence
    lacks: bool = False


def read(provider: OpenIDProvider) -> Found:
    """Reads discovery document and keys anew. Raises as `connection.metadata`, and `openid_algorithm` (502)."""
    connection.forget(provider)
    known = connection.metadata(provider)
    keys = len(connection.keys(provider).keys)
    signs = known.get("id_token_signing_alg_values_supported") or []
    if isinstance(signs, list) and signs and not set(ALGORITHMS).intersection(map(str, signs)):
        sentence = Sentence(
            "The provider signs in no way that is taken here. It must offer one of {algorithms}.",
            algorithms=", ".join(ALGORITHMS),
        )
        raise ProductError("openid_algorithm", sentence, status=502)
    if not keys:
        raise ProductError("openid_keys", "The provider answers, and has no keys to sign with yet.", status=502)
    claims = known.get("claims_supported")
    if provider.groups_claim and isinstance(claims, list) and provider.groups_claim not in claims:
        sentence = Sentence(
            "The provider answers. It does not name the claim “{groups_claim}” among those that it gives: "
            "see that it is in the ID token or at the userinfo address.",
            groups_claim=provider.groups_claim,
        )
        return Found(sentence, lacks=True)
    return Found(Sentence("The provider answers, and its keys can be read."))
