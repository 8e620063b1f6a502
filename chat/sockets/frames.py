"""What a socket's frames mean: parsing, limits, and what they ask for."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from accounts.access.permissions import LONGEST_KEY
from accounts.models import User
from chat.models import Conversation
from chat.models.lookups import visible_turn
from chat.realtime.event_schema import BAD_FRAME, BURST, FRAMES, MAX_FRAME, PER_SECOND, TOO_FAST, TOO_LARGE
from chat.sending.services import send_or_queue
from chat.turns.services import stop_turn
from chat.turns.submit import Ask
from core.errors import ProductError
from core.lookups import get_or_404


class Refused(Exception):
    def __init__(self, close_code: int) -> None:
        self.close_code = close_code


@dataclass(slots=True)
class Pace:
    """A token bucket: `BURST` frames at once, `PER_SECOND` in the long run."""

    left: float = BURST
    at: float = field(default_factory=time.monotonic)

    def take(self) -> bool:
        now = time.monotonic()
        self.left = min(BURST, self.left + (now - self.at) * PER_SECOND) - 1
        self.at = now
        return self.left >= 0


def parse(text: str | None, pace: Pace) -> dict[str, Any]:
    """A frame as an object with a known `type`; raises `Refused` with the code to close the socket with."""
    if not pace.take():
        raise Refused(TOO_FAST)
    if text is None:
        raise Refused(BAD_FRAME)
    if len(text) > MAX_FRAME:
        raise Refused(TOO_LARGE)
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(BAD_FRAME) from error
    if not isinstance(frame, dict) or frame.get("type") not in FRAMES:
        raise Refused(BAD_FRAME)
    return frame


def sequence(frame: dict[str, Any]) -> int:
    after = frame.get("after_seq", 0)
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        raise ProductError("bad_sequence", "after_seq must be a whole number from 0.")
    return after


def conversation(user: User, pk: object) -> Conversation:
    return get_or_404(Conversation.objects.visible_to(user), pk, "conversation")


def send(user: User, frame: dict[str, Any]) -> None:
    """Raises `bad_text` and `bad_idempotency_key`, and what `send_or_queue` raises."""
    text, key = frame.get("text", ""), frame.get("key") or None
    if not isinstance(text, str):
        raise ProductError("bad_text", "text must be a string: the message as it was written.")
    if key is not None and (not isinstance(key, str) or len(key) > LONGEST_KEY):
        raise ProductError("bad_idempotency_key", f"key must be a string of at most {LONGEST_KEY} characters, a UUID.")
    found = conversation(user, frame.get("conversation"))
    send_or_queue(user=user, conversation=found, ask=Ask(text=text, key=key))


def stop(user: User, pk: object) -> None:
    stop_turn(user=user, turn=visible_turn(user, pk))
