"""Plan one model call: build the context engine's request from rows, the prompt, and the request for the model.

Turns, the preview of a prompt before sending, and replays of stored turns all call `plan`:

1. It makes the frame: the system prompt, the persona, the tasks, the summary, the reminder and the limits.
2. It reads the branch from its end, as many messages as could fit. If the engine wants older messages, it reads more.
3. It attaches the files. `chat.prompts.files` decides which are sent whole and which are listed.
4. The context engine builds the prompt and its report.

`model_request` turns the prompt into the request for the model, `fingerprint` into the entry for its cache.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import NamedTuple

from django.utils import timezone
from django.utils.translation import get_language, get_language_info

from chat.context.build import Prompt, SourceEntry, build, required_tokens
from chat.context.cache import SentPrompt, cache_points, digest, prompt_pieces
from chat.context.memory import ChosenMemory
from chat.context.rendering import (
    CallState,
    DateAwareness,
    asked_at_text,
    note_text,
    reminder_text,
    system_text,
)
from chat.context.types import Block, ContextMessage, ContextRequest, PromptMessage, Reason, floored
from chat.models import Message as MessageRow
from chat.models import Summary
from chat.models.summary import NO_MARKS, marks_on, text_of
from chat.prompts.files import ProjectFiles, PromptFiles, older_attachments, project_files
from chat.prompts.gone import gone_parts
from chat.prompts.history import (
    Branch,
    Documents,
    MessageCounts,
    Row,
    messages_of,
    reasoned_by_others,
    unsent,
    with_reasoning,
    with_reasoning_of_calls,
)
from chat.prompts.turn_context import TurnContext
from core.sentences import Sentence
from files.index.ledger import Payer
from files.models import File
from files.services import open_shown
from llm.model_size import is_small
from llm.models import Provider
from llm.services import MIN_TRUSTED_SAMPLES, cache_rule
from llm.truncation import SentTokens, script_shares
from llm.types.model_call import Image, ModelMessage, ModelRequest, ToolChoice
from personas.models import BudgetProfile
from personas.variables import fill_variables
from projects.planner.models import Task, codes
from projects.planner.queries import mentioned_task_codes, render

# The policy `priority` skips turns that do not fit and tries older ones, so it needs more messages than fit. It reads
# at most this multiple of the room, since a conversation may be very long.
PRIORITY_READS = 4
NAMED_TASKS = 5  # most tasks that one note names

logger = logging.getLogger(__name__)


class MissingTasks(NamedTuple):
    """Codes of tasks that a question mentions and its prompt lacks.

    `unknown` tasks do not exist. `hidden` tasks exist, but the person leaves tasks out.
    """

    unknown: Sequence[str] = ()
    hidden: Sequence[str] = ()


NO_MISSING_TASKS = MissingTasks()


@dataclass(frozen=True, slots=True)
class CallStep:
    """The position of a model call in its turn.

    `searched`: a search tool has run. `last`: tools may no longer be called. `undefined`: the definitions of tools are
    not sent either. `web_unopened`: the web was searched and no page has been opened yet. `reminders` are the reminders
    that earlier cycles of an append-only turn sent, by the number of messages that the turn had added by then.
    `mentioned_tasks` are the tasks that the newest question mentions and the prompt lacks.
    """

    searched: bool = False
    last: bool = False
    undefined: bool = False
    first: bool = True
    web_unopened: bool = False
    reminders: Mapping[int, str] = field(default_factory=dict)
    mentioned_tasks: MissingTasks = NO_MISSING_TASKS


FIRST_STEP = CallStep()


def searches_of(names: Sequence[str], context: TurnContext) -> tuple[bool, bool]:
    """Return whether a turn has searched, and whether it has opened no page since its last web search.

    `names` are the tools that the turn has called, in the order of the calls.
    """
    searched = any(name in context.toolbox.searching for name in names)
    web = [name for name in names if name in ("web_search", "open_url")]
    return searched, bool(web) and web[-1] == "web_search"


class PlannedCall(NamedTuple):
    """The prompt of one model call with the rows behind it.

    `documents` holds the citation numbers of the plan; a turn stores them with its conversation. `summary` replaces the
    messages above it in the prompt. `notes` are sentences about content that was not sent. `searched` are the ids of
    attachments that the prompt only lists. `missing` are sources outside the engine that could not be sent. `memory`
    holds the facts that the section of the memory was made from.
    """

    prompt: Prompt
    documents: Documents
    summary: Summary | None = None
    notes: tuple[Sentence, ...] = ()
    searched: frozenset[str] = frozenset()
    missing: tuple[SourceEntry, ...] = ()
    memory: ChosenMemory | None = None


def plan(
    context: TurnContext,
    leaf: MessageRow | None,
    added: Sequence[ContextMessage] = (),
    files: Sequence[File] = (),
    step: CallStep = FIRST_STEP,
    later: list[MessageCounts] | None = None,
) -> PlannedCall:
    """Plan the prompt for the branch that ends at `leaf`, with the messages `added` below it.

    `added` is a draft, or the messages of this turn so far. `files` belong to a draft, which is the first of `added`.
    `later` is passed to `messages_of`. The number of queries does not depend on the length of the conversation. Raises
    `ContextError`.
    """
    documents = context.documents()
    question = _newest_question(leaf, added)
    step = replace(step, mentioned_tasks=_missing_tasks(context, question))
    project = _project_files(context, documents)
    branch = _branch(context, leaf) if leaf else None
    marks, summary = (branch.marks, branch.summary) if branch else (NO_MARKS, None)
    documents.marks = marks
    memory = context.chosen_memory(summary)
    frame = replace(_frame(context, step), summary=_summary_block(context, summary), memory=memory and memory.memory)
    frame = context.completed(frame)
    project_reports = list(documents.reports)
    tokenizer = context.tokenizer
    overhead = context.profile.message_overhead
    room = max(context.room.input_limit, 1)
    read = room * (PRIORITY_READS if context.profile.policy == BudgetProfile.Policy.PRIORITY else 1)
    while True:
        rows = branch.newest(room=read, tokenizer=tokenizer, overhead=overhead) if branch else []
        documents.reports = [*project_reports, *unsent(rows), *(branch.left_out(rows) if branch else ())]
        messages = documents.attach(
            messages_of(rows, tokenizer=tokenizer, overhead=overhead, marks=marks, later=later, texts=context.texts),
            rows,
        )
        if context.model.provider.kind == Provider.Kind.OPENAI:
            messages = with_reasoning(messages, rows, context.model)
        messages = _with_reasoning_of_calls(context, messages)
        stored = len(messages)
        messages += [documents.attach_to_draft(added[0], files), *added[1:]] if added else []
        messages = documents.attach_to_results(messages)
        for number, text in step.reminders.items():
            at = stored - 1 + number
            messages[at] = replace(messages[at], reminder=_block(context, text))
        unloaded = branch.unloaded(rows) if branch else 0
        request = replace(frame, messages=messages, unloaded=unloaded, extra_sources=tuple(documents.reports))
        older = (
            older_attachments(leaf, documents) if leaf and (unloaded or summary) and documents.numbers.assigned else ()
        )
        if context.project is not None or documents.attached or older:
            searched_for = "" if context.model.tools else question
            first = messages[:stored] if context.model.provider.append_only and not step.first else ()
            rules = partial(_with_rules, context, step)
            prompt_files = PromptFiles(
                project, documents, searched_for, older, _payer(context), context.note_form, rules
            )
            prompt = prompt_files.build(request, first)
            if prompt_files.passages and not step.searched:  # the product searched, since the model has no tools
                searching = _with_rules(context, replace(step, searched=True), request)
                if required_tokens(searching) <= context.room.input_limit:
                    prompt_files.with_documents = partial(_with_rules, context, replace(step, searched=True))
                    prompt = prompt_files.build(searching, first)
            searched = prompt_files.listed
            notes = prompt_files.notes
        else:
            prompt = build(request)
            searched = frozenset()
            notes = ()
        # Messages whose counts are not stored yet weigh nothing while reading. Rarely, this reads too few messages.
        if not prompt.wants_older or read > PRIORITY_READS * room:
            notes += _unread_reasoning(context, rows, prompt) + _surplus_images(context, prompt)
            parts = gone_parts(context)
            notes += (*_task_notes(step.mentioned_tasks.unknown), *parts.notes)
            missing = (
                *parts.sources,
                *_task_sources(context, step.mentioned_tasks),
                *_memory_sources(context, memory),
            )
            return PlannedCall(prompt, documents, summary, notes, searched, missing, memory)
        read *= 2


def _summary_block(context: TurnContext, summary: Summary | None) -> Block | None:
    return _block(context, text_of(summary, context.texts)) if summary is not None else None


def _branch(context: TurnContext, leaf: MessageRow) -> Branch:
    marks = marks_on(leaf.conversation_id, leaf.pk) if context.marked else NO_MARKS
    return Branch(leaf, context.summary_above(leaf, marks), marks)


def _with_reasoning_of_calls(context: TurnContext, messages: list[ContextMessage]) -> list[ContextMessage]:
    return with_reasoning_of_calls(messages, context.user, context.model, context.tokenizer, whole=context.for_program)


def _unread_reasoning(context: TurnContext, rows: Sequence[Row], prompt: Prompt) -> tuple[Sentence, ...]:
    """Return a note that answers of other models are sent without their reasoning, if there are any."""
    others = reasoned_by_others(rows, context.model)
    sent = {(message.source or "").partition("#")[0] for message in prompt.messages} if others else ()
    names = ", ".join(sorted({name for answer, name in others.items() if answer in sent}))
    if not names:
        return ()
    model = context.model.label
    return (
        Sentence(
            "{model} does not get the reasoning of {names} before tool calls: no other model can read it.",
            names=names,
            model=model,
        ),
    )


def _missing_tasks(context: TurnContext, question: str) -> MissingTasks:
    """Return the first tasks that the question mentions and the prompt lacks.

    Programs of OpenAI's protocol cannot mention tasks.
    """
    mentioned = (
        mentioned_task_codes(codes.find_mentions(question)) if "@" in question and not context.for_program else set()
    )
    if not mentioned:
        return NO_MISSING_TASKS
    existing = set(Task.objects.visible_to(context.user).filter(code__in=mentioned).values_list("code", flat=True))
    hidden = existing if context.tasks_off else ()
    return MissingTasks(sorted(mentioned - existing)[:NAMED_TASKS], sorted(hidden)[:NAMED_TASKS])


def _task_notes(unknown: Sequence[str]) -> tuple[Sentence, ...]:
    """Return a note on unknown tasks, if there are any."""
    if not unknown:
        return ()
    return (Sentence("There is no task {unknown}, so the model was shown none.", unknown=_with_marks(unknown)),)


def _task_sources(context: TurnContext, mentioned: MissingTasks) -> Iterator[SourceEntry]:
    """Yield the unknown tasks, and the tasks that the person leaves out, as sources."""
    for code in mentioned.unknown:
        yield _missing_task(code, f"@{code}", "unknown_task")
    reason = context.tasks_off
    for row in context.tasks.rows if context.tasks and reason else ():
        why = "mention_off" if row.code in mentioned.hidden else reason
        yield _missing_task(row.code, f"{row.code} {row.title}", why)


def _memory_sources(context: TurnContext, memory: ChosenMemory | None) -> Iterator[SourceEntry]:
    """Yield the facts without room, those that the person leaves out here, and why the memory is off."""
    for fact in memory.without_room if memory is not None else ():
        yield _missing_fact(fact.id, "memory_full")
    for use in context.memory.uses:
        if use.left_out and memory is not None:
            yield _missing_fact(str(use.fact.pk), "by_user")
    if context.memory.off:
        yield SourceEntry(kind="memory", state="left_out", reason=context.memory.off, tokens=0, exact=True)


def _missing_fact(pk: str, reason: Reason) -> SourceEntry:
    return SourceEntry(kind="fact", id=pk, state="left_out", reason=reason, tokens=0, exact=True)


def _missing_task(code: str, title: str, reason: Reason | None) -> SourceEntry:
    return SourceEntry(kind="task", id=code, title=title, state="left_out", reason=reason, tokens=0, exact=True)


def _with_marks(task_codes: Sequence[str]) -> str:
    """Return the codes with @, separated by commas."""
    return ", ".join(f"@{code}" for code in task_codes)


def _surplus_images(context: TurnContext, prompt: Prompt) -> tuple[Sentence, ...]:
    """Return a note that images were left out because the model takes fewer, if any were."""
    sources = prompt.report.sources
    surplus = sum(source.kind == "image" and source.reason == "too_many_images" for source in sources)
    limit = context.image_limit
    if not surplus or limit is None:
        return ()
    return (
        Sentence(
            "{name} takes at most {most} images in one prompt, so {surplus} older images are only named.",
            name=context.model.label,
            most=limit,
            surplus=surplus,
        ),
    )


def prompt_tokens(context: TurnContext) -> tuple[int, int]:
    """Return the tokens of S and of CA, without overhead."""
    system, persona = _prompts(context)
    return (system.tokens or 0 if system else 0), (persona.tokens or 0 if persona else 0)


def required_texts(context: TurnContext, summary: Summary | None) -> list[int]:
    """Return the tokens of each text in every prompt of the conversation: S, CA, K, M and R, without overhead."""
    frame = _frame(context, FIRST_STEP)
    blocks = (frame.system, frame.persona, frame.tasks, _summary_block(context, summary), frame.reminder)
    return [block.tokens or 0 for block in blocks if block]


def project_room(context: TurnContext) -> int:
    """Return the room in tokens, of which a project's files may take a share: window − reserved output − S − CA."""
    return context.room.window - context.room.reserved_output - sum(prompt_tokens(context))


def _program_replaces(context: TurnContext) -> bool:
    """Return whether a program's instructions replace the system prompt."""
    return bool(context.options.replaces_system and context.options.instructions)


def _persona_replaces(context: TurnContext) -> bool:
    """Return whether the persona replaces the system prompt."""
    persona = context.persona
    replaces = persona and persona.replaces_system_prompt and persona.instructions.strip()
    return bool(replaces and not _program_replaces(context))


def _prompts(context: TurnContext, step: CallStep = FIRST_STEP) -> tuple[Block | None, Block | None]:
    """Return S and CA. If the persona replaces the system prompt, CA holds only the project's instructions."""
    texts = context.texts
    persona = context.persona.instructions.strip() if context.persona else ""
    project = context.project.instructions.strip() if context.project else ""
    sections = [] if _program_replaces(context) else [context.options.instructions]
    if project and context.project:
        heading = texts.fill("project_heading", name=context.project.name)
        sections.insert(0, _headed(heading, _filled(context, project)))
    if persona and context.persona and not _persona_replaces(context):
        heading = texts.fill("persona_heading", name=context.persona.name)
        sections.insert(0, _headed(heading, _filled(context, persona)))
    instructions = "\n\n".join(text for text in sections if text)
    return _system(context, step), _block(context, note_text(instructions, context.note_form, texts))


def _filled(context: TurnContext, text: str) -> str:
    """Return a text with its variables, such as {{date}}, replaced by their values."""
    if "{{" not in text:
        return text
    asked_at = context.asked_at.astimezone(context.user.zone)
    language = context.user.language or get_language() or "en"
    values = {
        "date": f"{asked_at:%Y-%m-%d}",
        "weekday": f"{asked_at:%A}",
        "user.name": context.user.get_full_name() or context.user.get_username(),
        "user.language": get_language_info(language)["name"],
        "persona.name": context.persona.name if context.persona else "",
        "project.name": context.project.name if context.project else "",
        "model.name": context.model.name,
    }
    return fill_variables(text, values)


def _headed(heading: str, text: str) -> str:
    return f"{heading}\n{text}" if heading else text


def _system(context: TurnContext, step: CallStep, *, documents: bool = False) -> Block | None:
    """Return S, or the persona that replaces it. `documents`: numbered documents are in the prompt."""
    base = context.system_prompt.text.strip() if context.system_prompt else ""
    state = _call_state(context, step, documents=documents)
    if _program_replaces(context):
        return _block(context, system_text(context.options.instructions, state))
    if context.persona and _persona_replaces(context):
        base = context.persona.instructions.strip()
    return _block(context, system_text(_filled(context, base), state))


def _with_rules(context: TurnContext, step: CallStep, request: ContextRequest) -> ContextRequest:
    """Return the request with the S and R of a prompt with numbered documents."""
    reminder, above = _reminder(context, step, documents=True)
    system = _system(context, step, documents=True)
    with_rules = replace(request, system=system, reminder=reminder, reminder_above=above)
    return context.completed(with_rules, ("system", "reminder"), "searched" if step.searched else "documents")


def _reminder(context: TurnContext, step: CallStep, *, documents: bool = False) -> tuple[Block | None, bool]:
    """Return R, and whether it stands above the current turn.

    A model that binds its reasoning to the messages before it gets R last. A bare time never stands last
    (docs/develop/context.md, “Order”).
    """
    state = _call_state(context, step, documents=documents)
    reminders = list(context.reminders)
    for name, task_codes in zip(("tasks_unknown", "tasks_hidden"), step.mentioned_tasks, strict=True):
        if task_codes and context.texts[name]:
            reminders.append(context.texts.fill(name, tasks=_with_marks(task_codes)))
    if step.last and context.toolbox.definitions and context.texts["last_step"]:
        reminders.append(context.texts["last_step"])
    text = reminder_text(reminders, state) or ""
    without_time = reminder_text(reminders, replace(state, date_awareness="off"))
    place = context.profile.reminder_place
    above = place == BudgetProfile.ReminderPlace.ABOVE
    if place == BudgetProfile.ReminderPlace.AUTOMATIC:
        above = is_small(context.model.name)
    if state.append_only:
        above = False
    if text and without_time is None and not above:
        if state.append_only:
            text = note_text(asked_at_text(state), state.note_form, context.texts)
        else:
            above = True
    return _block(context, text), above


def expected_files(context: TurnContext) -> tuple[ProjectFiles, Documents]:
    """Return the project's files as they would be sent with a message that has the expected length and no files."""
    documents = context.documents()
    expected = ContextMessage("draft", "user", tokens=context.profile.expected_user)
    request = replace(_frame(context, FIRST_STEP), messages=[expected])
    files = PromptFiles(_project_files(context, documents), documents)
    return files.fitted(request, required_tokens(request)), documents


def _project_files(context: TurnContext, documents: Documents) -> ProjectFiles:
    if context.project is None:
        return ProjectFiles()
    entries = context.project_entries()
    return project_files(entries, documents, room=project_room(context), profile=context.profile)


def _frame(context: TurnContext, step: CallStep) -> ContextRequest:
    """Return the request without messages, files and the summary."""
    profile = context.profile
    system, persona = _prompts(context, step)
    reminder, above = _reminder(context, step)
    return ContextRequest(
        room=context.room,
        messages=(),
        tokenizer=context.tokenizer,
        policy=profile.policy,
        layout=profile.layout,
        message_overhead=profile.message_overhead,
        omission_note=profile.omission_note,
        system=system,
        tasks=_tasks(context),
        persona=persona,
        system_is_persona=_persona_replaces(context),
        reminder=reminder,
        reminder_above=above,
        whole_results=context.for_program,
        exact=context.exact,
        texts=context.texts,
        max_images=context.image_limit,
        versions=_versions(context),
    )


def _tasks(context: TurnContext) -> Block | None:
    """Return K; None without tasks, and where the person leaves them out."""
    if context.tasks is None or context.tasks_off:
        return None
    return _block(context, render(context.tasks, context.texts))


def _call_state(context: TurnContext, step: CallStep, *, documents: bool = False) -> CallState:
    # The choices of the field are the values of `DateAwareness`.
    awareness: DateAwareness = (context.persona or context.workspace).date_awareness  # type: ignore[assignment]
    return CallState(
        layout=context.profile.layout,
        asked_at=context.asked_at.astimezone(context.user.zone),
        date_awareness=awareness,
        tools=context.toolbox.guidance,
        available=frozenset() if step.last else frozenset(context.toolbox.tools),
        searched=step.searched,
        append_only=context.model.provider.append_only,
        texts=context.texts,
        documents=documents,
        always_remind=context.profile.always_remind_citations,
        web_unopened=step.web_unopened,
        note_form=context.note_form,
    )


def _versions(context: TurnContext) -> dict[str, str]:
    system_prompt = context.system_prompt if not _program_replaces(context) else None
    versions = {"system_prompt": str(system_prompt.version)} if system_prompt else {}
    versions |= {"persona": str(context.persona.version)} if context.persona else {}
    versions |= {"project": str(context.project.version)} if context.project else {}
    return versions | context.texts.versions()


def _block(context: TurnContext, text: str) -> Block | None:
    return Block(text, context.tokenizer.count(text)) if text else None


def added_messages(answer_id: object, added: Sequence[ModelMessage]) -> list[ContextMessage]:
    """Return the messages that this turn has added so far, for its next cycle."""
    return [
        ContextMessage(
            f"{answer_id}#{number}", message.role, message.text, tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id, reasoning=message.reasoning, result=message.result,
            result_files=tuple(each["file"] for each in message.files),
        )
        for number, message in enumerate(added, 1)
    ]  # fmt: skip


def draft_message(text: str) -> ContextMessage:
    """Return the message of a draft, which has no row yet."""
    return ContextMessage("draft", "user", text)


# A prompt that takes more than this percentage of the room is counted by its provider. The lower limit applies if our
# count is an estimate without a learnt ratio (docs/develop/context.md, “The room”).
COUNTED_FROM = 85
ROUGHLY_COUNTED_FROM = 50


def _payer(context: TurnContext) -> Payer:
    """Return the payer of searches for the prompt."""
    return Payer(context.user.pk, conversation=context.conversation.pk if context.conversation is not None else None)


def worth_counting(context: TurnContext, prompt: Prompt) -> bool:
    """Return whether an exact count could change the prompt or avoid a refusal."""
    report = prompt.report
    reliable = context.exact or context.model.ratio_samples >= MIN_TRUSTED_SAMPLES
    share = COUNTED_FROM if reliable else ROUGHLY_COUNTED_FROM
    return report.without_room > 0 or report.used * 100 > report.limit * share


def with_true_ratio(context: TurnContext, prompt: Prompt, count: int) -> TurnContext | None:
    """Return the context to plan again with, after the provider has counted `count` tokens; None if nothing changes."""
    own_count = prompt.report.used + context.room.tools_tokens
    recounted = replace(context, true_ratio=Decimal(count) / max(1, own_count))
    more_fits = recounted.margin < context.margin and prompt.report.without_room
    return recounted if more_fits or count > true_room(context) else None


def true_room(context: TurnContext) -> int:
    """Return the tokens that prompt and tools may take by the provider's count."""
    room = context.room
    return floored(room.window, 1 - context.profile.safety_margin) - room.reserved_output - room.buffer


def log_trimmed(context: TurnContext, prompt: Prompt) -> None:
    """Log one line about a trimmed prompt: the number of messages, the model, the limit, and the tools' tokens."""
    missing = prompt.report.without_room
    if missing:
        logger.info(
            "left out %d older messages to fit the context (model: %s, limit: %d tokens, tools: %d tokens)",
            missing, context.model.name, prompt.report.limit, context.room.tools_tokens,
        )  # fmt: skip


def sent_tokens(context: TurnContext, prompt: Prompt, request: ModelRequest) -> SentTokens:
    """Return the tokens of the texts and the tools, which providers count much as we do.

    Providers count images and replayed reasoning in their own ways, so a prompt with these is not `plain`. The tools
    count as 0 if none may be called, since some servers then leave their definitions out.
    """
    others = sum(
        sum(image.tokens for image in message.images) + (message.reasoning.tokens if message.reasoning else 0)
        for message in prompt.messages
    )
    tools = context.toolbox.tokens(context.tokenizer) if request.tool_choice != "none" else 0
    texts = sum(message.tokens for message in prompt.messages) - others
    return SentTokens(texts, tools, plain=not others, scripts=script_shares([each.text for each in request.messages]))


def _tool_choice(context: TurnContext, step: CallStep) -> ToolChoice:
    """Return the tool choice of the call. A tool is required only in the first step; after it the model chooses."""
    demanded = step.first and not step.last and context.options.tool_choice == "required"
    return "none" if step.last else "required" if demanded else "auto"


def _points(context: TurnContext, prompt: Prompt, step: CallStep) -> tuple[int, ...]:
    """Return the cache breakpoints: the numbers of the messages after which the provider is asked to cache the prompt.

    These are the borders of the prompt and, if tool calls may continue the turn, its end.
    """
    goes_on = context.toolbox.definitions and not step.last
    borders = (*prompt.borders, len(prompt.messages)) if goes_on else prompt.borders
    rule = cache_rule(context.model)
    return cache_points(prompt.messages, borders if rule.points == "any" else prompt.borders, rule)


def fingerprint(context: TurnContext, prompt: Prompt, step: CallStep = FIRST_STEP) -> SentPrompt:
    """Return the fingerprint for comparing a later prompt with this one (docs/develop/context.md, “Caching”)."""
    model = context.model
    response_format = context.options.response_format
    messages = prompt.messages
    definitions = [[tool.name, tool.description, json.dumps(tool.parameters)] for tool in context.toolbox.definitions]
    tools = digest(definitions, json.dumps(response_format)) if definitions or response_format else ""
    points = _points(context, prompt, step)
    if cache_rule(model).points == "user" and messages[-1].role in ("user", "tool"):
        points = (*points, len(messages))  # the provider sets this point by itself
    if not model.several_system_messages:
        messages = sorted(messages, key=lambda message: message.role != "system")
    return SentPrompt(
        pieces=prompt_pieces(messages, tools, context.room.tools_tokens),
        points=tuple(point + 1 for point in points),
        settings=digest([_tool_choice(context, step), context.effort.sent]),
        versions=prompt.report.versions,
        at=timezone.now().timestamp(),
    )


def model_request(context: TurnContext, prompt: Prompt, step: CallStep = FIRST_STEP) -> ModelRequest:
    """Return the request for the model.

    The last step also sends the definitions of tools, since providers require them if the prompt has earlier calls.
    They are left out (`step.undefined`) after the model called a tool although none was allowed.
    """
    model = context.model
    options = context.options
    choice = _tool_choice(context, step)
    remaining = context.room.window - prompt.report.used
    limits = [limit for limit in (model.max_output, options.max_output) if limit]
    # Anthropic's signatures of reasoning cover the definitions of tools.
    signed = not (step.undefined and model.provider.protocol == Provider.Kind.ANTHROPIC)
    return ModelRequest(
        model=model.name,
        messages=tuple(_model_message(message, signed=signed) for message in prompt.messages),
        max_output=min(*limits, remaining) if limits else None,
        tools=() if step.undefined else context.toolbox.definitions,
        tool_choice=choice,
        required_tool=options.required_tool if choice == "required" else None,
        several_system_messages=model.several_system_messages,
        temperature=options.temperature,
        stop=options.stop,
        sampling=replace(options.sampling, reasoning_effort=context.effort.sent or None),
        response_format=options.response_format,
        parallel_tool_calls=options.parallel_tool_calls,
        window=model.window,
        remaining=remaining,
        counted=prompt.report.used + context.room.tools_tokens,
        streaming=not model.whole_answers,
        written_calls=model.written_calls,
        untagged_reasoning=model.untagged_reasoning,
        cache_key=str(context.conversation.pk) if context.conversation is not None else "",
        cache_points=_points(context, prompt, step),
        needed_tools=frozenset(tool.name for tool in context.toolbox.external),
    )


def _model_message(message: PromptMessage, *, signed: bool) -> ModelMessage:
    return ModelMessage(
        message.role,
        message.text or "",
        tuple(_image(image.id) for image in message.images),
        message.tool_calls,
        message.tool_call_id,
        reasoning=message.reasoning if signed else None,
    )


def _image(file_id: str) -> Image:
    file = File.objects.get(pk=file_id)
    media_type, shown = open_shown(file=file)
    with shown:
        return Image(media_type, shown.read())


def _newest_question(leaf: MessageRow | None, added: Sequence[ContextMessage]) -> str:
    """Return the newest question: the draft, else the question that is being answered."""
    drafted = added[0].text if added and added[0].role == "user" else None
    return drafted or (leaf.text if leaf is not None else "")
