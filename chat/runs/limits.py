"""The caps of a run and how much of them it has used. The turns that are its steps are counted."""

from typing import NamedTuple

from django.utils import timezone

from chat.models.conversation_state import scope_of
from chat.runs import prompts
from core.sentences import Sentence
from personas.models import BudgetProfile
from personas.services import default_profile
from projects.planner.models import Run


class RunUsage(NamedTuple):
    """The use of a run's caps.

    `tokens`: input and output as the provider reports them, else the local count of the input. `minutes`: the time in
    which turns were running.
    """

    steps: int
    tokens: int
    minutes: float


def compute_usage(run: Run) -> RunUsage:
    """Return the use of a run so far."""
    names = ("turn__usage", "turn__context_used", "turn__started", "turn__finished")
    rows = list(run.steps.values_list(*names))
    tokens = 0
    seconds = 0.0
    now = timezone.now()
    for usage, counted, started, finished in rows:
        usage = usage or {}
        tokens += (usage.get("input") or counted or 0) + (usage.get("output") or 0)
        seconds += ((finished or now) - started).total_seconds() if started else 0
    return RunUsage(len(rows), tokens, seconds / 60)


def get_profile(run: Run) -> BudgetProfile:
    """Return the budget profile that has the run's caps."""
    persona = scope_of(run.conversation).persona
    return persona.budget_profile if persona and persona.budget_profile else default_profile()


def describe_exceeded_cap(run: Run, *, only_minutes: bool = False) -> Sentence | None:
    """Return a sentence about the cap that the run has reached; None if it may continue."""
    so_far = compute_usage(run)
    caps = get_profile(run)
    reached: Sentence | None = None
    if so_far.minutes >= caps.run_max_minutes:
        reached = Sentence("{number} minutes", number=caps.run_max_minutes)
    elif not only_minutes and so_far.steps >= caps.run_max_steps:
        reached = Sentence("{number} steps", number=caps.run_max_steps)
    elif not only_minutes and so_far.tokens >= caps.run_max_tokens:
        reached = Sentence("{number} of {most} tokens", number=so_far.tokens, most=caps.run_max_tokens)
    if reached is None:
        return None
    return Sentence(prompts.CAP, used=reached, profile=caps.name)
