"""What the next turn would send, before it is sent: for the composer, programs, and whoever selects documents."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from accounts.models import User
from chat.context import cache
from chat.context.types import ContextError, DocumentBudget
from chat.ledger.limits import most_used
from chat.models import Conversation, LastPrompt
from chat.models.conversation_state import ChatScope
from chat.prompts import builder, report
from chat.prompts.document_budget import chosen_files, line_of, refuse_over_line, summary_in
from chat.prompts.turn_context import TurnContext, base_context, context_of_draft, wider_cap
from core.background import submit
from core.i18n import grouped
from core.outside import wait_outside
from files.models import File
from files.services import tokens_of
from llm.learning import Evidence, source_words
from llm.models import Model
from llm.services import RATIO_TRUSTED, cache_rule
from llm.types.model_call import Usage
from personas.services import model_for


@dataclass(frozen=True, slots=True)
class Draft:
    """What a person is about to send. `files` are ids; those that are not the person's are ignored in a plan.

    `effort` of reasoning as in `chat.turns.submit.Ask`: None is what the conversation has.
    """

    text: str
    files: Sequence[UUID] = ()
    effort: str | None = None


def plan_ahead(
    *, user: User, scope: ChatScope, draft: Draft, model: Model | None = None, count: bool = False, whole: bool = True
) -> dict[str, Any]:
    """The report of a first model call for the draft: the report's members and `fits`, `error`, `documents`, `cost`.

    What does not fit is an answer too: `fits` is false, and `error` says with `code` and `detail` what to do.
    `documents` is the document budget and `selected`, the tokens of the draft's files (None while one is unknown).
    `count`: near the limit the provider is asked to count, as it is before sending; `countable` says that this was not
    asked for and could change the plan. `provider_limit`: what prompt and tools may take by that count, where it is.
    `near_limit`: the limit that is used up for the most part, as `chat.ledger.limits` has it in JSON, or None.
    `whole` as with `chat.prompts.report.resolved`.
    """
    base = base_context(user=user, model=model or model_for(scope.persona, user), scope=scope)
    if draft.effort is not None:
        base = replace(base, asked_effort=draft.effort)
    base = replace(base, window_cap=_window_cap(scope.conversation, base.model))
    files = chosen_files(user=user, ids=draft.files)
    text, conversation = draft.text if draft.text.strip() else "", scope.conversation
    context = context_of_draft(base=base, scope=scope, text=text, files=files)
    leaf = conversation.leaf if conversation else None
    allowed = line_of(context, scope, summary_in(scope)) if files else None
    near_limit = most_used(user.pk)
    plan = partial(builder.plan, leaf=leaf, added=[builder.draft_message(text)], files=files)
    try:
        if allowed is not None:
            refuse_over_line(files, allowed)
        planned = plan(context)
    except ContextError as error:
        limit = max(0, context.room.input_limit)
        detail = " ".join(filter(None, [str(error.sentence), _learnt_window(context)]))
        problem = {"code": error.code, "detail": detail, **error.extra}
        documents = _documents(allowed or line_of(context, scope, summary_in(scope)), files)
        window = report.window_of(context)
        return {
            "fits": False,
            "limit": limit,
            **window,
            "error": problem,
            "documents": documents,
            "near_limit": near_limit,
        }
    stored = _stored(context, planned, conversation)
    near = bool(text) and builder.worth_counting(context, planned.prompt)
    if near:
        planned, stored = _counted(context, planned, stored, plan, ask=count)
    call = report.resolved(stored, draft=text, whole=whole)
    documents = _documents(allowed or line_of(context, scope, planned.summary), files)
    return {
        "fits": True,
        "error": None,
        "documents": documents,
        "near_limit": near_limit,
        "cost": _cost(context, call, builder.fingerprint(context, planned.prompt)),
        "countable": near and not count and call["provider_count"] is None,
        "provider_limit": builder.true_room(context) if call["provider_count"] else None,
        **call,
    }


def _stored(context: TurnContext, planned: builder.Planned, conversation: Conversation | None) -> report.CallReport:
    sent = builder.fingerprint(context, planned.prompt)
    return report.stored(context, planned, cycle=1, refused=None, cache=_cache(context.model, sent, conversation))


def _counted(
    context: TurnContext,
    planned: builder.Planned,
    stored: report.CallReport,
    plan: Callable[[TurnContext], builder.Planned],
    *,
    ask: bool,
) -> tuple[builder.Planned, report.CallReport]:
    """As the turn plans it, see `chat.prompts.report.counted`; a provider is given a few seconds."""

    def again(true: TurnContext) -> report.Made:
        found = plan(true)
        return found, _stored(true, found, context.conversation), builder.model_request(true, found.prompt)

    made = (planned, stored, builder.model_request(context, planned.prompt))
    with wait_outside():
        planned, stored, _ = submit(report.counted(context, made, again, ask=ask)).result()
    return planned, stored


def _documents(allowed: DocumentBudget, files: Sequence[File]) -> dict[str, int | None]:
    return {**asdict(allowed), "selected": _selected(files)}


def _cost(context: TurnContext, call: report.CallReport, sent: cache.SentPrompt) -> dict[str, Any] | None:
    """What sending costs in US dollars, by what the provider's cache will serve and be given; None without a price.

    Tokens are ours times what the provider has counted of this prompt, else what usage has taught of the model's own.
    Of the first model call: every one that follows a tool's result costs its own prompt and answer. `longest_answer`:
    in tokens, the model's own, or the room that is left.
    """
    model = context.model
    if model.prices is None:
        return None
    ours, count, served = call["used"] + call["tools_tokens"], call["provider_count"], call["cache"]["expected"]
    taught = model.token_ratio if model.ratio_samples >= RATIO_TRUSTED else 1.0
    ratio = count / max(1, ours) if count else taught
    counts = (ours, served, cache.written(sent, served, cache_rule(model)))
    whole, read, written = (round(each * ratio) for each in counts)
    left = max(0, context.room.window - whole)
    longest = min(left, model.max_output or left)
    expected = model.prices.expected_cost(Usage(whole, 0, cached_input=read, cache_written=written), longest)
    return {**{name: f"{amount:f}" for name, amount in asdict(expected).items()}, "longest_answer": longest}


def _learnt_window(context: TurnContext) -> str:
    """Return a sentence on the window where it is smaller than the model's row says; empty where it is not."""
    if context.window >= context.model.context_window or context.window_source == "profile":
        return ""
    why = source_words(context.window_source, Evidence.from_json(context.model.window_evidence))
    return _("Its window is %(tokens)s tokens here (%(why)s).") % {"tokens": grouped(context.window), "why": why}


def _window_cap(conversation: Conversation | None, model: Model) -> int | None:
    """Return the smaller window that only this conversation has with the model, as its next turn will have it."""
    if conversation is None:
        return None
    caps = LastPrompt.objects.filter(conversation=conversation, model=model).values_list("window_cap", flat=True)
    return wider_cap(caps.first(), model)


def _cache(model: Model, sent: cache.SentPrompt, conversation: Conversation | None) -> cache.CacheEntry:
    """What the provider's cache will serve."""
    rows = LastPrompt.objects.filter(conversation=conversation) if conversation else LastPrompt.objects.none()
    prompts = {asked: cache.sent_of(prompt) for asked, prompt in rows.values_list("model", "prompt")}
    return cache.expected(sent, prompts.get(model.pk), cache_rule(model), other_model=bool(prompts))


def _selected(files: Sequence[File]) -> int | None:
    counts = [tokens_of(file=file) for file in files]
    return None if None in counts else sum(count or 0 for count in counts)
