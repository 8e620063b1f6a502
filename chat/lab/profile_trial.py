"""Try a budget profile on real conversations. Administrators see only numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

from django.db.models import Count, F, IntegerField, OuterRef, Subquery
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _

from chat.context.types import ContextError
from chat.models import Conversation, Message
from chat.models.conversation_state import ChatScope, scope_of
from chat.prompts import builder
from chat.prompts.turn_context import TurnContext, base_context, context_of_draft
from core.errors import ProductError
from llm.models import Model
from personas.models import BudgetProfile
from personas.services import model_for

CANDIDATES = 200  # newest conversations, from which the longest are chosen
TRIALS = 3  # conversations


@dataclass(frozen=True, slots=True)
class PromptForecast:
    """The next prompt: `used` of `limit` tokens, and the numbers of messages `sent`, `summarised` and `left_out`.

    If the required parts do not fit, `error` is the code of the error, and all numbers are 0.
    """

    limit: int = 0
    used: int = 0
    sent: int = 0
    summarised: int = 0
    left_out: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class ProfileTrial:
    """The next prompt of one conversation: `now` with its own profile, `then` with the profile on trial."""

    conversation: UUID
    owner: str
    messages: int
    model: str
    now: PromptForecast
    then: PromptForecast

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        """Return each number with its name, in the reader's language."""
        names = {
            "sent": _("messages sent"),
            "summarised": _("in a summary"),
            "left_out": _("left out"),
            "used": _("tokens sent"),
            "limit": _("tokens at most"),
        }
        return [(words, getattr(self.now, name), getattr(self.then, name)) for name, words in names.items()]


def run_trials(profile: BudgetProfile) -> list[ProfileTrial]:
    """Try a profile on the longest of the newest conversations. Returns no trials if no model is set up.

    `profile` need not be stored.
    """
    return list(_trials(profile))


def _trials(profile: BudgetProfile) -> Iterator[ProfileTrial]:
    counts = Message.objects.filter(conversation=OuterRef("pk")).order_by().values("conversation")
    number = Subquery(counts.annotate(number=Count("*")).values("number"), output_field=IntegerField())
    rows = Conversation.objects.filter(deleted=None, origin=Conversation.Origin.WORKSPACE, leaf__isnull=False)
    newest = rows.order_by("-pk").values_list("pk", flat=True)[:CANDIDATES]
    longest = rows.filter(pk__in=list(newest)).annotate(number=Coalesce(number, 0)).order_by(F("number").desc(), "-pk")
    related = ("owner", "leaf__model__provider", "persona__budget_profile", "project__persona__budget_profile")
    for conversation in longest.select_related(*related)[:TRIALS]:
        scope = scope_of(conversation)
        try:
            model = _model(conversation, scope)
        except ProductError:
            return
        base = base_context(user=conversation.owner, model=model, scope=scope)
        context = context_of_draft(base=base, scope=scope, text="", files=())
        leaf: Message = conversation.leaf  # type: ignore[assignment]  # others are filtered out above
        yield ProfileTrial(
            conversation=conversation.pk,
            owner=str(conversation.owner),
            messages=leaf.depth + 1,
            model=model.name,
            now=_forecast(context, leaf),
            then=_forecast(replace(context, profile=profile), leaf),
        )


def _model(conversation: Conversation, scope: ChatScope) -> Model:
    """Return the model of the newest answer if it is enabled, else the model that would be asked next."""
    newest = conversation.leaf.model if conversation.leaf is not None else None
    if newest is not None and newest.enabled and newest.provider.enabled:
        return newest
    return model_for(scope.persona, conversation.owner)


def _forecast(context: TurnContext, leaf: Message) -> PromptForecast:
    try:
        planned = builder.plan(context, leaf, [builder.draft_message("")])
    except ContextError as error:
        return PromptForecast(error=error.code)
    report = planned.prompt.report
    ids = {(each.source or "").partition("#")[0] for each in planned.prompt.messages if each.section == "history"}
    summarised = planned.summary.last.depth + 1 if planned.summary is not None else 0
    sent = len(ids - {""})
    left_out = max(0, leaf.depth + 1 - summarised - sent)
    return PromptForecast(limit=report.limit, used=report.used, sent=sent, summarised=summarised, left_out=left_out)
