"""Define the failures of sign-ins at tool servers."""

from core.errors import ProductError
from core.sentences import Sentence


class SignInRequired(Exception):
    """A person must sign in at a tool server before a request can be sent there.

    People and models read the sentence.
    """

    def __init__(self, sentence: Sentence) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence


class SignInUnavailable(Exception):
    """The tokens of a person cannot be refreshed at the moment. The sign-in itself may still be valid."""

    def __init__(self, sentence: Sentence) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence


class GrantRefused(Exception):
    """The authorization server refused a code or a refresh token. `code` is its error code (RFC 6749, section 5.2)."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(code)
        self.code = code
        self.description = description


def sign_in_error(sentence: Sentence, *, code: str = "tool_sign_in_failed", status: int = 502) -> ProductError:
    """Return the error for a sign-in that cannot begin or be completed."""
    return ProductError(code, sentence, status=status)
