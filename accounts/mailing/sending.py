"""Send mails through the server of `settings.EMAIL_URL`.

Without a mail server, pages show the links that a mail would contain.
"""

import logging
import smtplib
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from core.errors import ProductError
from core.outside import wait_outside
from core.sentences import Sentence

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mail:
    to: str
    subject: str
    text: str


def has_mail_server() -> bool:
    return bool(settings.EMAIL_URL)


def send(mails: Sequence[Mail]) -> None:
    """Send the mails over one connection. Raises `mail_failed` (502), even if the server refuses only one of them."""
    connection = get_connection()
    messages = [EmailMessage(" ".join(each.subject.split()), each.text, to=[each.to]) for each in mails]
    try:
        with wait_outside():
            connection.send_messages(messages)
    except (OSError, smtplib.SMTPException, ValueError) as error:
        logger.warning("a mail could not be sent: %s", type(error).__name__)  # the text of the error may name people
        sentence = Sentence("The mail could not be sent. Check EMAIL_URL with manage.py doctor.")
        raise ProductError("mail_failed", sentence, status=502) from error


def try_server() -> None:
    """Sign in at the server without sending a mail. Raises OSError and `smtplib.SMTPException`."""
    connection = get_connection()
    connection.open()
    connection.close()
