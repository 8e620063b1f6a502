"""Says that the list of conversations has changed: pages that show it ask for it again."""

from accounts.news import News, tell
from chat.models import Conversation


def list_changed(conversation: Conversation) -> None:
    """On commit. What no list shows, see `Conversation.objects.listed_for`, changes none."""
    if conversation.origin == Conversation.Origin.WORKSPACE:
        tell(conversation.owner_id, News.CONVERSATIONS)
