"""Collect everything a turn's prompts depend on besides the messages.

A `TurnContext` holds the user, the model, the persona, the budget profile, the tools, the tasks and a program's
options. It is read once per turn. `base_context` returns it without tools and tasks. `context_of_claimed_turn`,
`context_of_past_turn` and `context_of_draft` add the tools, options and tasks of their turn.
"""

import asyncio
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple, NotRequired, TypedDict, cast
from uuid import UUID

from django.utils import timezone

from accounts.access.rights import NO_RIGHTS, Rights, rights_of, search_asks
from accounts.models import Right, User
from chat.context.memory import ChosenMemory
from chat.context.rendering import CitationNumbers, NoteForm, note_text
from chat.context.types import ContextRequest, Reason, Room, Section, floored
from chat.memory.choosing import NO_MEMORY, PersonMemory, choose_section, read_memory
from chat.memory.models import Profile
from chat.memory.services import REMEMBER_TOOL
from chat.models import Conversation, Mention, Message, Summary, Turn
from chat.models.conversation import NamedRow, TurnScope
from chat.models.conversation_state import ChatScope, scope_of
from chat.models.queries import ClaimedTurn
from chat.models.summary import Marks, in_force
from chat.prompts.history import Documents
from chat.tools.past_conversations import SEARCH_CONVERSATIONS
from chat.tools.tasks import TaskToolContext
from chat.tools.toolbox import (
    NO_TOOLS,
    Toolbox,
    toolbox_for,
    with_external_tools,
    with_known_tools,
    with_server_tools,
    with_tools_on_demand,
    within_limit,
)
from core.sentences import NO_SENTENCE, Sentence
from files.models import File
from llm import tokens
from llm.learning import MIN_STORED_WINDOW, window_source
from llm.model_size import is_small
from llm.models import Model
from llm.services import MIN_TRUSTED_SAMPLES
from llm.tokens import NamedTokenizer
from llm.tools.servers import SessionScope
from llm.types.model_call import EFFORTS, NO_SAMPLING, Sampling, ToolChoice, ToolDefinition
from personas.models import BudgetProfile, Persona, SystemPrompt
from personas.services import reminder_texts, rules_at
from personas.texts import BUILT_IN, BUILT_IN_DIGEST, Texts
from personas.tools import TASK_TOOLS, WEB_TOOLS
from projects.models import Project, ProjectFile
from projects.planner.models import RunStep, codes
from projects.planner.queries import PromptTasks, tasks_for_prompt, today
from workspace.models import Workspace
from workspace.models.version import version_now

# Tokens to expect of a step's reasoning, by its effort. The numbers are our judgement (“The room” in
# docs/develop/context.md). USUAL_EFFORT stands for the provider's default.
REASONING_TOKENS = {
    "none": 0, "minimal": 512, "low": 1_024, "medium": 4_096, "high": 8_192, "xhigh": 16_384, "max": 32_768,
}  # fmt: skip
USUAL_EFFORT = "medium"
REASONING_DIVISOR = 4  # reasoning gets at most a quarter of the window
RATIO_RESIDUE = Decimal("0.01")  # the share of the window that a learnt ratio leaves uncertain
MAX_TOOLS = 128  # tools per program
CAP_GROWTH = 1.25  # the factor by which the smaller window of one conversation grows from turn to turn
# The fields of a profile, a model and the workspace that a plan reads. They are stored with every report, since the
# rows may change.
PLANNED_PROFILE_FIELDS = (
    *("window", "reserved_output", "buffer", "message_overhead", "safety_margin", "catch_all_margin"),
    *("project_share", "tool_share", "omission_note", "effort", "max_cycles"),
    *("note_form", "reminder_place", "always_remind_citations", "memory_share", "memory_most"),
)
PLANNED_MODEL_FIELDS = (
    "tokenizer", "vision", "tools", "max_output", "efforts", "effort", "token_ratio", "ratio_samples",
)  # fmt: skip
PLANNED_WORKSPACE_FIELDS = ("date_awareness", "task_tools", "today_tasks")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


class StoredToolDefinition(TypedDict):
    """A `ToolDefinition` as it is stored. `parameters` is JSON text."""

    name: str
    description: str
    parameters: str


class StoredSampling(TypedDict, total=False):
    """A `Sampling` as it is stored."""

    top_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    seed: int | None
    reasoning_effort: str | None
    verbosity: str | None


class StoredOptions(TypedDict):
    """`ProgramOptions` as they are stored (`Turn.options`). `response_format` is JSON text.

    `sent_files`: ids of the files whose content came in the request. They are deleted with its conversation.
    """

    instructions: str
    replaces_system: NotRequired[bool]
    temperature: float | None
    max_output: int | None
    stop: Sequence[str]
    tools: Sequence[StoredToolDefinition]
    tool_choice: NotRequired[ToolChoice]
    required_tool: NotRequired[str | None]
    parallel_tool_calls: NotRequired[bool]
    # Turns of earlier versions lack these two.
    sampling: NotRequired[StoredSampling]
    response_format: NotRequired[str]
    sent_files: NotRequired[list[str]]
    unoffered_tools: NotRequired[Sequence[str]]


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """The options of a program's request.

    `instructions` is the text of the program's system messages. `replaces_system`: the instructions replace the
    workspace's system prompt. `max_output` is in tokens of each model call. `tools` are the program's own tools, which
    it runs itself. `unoffered_tools` names those that nobody here can run. `tool_choice` and `required_tool` hold for
    the first call. `response_format` is the same as in `llm.types.model_call.ModelRequest`.
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
    unoffered_tools: tuple[str, ...] = ()

    def format_tokens(self, tokenizer: NamedTokenizer) -> int:
        """Count the schema of the answer. Providers send it to the model like the definition of a tool."""
        schema = (self.response_format or {}).get("json_schema")
        return tokenizer.count(json.dumps(schema, ensure_ascii=False, sort_keys=True)) if schema else 0

    def as_json(self) -> StoredOptions:
        """Return the options for storage. Schemas become text, since PostgreSQL would reorder their properties."""
        return {
            "instructions": self.instructions,
            "replaces_system": self.replaces_system,
            "temperature": self.temperature,
            "max_output": self.max_output,
            "stop": self.stop,
            "tools": [
                {"name": tool.name, "description": tool.description, "parameters": json.dumps(tool.parameters)}
                for tool in self.tools
            ],
            "tool_choice": self.tool_choice,
            "required_tool": self.required_tool,
            "parallel_tool_calls": self.parallel_tool_calls,
            "sampling": {
                "top_p": self.sampling.top_p,
                "presence_penalty": self.sampling.presence_penalty,
                "frequency_penalty": self.sampling.frequency_penalty,
                "seed": self.sampling.seed,
                "reasoning_effort": self.sampling.reasoning_effort,
                "verbosity": self.sampling.verbosity,
            },
            "response_format": json.dumps(self.response_format),
            "unoffered_tools": self.unoffered_tools,
        }


def parse_options(stored: StoredOptions | None) -> ProgramOptions:
    """Return the options that `ProgramOptions.as_json` stored. A user's turn has no stored options."""
    if not stored:
        return NO_OPTIONS
    tools = stored["tools"]
    return ProgramOptions(
        instructions=stored["instructions"],
        replaces_system=stored.get("replaces_system", False),
        temperature=stored["temperature"],
        max_output=stored["max_output"],
        stop=tuple(stored["stop"]),
        tools=tuple(ToolDefinition(t["name"], t["description"], json.loads(t["parameters"])) for t in tools),
        tool_choice=stored.get("tool_choice", "auto"),
        required_tool=stored.get("required_tool"),
        parallel_tool_calls=stored.get("parallel_tool_calls", True),
        sampling=Sampling(**stored.get("sampling", {})),
        response_format=json.loads(stored.get("response_format", "null")),
        unoffered_tools=tuple(stored.get("unoffered_tools", ())),
    )


NO_OPTIONS = ProgramOptions()

PlannedValue = str | int | float | list[str] | None


class MadeWith(TypedDict):
    """The values that are needed to repeat a plan and are not in its report. Decimals are text.

    `profile`, `workspace` and `model` hold fields of these rows. `texts` is the digest of the built-in texts.
    """

    profile: Mapping[str, PlannedValue]
    workspace: Mapping[str, PlannedValue]
    model: Mapping[str, PlannedValue]
    true_ratio: str | None
    margin: str
    texts: str


class ChosenEffort(NamedTuple):
    """The effort of reasoning that is `sent` to the model. Empty stands for the provider's default.

    `note` explains a difference from the chosen effort.
    """

    sent: str
    note: Sentence = NO_SENTENCE


def effort_not_taken(model: str, chosen: str, sent: str) -> Sentence:
    """Return the note that the model does not take the chosen effort."""
    if sent:
        return Sentence(
            "{model} does not take the effort of reasoning “{wanted}”; “{taken}” was sent.",
            model=model,
            wanted=chosen,
            taken=sent,
        )
    return Sentence(
        "{model} does not take the effort of reasoning “{wanted}”; none was sent.", model=model, wanted=chosen
    )


def effort_lowered(model: str, max_output: int, chosen: str, sent: str) -> Sentence:
    """Return the note that the effort is lowered, so that the answer has room."""
    return Sentence(
        "An answer of {model} has at most {most} tokens, its reasoning included. With the effort “{wanted}” hardly "
        "any might be left to write, so “{taken}” was sent.",
        model=model,
        most=max_output,
        wanted=chosen,
        taken=sent,
    )


@dataclass(frozen=True)
class TurnContext:
    """Everything a turn's prompts depend on besides the messages. Read once per turn.

    `summarised` and `marked`: the conversation may have a summary or marks; if not, no query is made. `true_ratio` is
    the provider's tokens per token of our count, if the provider has counted this very prompt. `asked_effort` is the
    user's choice of effort. `window_cap`, in tokens, is a smaller window than the model's for this conversation only.
    `image_cap` is a smaller limit on images than the model's for this turn only. `scope_above` is the scope of the
    answer above the question. `memory` is what is remembered about the user, as far as the prompt may need it.
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
    options: ProgramOptions = NO_OPTIONS
    tasks: PromptTasks | None = None
    memory: PersonMemory = NO_MEMORY
    run_step: RunStep | None = None
    summarised: bool = True
    marked: bool = True
    true_ratio: Decimal | None = None
    asked_effort: str = ""
    window_cap: int | None = None
    image_cap: int | None = None
    scope_above: TurnScope = field(default_factory=TurnScope)
    rights: Rights = NO_RIGHTS
    workspace: Workspace = field(default_factory=Workspace)
    texts: Texts = BUILT_IN

    @cached_property
    def tokenizer(self) -> tokens.NamedTokenizer:
        return tokens.tokenizer(self.model.tokenizer or tokens.CATCH_ALL)

    @property
    def scope(self) -> TurnScope:
        """Return the scope to store with the turn."""
        rows = {"persona": self.persona, "project": self.project, "model": self.model}
        named = {kind: NamedRow(id=str(row.pk), name=row.name) for kind, row in rows.items() if row is not None}
        return cast("TurnScope", named)

    @property
    def tasks_off(self) -> Reason | None:
        """Return why the prompt has no tasks; None if it may have some. A run is about tasks, so it always may."""
        if self.run_step is not None:
            return None
        if not self.user.tasks_in_prompts:
            return "tasks_off"
        here = self.conversation is None or self.conversation.tasks_in_prompts
        return None if here else "tasks_off_here"

    @property
    def for_program(self) -> bool:
        """Return whether the conversation is one request of a program that speaks OpenAI's protocol."""
        return self.conversation is not None and self.conversation.origin == Conversation.Origin.API

    @property
    def exact(self) -> bool:
        """Return whether the tokenizer is the model's own."""
        return bool(self.model.tokenizer)

    @property
    def window(self) -> int:
        """Return the window that the model, the profile and this conversation allow, in tokens."""
        caps = (self.model.window, self.profile.window, self.window_cap)
        return min(cap for cap in caps if cap is not None)

    @property
    def window_source(self) -> str:
        """Return the source of the window: `profile`, `conversation`, or a source of the model (`llm.learning`)."""
        if self.window == self.model.window:
            return window_source(self.model)
        return "profile" if self.window == self.profile.window else "conversation"

    @property
    def image_limit(self) -> int | None:
        """Return the maximum number of images in one prompt; None without a limit."""
        return min((cap for cap in (self.model.image_limit, self.image_cap) if cap is not None), default=None)

    def window_for_prompt(self, tokens: int) -> int:
        """Return the window that limits a prompt with its tools to `tokens` tokens."""
        needed = tokens + self.room.reserved_output + self.room.buffer
        return max(MIN_STORED_WINDOW, int(needed / (1 - min(self.margin, Decimal("0.9")))))

    @property
    def room(self) -> Room:
        """Return the window with its reserves (docs/develop/context.md, “The room”)."""
        profile = self.profile
        return Room(
            self.window,
            reserved_output=self._within_max_output(profile.reserved_output + self.reasoning_tokens),
            buffer=profile.buffer,
            safety_margin=self.margin,
            tools_tokens=self.toolbox.tokens(self.tokenizer) + self.options.format_tokens(self.tokenizer),
        )

    def _within_max_output(self, tokens: int) -> int:
        return min(tokens, self.model.max_output or tokens)

    @cached_property
    def effort(self) -> "ChosenEffort":
        """Return the effort of reasoning.

        A program's own choice is sent unchanged. Otherwise the first choice that the model takes is sent, in the order
        user, persona, profile, model. It is lowered if reasoning could use up the model's longest answer.
        """
        if demanded := self.options.sampling.reasoning_effort:
            return ChosenEffort(demanded)
        persona = self.persona.effort if self.persona is not None else ""
        choices = [each for each in (self.asked_effort, persona, self.profile.effort, self.model.effort) if each]
        offered = [each for each in EFFORTS if each in self.model.offered_efforts]
        effort = next((each for each in choices if each in offered), "")
        note: Sentence = NO_SENTENCE
        if choices and choices[0] != effort and (offered or self.asked_effort):
            note = effort_not_taken(self.model.label, choices[0], effort)
        if effort and self.model.max_output and 2 * REASONING_TOKENS[effort] > self.model.max_output:
            fitting = [each for each in offered if 2 * REASONING_TOKENS[each] <= self.model.max_output]
            lower = fitting[-1] if fitting else offered[0]
            if lower != effort:
                return ChosenEffort(lower, effort_lowered(self.model.label, self.model.max_output, effort, lower))
        return ChosenEffort(effort, note)

    @property
    def reasoning_tokens(self) -> int:
        """Return the tokens reserved for reasoning, which is part of the answer."""
        sent = self.effort.sent
        if not (sent or self.model.offered_efforts):
            return 0
        share = self.window // REASONING_DIVISOR
        return min(REASONING_TOKENS[sent or USUAL_EFFORT], share, (self.model.max_output or 2 * share) // 2)

    def summary_above(self, leaf: Message, marks: Marks) -> Summary | None:
        """Return the summary in force on the branch of `leaf`, if any."""
        return in_force(leaf.conversation_id, leaf.pk, marks) if self.summarised else None

    def chosen_memory(self, summary: Summary | None) -> ChosenMemory | None:
        """Return the memory section of a prompt with this summary in force; None if there is nothing to send."""
        return choose_section(
            self.memory,
            summary=str(summary.pk) if summary is not None else "",
            profile=self.profile,
            # Without the tools, which differ from turn to turn: the section shall stay the same.
            input_limit=self.room.input_limit + self.room.tools_tokens,
            tokenizer=self.tokenizer,
            texts=self.texts,
            wrap=note_text("{text}", self.note_form, self.texts),
        )

    @property
    def note_form(self) -> NoteForm:
        """Return the form that marks texts of the workspace (docs/develop/context.md, “Notes”)."""
        form = self.profile.note_form
        if form == BudgetProfile.NoteForm.AUTOMATIC:
            return "plain" if is_small(self.model.name) else "heading"
        return form  # type: ignore[return-value]  # the field's other choices are these words

    def project_entries(self) -> list[ProjectFile]:
        """Return the files of the project."""
        return list(ProjectFile.objects.filter(project=self.project).select_related("file"))

    def completed(
        self, frame: ContextRequest, sections: Collection[Section] | None = None, variant: str = ""
    ) -> ContextRequest:
        """Return the request to plan instead of `frame`, a prompt without its messages.

        Here this is `frame` itself. `chat.lab` overrides the method to plan a stored turn again. `sections` limits the
        texts that are replaced; all by default. `variant` names the set of texts in a plan that tries several sets.
        """
        return frame

    def made_with(self) -> MadeWith:
        """Return the values that a plan depends on and its report does not show."""
        profile = {name: getattr(self.profile, name) for name in PLANNED_PROFILE_FIELDS}
        return {
            "profile": {name: str(value) if isinstance(value, Decimal) else value for name, value in profile.items()},
            "workspace": {name: getattr(self.workspace, name) for name in PLANNED_WORKSPACE_FIELDS},
            "model": {
                "window": min(self.model.window, self.window_cap or self.model.window),
                "max_images": self.image_limit,
                **{name: getattr(self.model, name) for name in PLANNED_MODEL_FIELDS},
            },
            "true_ratio": str(self.true_ratio) if self.true_ratio is not None else None,
            "margin": str(self.margin),
            "texts": BUILT_IN_DIGEST,
        }

    def documents(self) -> Documents:
        """Return a new collection of documents for one plan. It continues the conversation's citation numbers."""
        numbers = CitationNumbers(self.conversation.documents if self.conversation is not None else {})
        return Documents(self.tokenizer, self.model.vision, numbers, self.texts)

    @property
    def margin(self) -> Decimal:
        """Return the share of the window reserved because counts may be wrong (docs/develop/context.md, “The room”).

        An exact tokenizer needs only the profile's safety margin. The catch-all tokenizer needs the profile's catch-all
        margin, until usage has taught the model's ratio of reported to counted tokens. Then the ratio gives the margin.
        """
        if self.true_ratio is not None:
            return max(self.profile.safety_margin, 1 - 1 / self.true_ratio)
        if self.exact:
            return self.profile.safety_margin
        if self.model.ratio_samples < MIN_TRUSTED_SAMPLES:
            return self.profile.catch_all_margin
        ratio = Decimal(str(max(1.0, self.model.token_ratio)))
        return min(Decimal("0.5"), (1 - 1 / ratio + RATIO_RESIDUE).quantize(Decimal("0.0001")))


def wider_cap(cap: int | None, model: Model) -> int | None:
    """Return the window cap of a conversation's next prompt after a longer prompt was refused; None without a cap.

    The cap grows by a quarter from turn to turn, since the cap is only a guess (docs/develop/context.md, “Refusals”).
    """
    wider = int(cap * CAP_GROWTH) if cap is not None else model.window
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
    """Return a context without tools and tasks. Budgets of documents and summaries need no more.

    `asked_at` is now by default. A claimed turn brings the `version` of the workspace and the `reminders`, which saves
    queries.
    """
    persona = scope.persona
    version = version or version_now()
    rules = rules_at(version)
    return TurnContext(
        user=user,
        model=model,
        persona=persona,
        profile=rules.profile_for(persona),
        system_prompt=rules.system_prompt,
        reminders=reminder_texts(persona) if reminders is None else reminders,
        asked_at=asked_at or timezone.now(),
        conversation=scope.conversation,
        project=scope.project,
        asked_effort=scope.conversation.effort if scope.conversation is not None else "",
        rights=rights_of(user, version),
        workspace=rules.workspace,
        texts=rules.texts,
    )


def context_of_claimed_turn(claimed: ClaimedTurn, model: Model, *, searched: bool = False) -> TurnContext:
    """Return the context of a turn that a worker has claimed. `with_offered_tools` adds the tools of servers.

    `searched`: another model has already searched the files for the user's question in this turn.
    """
    turn = claimed.turn
    scope = scope_of(turn.conversation)
    base = base_context(
        user=turn.conversation.owner,
        model=model,
        scope=scope,
        asked_at=turn.user_message.created,
        version=claimed.version,
        reminders=[each.text for each in claimed.reminders if each.applies_to(scope.persona)],
    )
    memory = read_memory(base.user, scope, turn.user_message.text, base.workspace, stored=claimed.has_memory)
    base = replace(base, memory=memory)
    context = _with_turn(base, turn, scope, run_step=_run_step(claimed.run_step), searched=searched)
    context = replace(
        context,
        tasks=tasks_of_turn(claimed, whole_day=context.workspace.today_tasks),
        summarised=claimed.has_summary,
        marked=claimed.has_marks,
        window_cap=_cap_of(claimed, model),
        scope_above=claimed.scope_above,
    )
    return _with_prompt_cap(context, turn)


def context_of_past_turn(turn: Turn, model: Model, *, workspace: Workspace | None = None) -> TurnContext:
    """Return the context in which a stored turn is planned again, without its tasks.

    `workspace` holds the settings of that time.
    """
    step: RunStep | None = getattr(turn, "step", None)
    scope = scope_of(turn.conversation)
    base = base_context(user=turn.conversation.owner, model=model, scope=scope, asked_at=turn.user_message.created)
    # The tools of that time are chosen from these, so those of the memory have to be among them.
    memory = PersonMemory(proposals=Profile.Proposals.ASK, searches=True) if not base.for_program else NO_MEMORY
    base = replace(base, workspace=workspace or base.workspace, memory=memory)
    context = _with_turn(base, turn, scope, run_step=step)
    return _with_prompt_cap(context, turn)


def _with_turn(
    context: TurnContext, turn: Turn, scope: ChatScope, *, run_step: RunStep | None = None, searched: bool = False
) -> TurnContext:
    """Return the context with the tools and options of the turn."""
    toolbox = toolbox_for(
        scope,
        task_context=TaskToolContext(context.user, context.model.name, turn.conversation_id, run_step),
        model=context.model,
        question="" if searched or turn.user_message.files_alone else turn.user_message.text,
        chosen=_chosen_tools(context, run_step),
        search_asks=search_asks(context.user, context.workspace),
        answer=turn.answer_id,
    )
    return replace(
        context, toolbox=toolbox, options=parse_options(turn.options), run_step=run_step, asked_effort=turn.effort
    )


def _with_prompt_cap(context: TurnContext, turn: Turn) -> TurnContext:
    """Return the context with a window small enough for the turn's `prompt_cap`, if it has one."""
    if turn.prompt_cap is None:
        return context
    least = context.window_for_prompt(turn.prompt_cap)
    return replace(context, window_cap=min(least, context.window_cap or least))


def _cap_of(claimed: ClaimedTurn, model: Model) -> int | None:
    """Return the smaller window of the conversation with this model, if it has one."""
    caps = {prompt.model_id: prompt.window_cap for prompt in claimed.earlier_prompts}
    return wider_cap(caps.get(model.pk), model)


async def with_offered_tools(context: TurnContext, sessions: SessionScope) -> TurnContext:
    """Return the context with the tools that servers list now and the tools of the calling program.

    `sessions`: where the sessions with the servers stay open.
    """
    box = await with_server_tools(context.toolbox, context.persona, context.model, context.rights, sessions)
    # In a thread: the definitions of a long list take a fraction of a second to count.
    return await asyncio.to_thread(_with_program_tools, context, box)


def with_expected_tools(context: TurnContext) -> TurnContext:
    """Return the context with the tools that servers listed last and the tools of the calling program."""
    box = with_known_tools(context.toolbox, context.persona, context.model, context.rights, context.user.pk)
    return _with_program_tools(context, box)


def _with_program_tools(context: TurnContext, box: Toolbox) -> TurnContext:
    options = context.options
    box = with_external_tools(box, options.tools if options.tool_choice != "none" else (), options.unoffered_tools)
    return with_definitions_that_fit(replace(context, toolbox=box))


def with_definitions_that_fit(context: TurnContext) -> TurnContext:
    """Return the context with its tools listed by name if their definitions are too long or too many.

    Call it again when the room has changed, or when the model has loaded tools. It counts the definitions of all tools.
    """
    model = context.model
    room = max(0, replace(context, toolbox=NO_TOOLS).room.input_limit)
    box = with_tools_on_demand(
        context.toolbox,
        model=model,
        room=room,
        share=floored(room, context.profile.tool_share),
        tokenizer=context.tokenizer,
        conversation=context.conversation or Conversation(owner=context.user),
    )
    return replace(context, toolbox=within_limit(box, context.persona, model))


def context_of_draft(*, base: TurnContext, scope: ChatScope, text: str, files: Sequence[File]) -> TurnContext:
    """Return the context that a turn of this draft would have.

    Tool servers are not asked: their last lists are used.
    """
    conversation = scope.conversation.pk if scope.conversation is not None else None
    base = replace(base, memory=read_memory(base.user, scope, text, base.workspace))
    box = toolbox_for(
        scope,
        task_context=TaskToolContext(base.user, base.model.name, conversation),
        model=base.model,
        question=text,
        files=files,
        chosen=_chosen_tools(base),
        search_asks=search_asks(base.user, base.workspace),
    )
    tools = with_known_tools(box, base.persona, base.model, base.rights, base.user.pk)
    context = with_definitions_that_fit(replace(base, toolbox=tools))
    return replace(context, tasks=tasks_of_draft(base, text))


def _chosen_tools(context: TurnContext, run_step: RunStep | None = None) -> Sequence[str]:
    """Return the names of the tools for the web, for tasks and for the memory that the turn may use.

    A persona chooses them; without one the workspace does. The web needs the user's right. A program gets no tools for
    its owner's tasks. The user allows the tools that propose facts and that search other conversations. The steps
    of a run propose no facts, since nobody has written their questions.
    """
    if context.persona is not None:
        offered = list(context.persona.tools)
    else:
        tasks = context.workspace.task_tools and _shows_tasks(context.conversation)
        offered = [*WEB_TOOLS, TASK_TOOLS] if tasks else [*WEB_TOOLS]
    if context.memory.proposals != Profile.Proposals.OFF and run_step is None:
        offered.append(REMEMBER_TOOL)
    if context.memory.searches:
        offered.append(SEARCH_CONVERSATIONS)
    return offered if Right.WEB in context.rights.may else [name for name in offered if name not in WEB_TOOLS]


def tasks_of_turn(claimed: ClaimedTurn, *, whole_day: bool = True) -> PromptTasks | None:
    """Return the prompt's tasks: the mentioned ones and, if `whole_day`, today's (docs/develop/context.md, “Tasks”).

    The claim knows whether the user has tasks, so a user without tasks costs no further query. A task is mentioned if a
    message of this user names it with @, in any conversation, on the day of the question in the user's timezone.
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
    """Return the tasks that the draft's prompt would hold. The mentions of the draft count too."""
    if not _shows_tasks(base.conversation):
        return None
    user = base.user
    day = today(user, base.asked_at)
    mentioned_before = Mention.objects.filter(user=user, day=day).values_list("code", flat=True)
    mentioned = {*mentioned_before, *codes.find_mentions(text)}
    conversation_id = base.conversation.pk if base.conversation is not None else None
    whole_day = base.workspace.today_tasks
    return tasks_for_prompt(user=user, on=day, mentioned=mentioned, whole_day=whole_day, conversation=conversation_id)


def _shows_tasks(conversation: Conversation | None) -> bool:
    """Return whether the conversation's prompts show tasks. Programs of OpenAI's protocol must not see any."""
    return conversation is None or conversation.origin != Conversation.Origin.API


def _run_step(pk: int | None) -> RunStep | None:
    related = ("run__task", "run__item", "run__owner")
    return RunStep.objects.select_related(*related).get(pk=pk) if pk is not None else None
