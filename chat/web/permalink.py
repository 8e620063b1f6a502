"""A conversation opened at one of its messages, wherever that is in the tree.

Looking changes nothing: the branch that the conversation goes on with stays the stored one, also when the message is
on another, which is then only shown, with a button to go on from there. A search hit that silently moved the end of the
conversation would make the next question continue another one than its writer has in mind.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from chat.conversations.branches.pages import side_by_side
from chat.models import Conversation, Message
from chat.models.tree import branch, ids_down_to, newest_leaf
from chat.web.messages import PAGE, branch_page, placed

BELOW = 12  # messages that are shown below the one it opens at


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Instead of the newest messages. `other_branch`: than that of the conversation's leaf."""

    message: UUID
    other_branch: bool


def page_at(conversation: Conversation, message: Message) -> dict[str, Any]:
    """For the template: `messages`, `older`, and `excerpt` unless the newest messages are among them."""
    leaf = conversation.leaf
    path = ids_down_to(leaf.pk, message.depth) if leaf else []
    other = message.pk not in path
    if leaf and other and message.parent_id == leaf.parent_id:
        other = message.pk not in {each.pk for each in side_by_side(leaf)}
    if not other and len(path) <= PAGE // 2:
        messages, older = branch_page(conversation)
        return {"messages": messages, "older": older}
    if other:
        path = ids_down_to(newest_leaf(message.pk) or message.pk, message.depth)
    end = path[max(0, len(path) - 1 - BELOW)]
    rows = branch(end, newest=PAGE, leaf_depth=message.depth + min(BELOW, len(path) - 1))
    return {
        "messages": placed(rows, conversation),
        "older": rows[0].pk if rows[0].depth else None,
        "excerpt": Excerpt(message.pk, other),
    }
