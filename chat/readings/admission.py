"""Check whether a user may start a reading now."""

from uuid import UUID

from accounts.models import User
from chat.ledger.limits import require_within_limits
from chat.models.conversation_state import join_line
from chat.readings.models import Reading
from core.errors import ProductError
from core.sentences import Sentence

MAX_READINGS = 3  # running readings per user


def require_reading_allowed(user: User, token: UUID | None) -> None:
    """Check the user's limits. Raises `readings_running` and `limit_reached` (429).

    Call it in the transaction that starts the reading.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # concurrent starts are checked one after the other
    join_line(user.pk)
    require_within_limits(user.pk, token, None)
    if Reading.objects.live().filter(person=user).count() >= MAX_READINGS:
        detail = Sentence(
            "{at_once} of your readings are running. Wait until one is done, or stop one.", at_once=MAX_READINGS
        )
        raise ProductError("readings_running", detail, status=429, retry_after=30)
