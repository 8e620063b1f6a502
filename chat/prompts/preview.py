"""Plan the next turn before it is sent, for the composer, for programs, and for the selection of documents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NotRequired, TypedDict, cast
from uuid import UUID

from django.utils.translation import gettext as _

from accounts.models import User
from chat.context import cache
from chat.context.types import ContextError, DocumentBudget
from chat.ledger.limits import LimitJson, get_warning_limit
from chat.models import Conversation, LastPrompt, Turn
from chat.models.conversation import TurnScope
from chat.models.conversation_state import ChatScope
from chat.prompts import builder, report
from chat.prompts.document_budget import budget_of, chosen_files, refuse_over_line, summary_in
from chat.prompts.turn_context import TurnContext, base_context, context_of_draft, wider_cap
from core.background import submit
from core.i18n import grouped
from core.outside import wait_outside
from files.models import File
from files.services import get_token_count
from llm.learning import Evidence, describe_source
from llm.models import Model
from llm.services import MIN_TRUSTED_SAMPLES, cache_rule
from llm.types.model_call import Usage
from personas.services import model_for


@dataclass(frozen=True, slots=True)
class TurnDraft:
    """A message that a user is about to send. `files` are ids; a plan ignores files that the user may not see.

    `effort` is the reasoning effort. None means the effort of the conversation, as in `chat.turns.submit.Ask`.
    """

    text: str
    files: Sequence[UUID] = ()
    effort: str | None = None


class PlanError(TypedDict):
    """The reason why a draft does not fit. The members besides `code` and `detail` depend on the code.

    They are the `extra` of the `ContextError`, see `chat.context.types` and `chat.prompts.document_budget`.
    """

    code: str
    detail: str
    needed: NotRequired[int]
    limit: NotRequired[int]
    tokens: NotRequired[int]
    room: NotRequired[int]
    over: NotRequired[int]
    part: NotRequired[str]
    sections: NotRequired[Mapping[str, int]]
    tools_tokens: NotRequired[int]
    reserve: NotRequired[int]
    file: NotRequired[str]
    title: NotRequired[str]


class PlanDocuments(TypedDict):
    """The document budget of a plan. `selected`: the tokens of the draft's files, None while a count is unknown."""

    available: int
    offered: int
    selectable_up_to: int
    selected: int | None


class PlanCost(TypedDict):
    """The expected cost of the first model call in US dollars, as decimal text. `longest_answer` is in tokens."""

    prompt: str
    answer_per_1000: str
    at_most: str
    longest_answer: int


class UnfittingPlan(report.WindowEntry):
    """The plan of a draft that does not fit. `near_limit` as in `FittingPlan`."""

    fits: Literal[False]
    limit: int
    error: PlanError
    documents: PlanDocuments
    near_limit: LimitJson | None


class FittingPlan(report.ResolvedReport):
    """The plan of a draft that fits: the report of its first model call, with cost and limits.

    * `near_limit`: the user's limit with the least left, if it is nearly used up
      (`chat.ledger.limits.get_warning_limit`).
    * `countable`: the provider was not asked to count the tokens, and its count could change the plan.
    * `provider_limit`: the tokens that prompt and tools may have by the provider's count, if it has counted.
    """

    fits: Literal[True]
    error: None
    documents: PlanDocuments
    near_limit: LimitJson | None
    cost: PlanCost | None
    countable: bool
    provider_limit: int | None


Plan = FittingPlan | UnfittingPlan


def plan_ahead(
    *,
    user: User,
    scope: ChatScope,
    draft: TurnDraft,
    model: Model | None = None,
    count: bool = False,
    whole: bool = True,
) -> Plan:
    """Plan the first model call for the draft.

    If the draft does not fit, the plan has the error. `count`: ask the provider to count the tokens if the prompt is
    near the limit, as is done before sending. `whole` is passed to `chat.prompts.report.resolved`.
    """
    base = base_context(user=user, model=model or model_for(scope.persona, user), scope=scope)
    if draft.effort is not None:
        base = replace(base, asked_effort=draft.effort)
    base = replace(
        base, window_cap=_window_cap(scope.conversation, base.model), scope_above=_scope_above(scope.conversation)
    )
    files = chosen_files(user=user, ids=draft.files)
    conversation = scope.conversation
    text = draft.text if draft.text.strip() else ""
    context = context_of_draft(base=base, scope=scope, text=text, files=files)
    if files and not text:
        text = context.texts["files_alone"]
    leaf = conversation.leaf if conversation else None
    allowed = budget_of(context, scope, summary_in(scope)) if files else None
    near_limit = get_warning_limit(user.pk)
    plan = partial(builder.plan, leaf=leaf, added=[builder.draft_message(text)], files=files)
    try:
        if allowed is not None:
            refuse_over_line(files, allowed)
        planned = plan(context)
    except ContextError as error:
        limit = max(0, context.room.input_limit)
        detail = " ".join(filter(None, [str(error.sentence), _learnt_window(context)]))
        return {
            "fits": False,
            "limit": limit,
            **report.window_of(context),
            "error": cast("PlanError", {"code": error.code, "detail": detail, **error.extra}),
            "documents": _documents(allowed or budget_of(context, scope, summary_in(scope)), files),
            "near_limit": near_limit,
        }
    stored = _stored(context, planned, conversation)
    near = bool(text) and builder.worth_counting(context, planned.prompt)
    if near:
        planned, stored = _counted(context, planned, stored, plan, ask=count)
    call = report.resolved(stored, draft=text, whole=whole)
    return {
        "fits": True,
        "error": None,
        "documents": _documents(allowed or budget_of(context, scope, planned.summary), files),
        "near_limit": near_limit,
        "cost": _cost(context, call, builder.fingerprint(context, planned.prompt)),
        "countable": near and not count and call["provider_count"] is None,
        "provider_limit": builder.true_room(context) if call["provider_count"] else None,
        **call,
    }


def _stored(context: TurnContext, planned: builder.PlannedCall, conversation: Conversation | None) -> report.CallReport:
    """Return the report that the call would store."""
    sent = builder.fingerprint(context, planned.prompt)
    return report.stored(context, planned, cycle=1, refused=None, cache=_cache(context.model, sent, conversation))


def _counted(
    context: TurnContext,
    planned: builder.PlannedCall,
    stored: report.CallReport,
    plan: Callable[[TurnContext], builder.PlannedCall],
    *,
    ask: bool,
) -> tuple[builder.PlannedCall, report.CallReport]:
    """Return the plan with the provider's count, as the turn would. The provider has a few seconds to answer."""

    def plan_again(recounted: TurnContext) -> report.PlannedRequest:
        again = plan(recounted)
        return report.PlannedRequest(
            again, _stored(recounted, again, context.conversation), builder.model_request(recounted, again.prompt)
        )

    first = report.PlannedRequest(planned, stored, builder.model_request(context, planned.prompt))
    with wait_outside():
        result = submit(report.with_provider_count(context, first, plan_again, ask=ask)).result()
    return result.planned, result.report


def _documents(allowed: DocumentBudget, files: Sequence[File]) -> PlanDocuments:
    return {
        "available": allowed.available,
        "offered": allowed.offered,
        "selectable_up_to": allowed.selectable_up_to,
        "selected": _selected(files),
    }


def _cost(context: TurnContext, call: report.CallReport, sent: cache.SentPrompt) -> PlanCost | None:
    """Return the cost of the first model call, with the expected use of the provider's cache; None without a price.

    Each call after a tool result costs its own prompt and answer in addition. The local token count is scaled to the
    provider's count of this prompt, else by the ratio learnt for the model. The longest answer is the model's own limit
    or the rest of the window, whichever is smaller.
    """
    model = context.model
    if model.prices is None:
        return None
    counted = call["used"] + call["tools_tokens"]
    count = call["provider_count"]
    expected_cached = call["cache"]["expected"]
    learnt_ratio = model.token_ratio if model.ratio_samples >= MIN_TRUSTED_SAMPLES else 1.0
    ratio = count / max(1, counted) if count else learnt_ratio
    counts = (counted, expected_cached, cache.tokens_to_write(sent, expected_cached, cache_rule(model)))
    whole, read, written = (round(each * ratio) for each in counts)
    left = max(0, context.room.window - whole)
    longest = min(left, model.max_output or left)
    expected = model.prices.expected_cost(Usage(whole, 0, cached_input=read, cache_written=written), longest)
    return {
        "prompt": f"{expected.prompt:f}",
        "answer_per_1000": f"{expected.answer_per_1000:f}",
        "at_most": f"{expected.at_most:f}",
        "longest_answer": longest,
    }


def _learnt_window(context: TurnContext) -> str:
    """Return a sentence about the window if it is smaller than the model's row says, else an empty text."""
    if context.window >= context.model.context_window or context.window_source == "profile":
        return ""
    source = describe_source(context.window_source, Evidence.from_json(context.model.window_evidence))
    return _("Its window is %(tokens)s tokens here (%(why)s).") % {"tokens": grouped(context.window), "why": source}


def _window_cap(conversation: Conversation | None, model: Model) -> int | None:
    """Return the window cap of the conversation's next turn with the model, None without one."""
    if conversation is None:
        return None
    caps = LastPrompt.objects.filter(conversation=conversation, model=model).values_list("window_cap", flat=True)
    return wider_cap(caps.first(), model)


def _scope_above(conversation: Conversation | None) -> TurnScope:
    """Return the scope of the conversation's newest answer, empty without one."""
    if conversation is None or conversation.leaf_id is None:
        return {}
    scope = Turn.objects.filter(answer=conversation.leaf_id).values_list("scope", flat=True).first()
    return cast("TurnScope", scope or {})


def _cache(model: Model, sent: cache.SentPrompt, conversation: Conversation | None) -> cache.CacheEntry:
    """Return the forecast of the provider's cache for the prompt."""
    rows = LastPrompt.objects.filter(conversation=conversation) if conversation else LastPrompt.objects.none()
    prompts = {pk: cache.parse_sent_prompt(prompt) for pk, prompt in rows.values_list("model", "prompt")}
    return cache.forecast(sent, prompts.get(model.pk), cache_rule(model), other_model=bool(prompts))


def _selected(files: Sequence[File]) -> int | None:
    """Return the tokens of all files, None while the count of one is unknown."""
    counts = [get_token_count(file=file) for file in files]
    return None if None in counts else sum(count or 0 for count in counts)
