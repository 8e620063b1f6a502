"""Hands mails to the server of `settings.EMAIL_URL`. Without one nothing is mailed, and links are shown instead."""

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


def is_set() -> bool:
    return bool(settings.EMAIL_URL)


def send(mails: Sequence[Mail]) -> None:
    """All of them over one connection. Raises `mail_failed` (502), for one that the server refuses as for all."""
    connection = get_connection()
    made = [EmailMessage(" ".join(each.subject.split()), each.text, to=[each.to]) for each in mails]
    try:
        with wait_outside():
            connection.send_messages(made)
    except (OSError, smtplib.SMTPException, ValueError) as error:
        logger.warning("mail is not sent: %s", type(error).__name__)  # its text may name people
        sentence = Sentence("The mail could not be sent. See with manage.py doctor whether EMAIL_URL is right.")
        raise ProductError("mail_failed", sentence, status=502) from error


def try_server() -> None:
    """Signs in at the server and sends nothing. Raises OSError and `smtplib.SMTPException`."""
    connection = get_connection()
    connection.open()
    connection.close()
