"""Check an OpenID provider, for the administrator who sets it up."""

from dataclasses import dataclass

from accounts.models import OpenIDProvider
from accounts.openid import connection
from accounts.openid.tokens import ALGORITHMS
from core.errors import ProductError
from core.sentences import Sentence


@dataclass(frozen=True, slots=True)
class ProviderReport:
    """The result of a check. `lacks`: the provider lacks a claim, so sign-ins may fail."""

    sentence: Sentence
    lacks: bool = False


def read(provider: OpenIDProvider) -> ProviderReport:
    """Fetch the discovery document and the keys again, and check them.

    Raises the errors of `connection.metadata`, and `openid_algorithm` and `openid_keys` (502).
    """
    connection.forget(provider)
    document = connection.metadata(provider)
    keys = len(connection.keys(provider).keys)
    algorithms = document.get("id_token_signing_alg_values_supported") or []
    if isinstance(algorithms, list) and algorithms and not set(ALGORITHMS).intersection(map(str, algorithms)):
        sentence = Sentence(
            ("The provider offers no signature algorithm that Glasshouse accepts. It must offer one of {algorithms}."),
            algorithms=", ".join(ALGORITHMS),
        )
        raise ProductError("openid_algorithm", sentence, status=502)
    if not keys:
        raise ProductError("openid_keys", "The provider answers, but has no keys to sign with yet.", status=502)
    claims = document.get("claims_supported")
    if provider.groups_claim and isinstance(claims, list) and provider.groups_claim not in claims:
        sentence = Sentence(
            "The provider answers. Its list of claims does not include “{groups_claim}”. Check that the claim"
            " is in the ID token or at the userinfo address.",
            groups_claim=provider.groups_claim,
        )
        return ProviderReport(sentence, lacks=True)
    return ProviderReport(Sentence("The provider answers, and its keys can be read."))
