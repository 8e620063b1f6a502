"""What a turn is made under, beside its messages: people, model, persona, budget, tools, tasks, a program's options."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from django.utils import timezone

from accounts.access.rights import NO_RIGHTS, Rights, rights_of, search_asks
from accounts.models import May, User
from chat.context.rendering import Numbers
from chat.context.types import ContextRequest, Room, Section
from chat.models import Conversation, Mention, Message, Summary, Turn
from chat.models.conversation_state import ChatScope, scope_of
from chat.models.queries import ClaimedTurn
from chat.models.summary import Marks, in_force
from chat.prompts.history import Documents
from chat.tools.tasks import Hand
from chat.tools.toolbox import (
    NO_TOOLS,
    Toolbox,
    toolbox_for,
    with_external_tools,
    with_known_tools,
    with_server_tools,
    within_limit,
)
from core.sentences import NO_SENTENCE, Sentence
from files.models import File
from llm import tokens
from llm.learning import SMALLEST_WINDOW, window_source
from llm.models import Model
from llm.services import RATIO_TRUSTED
from llm.tokens import Tokenizer
from llm.types.model_call import EFFORTS, NO_SAMPLING, Sampling, ToolChoice, ToolDefinition
from personas.models import BudgetProfile, Persona, SystemPrompt
from personas.services import reminders_for, rules_at
from personas.texts import BUILT_IN, BUILT_IN_DIGEST, Texts
from personas.tools import TASKS, WEB
from projects.models import Project, ProjectFile
from projects.planner.models import RunStep, codes
from projects.planner.queries import PromptTasks, tasks_for_prompt, today
from workspace.models import Workspace
from workspace.models.version import version_now

# Tokens to expect of a step's reasoning by its effort, and by that of providers where none is said: our judgement.
THOUGHT = {"none": 0, "minimal": 512, "low": 1_024, "medium": 4_096, "high": 8_192, "xhigh": 16_384, "max": 32_768}
USUAL = "medium"
LARGEST_PART = 4  # reasoning has at most this part of the window
RESIDUE = Decimal("0.01")  # what a learnt ratio leaves uncertain
MAX_TOOLS = 128  # of a program's own
# What a plan reads of a profile and a model beside their names: kept with every report, since both rows may change.
OF_PROFILE = (
    *("window", "reserved_output", "buffer", "message_overhead", "safety_margin", "catch_all_margin"),
    *("project_share", "omission_note", "effort", "max_cycles"),
    *("note_form", "reminder_place", "always_remind_citations"),
)
OF_MODEL = ("tokenizer", "vision", "tools", "max_output", "efforts", "effort", "token_ratio", "ratio_samples")
WIDER = 1.25  # by which a smaller window that only one conversation has grows from turn to turn
OF_WORKSPACE = ("date_awareness", "task_tools", "today_tasks")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Options:
    """`instructions` is the text of the program's system messages, `max_output` in tokens of each model call.

    `replaces_system`: the instructions stand in the place of the workspace's system prompt.

    `tools` are the program's own, which it runs itself; `tool_choice` and `required_tool` hold for the first call.
    `response_format` as in `llm.types.model_call.ModelRequest`.
    """

    instructions: str = ""
    replaces_system: bool = False
    temperature: float | None = None
    max_output: int | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = "auto"
    required_tool: str | None = None
    parallel_tool_calls: bool = True
    sampling: Sampling = NO_SAMPLING
    response_format: Mapping[str, Any] | None = None

    def format_tokens(self, tokenizer: Tokenizer) -> int:
        """What the schema of the answer costs; providers send it to the model like the definition of a tool."""
        described = (self.response_format or {}).get("json_schema")
        return tokenizer.count(json.dumps(described, ensure_ascii=False, sort_keys=True)) if described else 0

    def as_json(self) -> dict[str, Any]:
        # A schema is kept as text: PostgreSQL would put its properties into another order, and models read them.
        tools = [{**asdict(tool), "parameters": json.dumps(tool.parameters)} for tool in self.tools]
        return {**asdict(self), "tools": tools, "response_format": json.dumps(self.response_format)}


def options_of(stored: Mapping[str, Any]) -> Options:
    """From what `as_json` gave; without anything stored those of a person's turn."""
    if not stored:
        return NO_OPTIONS
    tools = (ToolDefinition(**{**each, "parameters": json.loads(each["parameters"])}) for each in stored["tools"])
    read = {
        "stop": tuple(stored["stop"]),
        "tools": tuple(tools),
        "sampling": Sampling(**stored.get("sampling", {})),  # turns of earlier versions have neither of these two
        "response_format": json.loads(stored.get("response_format", "null")),
    }
    return Options(**{**stored, **read})


NO_OPTIONS = Options()


class ChosenEffort(NamedTuple):
    """`sent`: to the model, empty for its provider's default; `note`: why it is not what was chosen."""

    sent: str
    note: Sentence = NO_SENTENCE


def effort_not_taken(model: str, wanted: str, taken: str) -> Sentence:
    if taken:
        return Sentence(
            "{model} does not take the effort of reasoning “{wanted}”; “{taken}” was sent.",
            model=model,
            wanted=wanted,
            taken=taken,
        )
    return Sentence(
        "{model} does not take the effort of reasoning “{wanted}”; none was sent.", model=model, wanted=wanted
    )


def effort_lowered(model: str, most: int, wanted: str, taken: str) -> Sentence:
    return Sentence(
        "An answer of {model} has at most {most} tokens, its reasoning included. With the effort “{wanted}” hardly "
        "any might be left to write, so “{taken}” was sent.",
        model=model,
        most=most,
        wanted=wanted,
        taken=taken,
    )


@dataclass(frozen=True)
class TurnContext:
    """What decides, beside the messages: who asks where, who answers, with which model and budget. Read once a turn.

    `summarised`, `marked`: whether the conversation may have a summary or marks; where it has none, nobody looks again.
    `asked_effort`: of reasoning, as the person chose it. `window_cap`: tokens; a smaller window than the model's, for
    this conversation alone. `image_cap`: fewer images than the model's limit, for this turn alone.
    """

    user: User
    model: Model
    persona: Persona | None
    profile: BudgetProfile
    system_prompt: SystemPrompt | None
    reminders: Sequence[str]
    asked_at: datetime
    conversation: Conversation | None = None
    project: Project | None = None
    toolbox: Toolbox = NO_TOOLS
    options: Options = NO_OPTIONS
    tasks: PromptTasks | None = None
    run_step: RunStep | None = None
    summarised: bool = True
    marked: bool = True
    true_ratio: Decimal | None = None  # tokens of the provider for one of ours, where it has counted this very prompt
    asked_effort: str = ""
    window_cap: int | None = None
    image_cap: int | None = None
    rights: Rights = NO_RIGHTS
    workspace: Workspace = field(default_factory=Workspace)
    texts: Texts = BUILT_IN

    @cached_property
    def tokenizer(self) -> tokens.Tokenizer:
        return tokens.tokenizer(self.model.tokenizer or tokens.CATCH_ALL)

    @property
    def for_program(self) -> bool:
        """Whether the conversation is one request of a program that speaks OpenAI's protocol."""
        return self.conversation is not None and self.conversation.origin == Conversation.Origin.API

    @property
    def exact(self) -> bool:
        return bool(self.model.tokenizer)

    @property
    def window(self) -> int:
        """What the model, the profile and this conversation allow, in tokens."""
        caps = (self.model.window, self.profile.window, self.window_cap)
        return min(cap for cap in caps if cap is not None)

    @property
    def window_source(self) -> str:
        """Where that comes from: `profile`, `conversation`, or a source of the model's (`llm.learning`)."""
        if self.window == self.model.window:
            return window_source(self.model)
        return "profile" if self.window == self.profile.window else "conversation"

    @property
    def image_limit(self) -> int | None:
        """The most images of one prompt."""
        return min((cap for cap in (self.model.image_limit, self.image_cap) if cap is not None), default=None)

    def window_for_prompt(self, tokens: int) -> int:
        """Return the window under which a prompt with its tools takes at most so many tokens."""
        taken = tokens + self.room.reserved_output + self.room.buffer
        return max(SMALLEST_WINDOW, int(taken / (1 - min(self.margin, Decimal("0.9")))))

    @property
    def room(self) -> Room:
        profile = self.profile
        return Room(
            self.window,
            reserved_output=self._most(profile.reserved_output + self.reasoning_tokens),
            buffer=profile.buffer,
            safety_margin=self.margin,
            tools_tokens=self.toolbox.tokens(self.tokenizer) + self.options.format_tokens(self.tokenizer),
        )

    def _most(self, tokens: int) -> int:
        return min(tokens, self.model.max_output or tokens)

    @cached_property
    def effort(self) -> "ChosenEffort":
        """Of reasoning: what a program demands; else the first of the person's, the persona's, the profile's and the
        model's that the model takes, lowered where its greatest answer would leave nothing to write."""
        if demanded := self.options.sampling.reasoning_effort:
            return ChosenEffort(demanded)
        persona = self.persona.effort if self.persona is not None else ""
        wanted = [each for each in (self.asked_effort, persona, self.profile.effort, self.model.effort) if each]
        offered = [each for each in EFFORTS if each in self.model.offered_efforts]
        taken = next((each for each in wanted if each in offered), "")
        note: Sentence = NO_SENTENCE
        if wanted and wanted[0] != taken and (offered or self.asked_effort):
            note = effort_not_taken(self.model.name, wanted[0], taken)
        if taken and self.model.max_output and 2 * THOUGHT[taken] > self.model.max_output:
            fitting = [each for each in offered if 2 * THOUGHT[each] <= self.model.max_output]
            lower = fitting[-1] if fitting else offered[0]
            if lower != taken:
                return ChosenEffort(lower, effort_lowered(self.model.name, self.model.max_output, taken, lower))
        return ChosenEffort(taken, note)

    @property
    def reasoning_tokens(self) -> int:
        """Of the answer's room, what is kept for reasoning, which counts as part of the answer everywhere."""
        sent = self.effort.sent
        if not (sent or self.model.offered_efforts):
            return 0
        share = self.window // LARGEST_PART
        return min(THOUGHT[sent or USUAL], share, (self.model.max_output or 2 * share) // 2)

    def summary_above(self, leaf: Message, marks: Marks) -> Summary | None:
        return in_force(leaf.conversation_id, leaf.pk, marks) if self.summarised else None

    def project_entries(self) -> list[ProjectFile]:
        return list(ProjectFile.objects.filter(project=self.project).select_related("file"))

    def completed(
        self, frame: ContextRequest, sections: Collection[Section] | None = None, variant: str = ""
    ) -> ContextRequest:
        """What is planned with instead of `frame`, which is a prompt without its messages: the same, but where a stored
        turn is planned again (`chat.lab`).

        `sections`: of which alone the texts are looked at, all by default. `variant`: which texts they are of a plan
        that tries several.
        """
        return frame

    def made_with(self) -> dict[str, Any]:
        """What a plan goes by and its report does not say, for planning the same again; decimals as text."""
        profile = {name: getattr(self.profile, name) for name in OF_PROFILE}
        return {
            "profile": {name: str(value) if isinstance(value, Decimal) else value for name, value in profile.items()},
            "workspace": {name: getattr(self.workspace, name) for name in OF_WORKSPACE},
            "model": {
                "window": min(self.model.window, self.window_cap or self.model.window),
                "max_images": self.image_limit,
                **{name: getattr(self.model, name) for name in OF_MODEL},
            },
            "true_ratio": str(self.true_ratio) if self.true_ratio is not None else None,
            "margin": str(self.margin),
            "texts": BUILT_IN_DIGEST,
        }

    def documents(self) -> Documents:
        """New for each plan, whose reports it collects; numbers go on from the conversation's."""
        known = self.conversation.documents if self.conversation is not None else {}
        return Documents(self.tokenizer, self.model.vision, Numbers(known), self.texts)

    @property
    def margin(self) -> Decimal:
        """The share of the window kept free because counts may be wrong (docs/develop/context.md, “The room”).

        None for an exact tokenizer beyond the profile's own. With the catch-all the profile's margin, until usage has
        taught the model's ratio of reported to counted tokens: then what that ratio says, and a little.
        """
        if self.true_ratio is not None:
            return max(self.profile.safety_margin, 1 - 1 / self.true_ratio)
        if self.exact:
            return self.profile.safety_margin
        if self.model.ratio_samples < RATIO_TRUSTED:
            return self.profile.catch_all_margin
        ratio = Decimal(str(max(1.0, self.model.token_ratio)))
        return min(Decimal("0.5"), (1 - 1 / ratio + RESIDUE).quantize(Decimal("0.0001")))


def wider_cap(cap: int | None, model: Model) -> int | None:
    """Return the window that the next prompt of a conversation may have, of which a longer prompt was refused.

    It grows by a quarter from turn to turn, so that what nobody has proven does not stay.
    """
    wider = int(cap * WIDER) if cap is not None else model.window
    return wider if wider < model.window else None


def base_context(
    *,
    user: User,
    model: Model,
    scope: ChatScope,
    asked_at: datetime | None = None,
    version: UUID | None = None,
    reminders: Sequence[str] | None = None,
) -> TurnContext:
    """Return a context without tools and tasks, by which budgets of documents and summaries are made.

    `asked_at`: by default now. `version` of the workspace and `reminders`: of a turn that was claimed, so that nobody
    asks the database for them again.
    """
    persona = scope.persona
    version = version or version_now()
    rules = rules_at(version)
    return TurnContext(
        user=user,
        model=model,
        persona=persona,
        profile=rules.profile_of(persona),
        system_prompt=rules.system_prompt,
        reminders=reminders_for(persona) if reminders is None else reminders,
        asked_at=asked_at or timezone.now(),
        conversation=scope.conversation,
        project=scope.project,
        asked_effort=scope.conversation.effort if scope.conversation is not None else "",
        rights=rights_of(user, version),
        workspace=rules.workspace,
        texts=rules.texts,
    )


def context_of_claimed_turn(claimed: ClaimedTurn, model: Model, *, searched: bool = False) -> TurnContext:
    """Return the context of a turn that a worker has claimed. `with_offered_tools` adds what is not in the database.

    `searched`: another model has searched the files in this turn, and the person's question with it.
    """
    turn = claimed.turn
    scope = scope_of(turn.conversation)
    base = base_context(
        user=turn.conversation.owner,
        model=model,
        scope=scope,
        asked_at=turn.user_message.created,
        version=claimed.version,
        reminders=claimed.reminders,
    )
    context = _with_turn(base, turn, scope, run_step=_run_step(claimed.run_step), searched=searched)
    context = replace(
        context,
        tasks=tasks_of_turn(claimed, whole_day=context.workspace.today_tasks),
        summarised=claimed.has_summary,
        marked=claimed.has_marks,
        window_cap=_cap_of(claimed, model),
    )
    return _with_prompt_cap(context, turn)


def context_of_past_turn(turn: Turn, model: Model, *, workspace: Workspace | None = None) -> TurnContext:
    """Return the context in which a stored turn is planned again, without its tasks.

    `workspace`: its settings at that time.
    """
    step: RunStep | None = getattr(turn, "step", None)
    scope = scope_of(turn.conversation)
    base = base_context(user=turn.conversation.owner, model=model, scope=scope, asked_at=turn.user_message.created)
    context = _with_turn(replace(base, workspace=workspace or base.workspace), turn, scope, run_step=step)
    return _with_prompt_cap(context, turn)


def _with_turn(
    context: TurnContext, turn: Turn, scope: ChatScope, *, run_step: RunStep | None = None, searched: bool = False
) -> TurnContext:
    """Return the context with the tools and options of the turn."""
    toolbox = toolbox_for(
        scope,
        hand=Hand(context.user, context.model.name, turn.conversation_id, run_step),
        model=context.model,
        question="" if searched else turn.user_message.text,
        chosen=_chosen_tools(context),
        search_asks=search_asks(context.user, context.workspace),
    )
    return replace(
        context, toolbox=toolbox, options=options_of(turn.options), run_step=run_step, asked_effort=turn.effort
    )


def _with_prompt_cap(context: TurnContext, turn: Turn) -> TurnContext:
    if turn.prompt_cap is None:
        return context
    least = context.window_for_prompt(turn.prompt_cap)
    return replace(context, window_cap=min(least, context.window_cap or least))


def _cap_of(claimed: ClaimedTurn, model: Model) -> int | None:
    """Return the smaller window of the conversation with this model, if it has one."""
    caps = {prompt.model_id: prompt.window_cap for prompt in claimed.earlier_prompts}
    return wider_cap(caps.get(model.pk), model)


async def with_offered_tools(context: TurnContext) -> TurnContext:
    """With the tools that servers list now and those that the calling program brings along."""
    box = await with_server_tools(context.toolbox, context.persona, context.model, context.rights)
    offered = context.options.tools if context.options.tool_choice != "none" else ()
    box = with_external_tools(box, offered)
    return replace(context, toolbox=within_limit(box, context.persona, context.model))


def context_of_draft(*, base: TurnContext, scope: ChatScope, text: str, files: Sequence[File]) -> TurnContext:
    """What a turn of this draft would be made under. Tool servers are not asked: their last lists count."""
    conversation = scope.conversation.pk if scope.conversation is not None else None
    hand, chosen = Hand(base.user, base.model.name, conversation), _chosen_tools(base)
    box = toolbox_for(
        scope,
        hand=hand,
        model=base.model,
        question=text,
        files=files,
        chosen=chosen,
        search_asks=search_asks(base.user, base.workspace),
    )
    tools = with_known_tools(box, base.persona, base.model, base.rights)
    tools = within_limit(tools, base.persona, base.model)
    return replace(base, toolbox=tools, tasks=tasks_of_draft(base, text))


def _chosen_tools(context: TurnContext) -> Sequence[str]:
    """Of those for the web and for tasks: the persona's or, without one, what the workspace offers, and the web only
    where the person may use it. The tasks of a program's owner are not its business."""
    if context.persona is not None:
        offered = list(context.persona.tools)
    else:
        tasks = context.workspace.task_tools and _shows_tasks(context.conversation)
        offered = [*WEB, TASKS] if tasks else [*WEB]
    return offered if May.WEB in context.rights.may else [name for name in offered if name not in WEB]


def tasks_of_turn(claimed: ClaimedTurn, *, whole_day: bool = True) -> PromptTasks | None:
    """Return today's tasks and those mentioned today; without the `whole_day` only the latter.

    The claim knows whether there are any, so that a person without tasks costs no query more.
    "Mentioned today": a message of this person, in whatever conversation, sent on the day of the question in the
    person's timezone, mentions it with @.
    """
    conversation = claimed.turn.conversation
    if not claimed.has_tasks or not _shows_tasks(conversation):
        return None
    day = today(conversation.owner, claimed.turn.user_message.created)
    mentioned = {mention.code for mention in claimed.mentions if mention.day == day}
    return tasks_for_prompt(
        user=conversation.owner, on=day, mentioned=mentioned, whole_day=whole_day, conversation=conversation.pk
    )


def tasks_of_draft(base: TurnContext, text: str) -> PromptTasks | None:
    """What would stand in the prompt if the draft were sent now; its own mentions count too."""
    if not _shows_tasks(base.conversation):
        return None
    user, day = base.user, today(base.user, base.asked_at)
    before = Mention.objects.filter(user=user, day=day).values_list("code", flat=True)
    mentioned = {*before, *codes.mentions(text)}
    place = base.conversation.pk if base.conversation is not None else None
    whole_day = base.workspace.today_tasks
    return tasks_for_prompt(user=user, on=day, mentioned=mentioned, whole_day=whole_day, conversation=place)


def _shows_tasks(conversation: Conversation | None) -> bool:
    """A program that speaks OpenAI's protocol asks what it asks; the day of its token's owner is not its business."""
    return conversation is None or conversation.origin != Conversation.Origin.API


def _run_step(pk: int | None) -> RunStep | None:
    related = ("run__task", "run__item", "run__owner")
    return RunStep.objects.select_related(*related).get(pk=pk) if pk is not None else None
