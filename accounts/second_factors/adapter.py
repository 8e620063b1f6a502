"""What django-allauth asks of the product: how secrets are stored, and what the workspace is called."""

from allauth.mfa.adapter import DefaultMFAAdapter

from accounts.models.workspace import workspace_at
from core.crypto import decrypt, encrypt, is_lost
from core.errors import ProductError
from core.sentences import Sentence


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # it has no types
    """Named by `MFA_ADAPTER`."""

    def encrypt(self, text: str) -> str:
        return encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        """Raises `secret_lost` (409): an empty secret would have codes that anybody can work out."""
        secret = decrypt(encrypted_text)
        if is_lost(secret):
            sentence = Sentence(
                "Your second factor cannot be read, since the server's key (SECRET_KEY) is another now. Ask an "
                "administrator to remove it, or to add the old key to ENCRYPTION_KEYS."
            )
            raise ProductError("secret_lost", sentence, status=409)
        return secret

    def _get_site_name(self) -> str:
        return workspace_at().name
