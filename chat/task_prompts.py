"""The tasks that stand in a prompt (context.md, section 7), read with few queries: the first token waits for them.

What has to be known beforehand comes along when a turn is claimed (`turn_rows.claim`), so that somebody without tasks
costs no query more.
"Mentioned today" is: a message of this person, in whatever conversation, that was sent on the day of the question, in
the person's timezone, mentions it with @. Before sending, the draft's own mentions count too.
"""

from dataclasses import replace

from chat.models import Conversation, Mention, RunStep, Turn
from chat.prompts import Setting
from projects.tasks import codes
from projects.tasks.block import PromptTasks
from projects.tasks.queries import tasks_for_prompt, today


def with_tasks(setting: Setting, turn: Turn) -> Setting:
    """Of a turn that was claimed; read once, so the block stays the same from its first model call to its last."""
    if not getattr(turn, "has_tasks", False) or not _wanted(setting):
        return setting
    day = today(setting.user, setting.asked_at)
    pairs: list[dict[str, str]] = getattr(turn, "mentions", [])
    mentioned = {pair["code"] for pair in pairs if pair["day"] == day.isoformat()}
    return replace(
        setting,
        tasks=tasks_for_prompt(user=setting.user, on=day, mentioned=mentioned),
        run_step=_step(getattr(turn, "run_step", None)),
    )


def tasks_ahead(setting: Setting, draft: str) -> PromptTasks | None:
    """What would stand in the prompt if the draft were sent now."""
    if not _wanted(setting):
        return None
    day = today(setting.user, setting.asked_at)
    before = Mention.objects.filter(user=setting.user, day=day).values_list("code", flat=True)
    return tasks_for_prompt(user=setting.user, on=day, mentioned={*before, *codes.mentions(draft)})


def _wanted(setting: Setting) -> bool:
    """A program that speaks OpenAI's protocol asks what it asks; the day of its token's owner is not its business."""
    return setting.conversation is None or setting.conversation.origin == Conversation.Origin.WORKSPACE


def _step(pk: int | None) -> RunStep | None:
    related = ("run__task", "run__item", "run__owner")
    return RunStep.objects.select_related(*related).get(pk=pk) if pk is not None else None
