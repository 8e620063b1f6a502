"""What one model call is sent: the rows' blocks and branch, planned by the context engine.

The turn, the plan before sending, and the reports all come through `plan`.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.translation import get_language, get_language_info

from chat.context.build import Prompt, build, required_tokens
from chat.context.cache import SentPrompt, digest, pieces_of, points_of
from chat.context.rendering import DateAwareness, Moment, NoteForm, asked_at, note_text, reminder_text, system_text
from chat.context.types import Block, ContextMessage, ContextRequest, PromptMessage, floored
from chat.models import Message as MessageRow
from chat.models import Summary
from chat.models.summary import NO_MARKS, marks_on, text_of
from chat.prompts.files import ProjectFiles, PromptFiles, older_attachments, project_files
from chat.prompts.history import (
    Branch,
    Count,
    Documents,
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
from llm.services import RATIO_TRUSTED, cache_rule
from llm.truncation import SentTokens, script_shares
from llm.types.model_call import Image, ModelMessage, ModelRequest, ToolChoice
from personas.models import BudgetProfile
from personas.variables import fill_variables
from projects.planner.models import Task, codes
from projects.planner.queries import render, tasks_of

# The policy `priority` skips what does not fit and goes on, so it wants to see more than fits; but not a whole life.
PRIORITY_READS = 4
NAMED_TASKS = 5  # in one note

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """Which model call of the turn: `searched`: a search tool has run; `last`: no tool may be called any more;
    `undefined`: the definitions of tools are not sent either; `web_unopened`: the web was searched, no page opened yet.

    `reminders`: what earlier cycles of an append-only turn were reminded of, by the number of messages that the turn
    had added by then.
    """

    searched: bool = False
    last: bool = False
    undefined: bool = False
    first: bool = True
    web_unopened: bool = False
    reminders: Mapping[int, str] = field(default_factory=dict)


FIRST_STEP = Step()


def searches_of(names: Sequence[str], context: TurnContext) -> tuple[bool, bool]:
    """Return whether a tool has searched in a turn that called tools of these names, in this order; and whether the
    web was searched and no page opened since."""
    searched = any(name in context.toolbox.searching for name in names)
    web = [name for name in names if name in ("web_search", "open_url")]
    return searched, bool(web) and web[-1] == "web_search"


class Planned(NamedTuple):
    """`documents` knows the numbers that the plan has given; a turn keeps them with its conversation.

    `summary` stands in the prompt for everything above it. `notes`: sentences on what was not sent. `searched`: ids of
    attachments that are not in the prompt but in its list of files.
    """

    prompt: Prompt
    documents: Documents
    summary: Summary | None = None
    notes: tuple[Sentence, ...] = ()
    searched: frozenset[str] = frozenset()


def plan(
    context: TurnContext,
    leaf: MessageRow | None,
    added: Sequence[ContextMessage] = (),
    files: Sequence[File] = (),
    step: Step = FIRST_STEP,
    later: list[Count] | None = None,
) -> Planned:
    """The prompt for the branch that ends at `leaf`, with `added` below it: a draft, or what this turn has said so far.

    `files` are those of a draft, which is then the first of `added`; `later` as in `messages_of`.
    Raises `ContextError`. The number of queries does not depend on the length of the conversation.
    """
    documents = context.documents()
    project = _project_files(context, documents)
    branch = _branch(context, leaf) if leaf else None
    marks, summary = (branch.marks, branch.summary) if branch else (NO_MARKS, None)
    documents.marks = marks
    frame = context.completed(replace(_frame(context, step), summary=_told(context, summary)))
    base = list(documents.reports)
    room, overhead = max(context.room.input_limit, 1), context.profile.message_overhead
    read = room * (PRIORITY_READS if context.profile.policy == BudgetProfile.Policy.PRIORITY else 1)
    while True:
        counting: Any = {"tokenizer": context.tokenizer, "overhead": overhead}
        rows = branch.newest(room=read, **counting) if branch else []
        documents.reports = [*base, *unsent(rows), *(branch.left_out(rows) if branch else ())]
        said_before = messages_of(rows, marks=marks, later=later, texts=context.texts, **counting)
        messages = documents.attach(said_before, rows)
        if context.model.provider.kind == Provider.Kind.OPENAI:
            messages = with_reasoning(messages, rows, context.model)
        messages = _with_calls(context, messages)
        said = len(messages)
        messages += [documents.draft(added[0], files), *added[1:]] if added else []
        for number, text in step.reminders.items():
            at = said - 1 + number
            messages[at] = replace(messages[at], reminder=_block(context, text))
        unloaded = branch.unloaded(rows) if branch else 0
        request = replace(frame, messages=messages, unloaded=unloaded, extra_sources=tuple(documents.reports))
        older = older_attachments(leaf, documents) if leaf and (unloaded or summary) and documents.numbers.known else ()
        if context.project is not None or documents.attached or older:
            question = "" if context.model.tools else _asked(leaf, added)
            first = messages[:said] if context.model.provider.append_only and not step.first else ()
            rules = partial(_with_rules, context, step)
            reach = PromptFiles(project, documents, question, older, _payer(context), note_form(context), rules)
            prompt = reach.build(request, first)
            if reach.passages and not step.searched:  # for a model without tools the product has searched
                searching = _with_rules(context, replace(step, searched=True), request)
                if required_tokens(searching) <= context.room.input_limit:
                    reach.with_documents = partial(_with_rules, context, replace(step, searched=True))
                    prompt = reach.build(searching, first)
            searched, notes = reach.listed, reach.notes
        else:
            prompt, searched, notes = build(request), frozenset(), ()
        # Counts that are not stored yet weigh nothing while reading, never too much; so this is rare.
        if not prompt.wants_older or read > PRIORITY_READS * room:
            notes += _unread_reasoning(context, rows, prompt) + _surplus_images(context, prompt)
            notes += _unknown_tasks(context, _asked(leaf, added))
            return Planned(prompt, documents, summary, notes, searched)
        read *= 2


def _told(context: TurnContext, summary: Summary | None) -> Block | None:
    return _block(context, text_of(summary, context.texts)) if summary is not None else None


def _branch(context: TurnContext, leaf: MessageRow) -> Branch:
    marks = marks_on(leaf.conversation_id, leaf.pk) if context.marked else NO_MARKS
    return Branch(leaf, context.summary_above(leaf, marks), marks)


def _with_calls(context: TurnContext, messages: list[ContextMessage]) -> list[ContextMessage]:
    by = (context.user, context.model, context.tokenizer)
    return with_reasoning_of_calls(messages, *by, whole=context.for_program)


def _unread_reasoning(context: TurnContext, rows: Sequence[Row], prompt: Prompt) -> tuple[Sentence, ...]:
    """What is said where answers are sent without the reasoning that another model keeps of them."""
    others = reasoned_by_others(rows, context.model)
    sent = {(message.source or "").partition("#")[0] for message in prompt.messages} if others else ()
    names = ", ".join(sorted({name for answer, name in others.items() if answer in sent}))
    if not names:
        return ()
    model = context.model.name
    return (
        Sentence(
            "What {names} reasoned before calling tools is not sent to {model}: no other model can read it.",
            names=names,
            model=model,
        ),
    )


def _unknown_tasks(context: TurnContext, question: str) -> tuple[Sentence, ...]:
    """Return the note that the question mentions tasks that do not exist."""
    mentioned = tasks_of(codes.mentions(question)) if "@" in question else set()
    if not mentioned:
        return ()
    rows = Task.objects.visible_to(context.user).filter(code__in=mentioned)
    unknown = sorted(mentioned - set(rows.values_list("code", flat=True)))[:NAMED_TASKS]
    if not unknown:
        return ()
    return (
        Sentence(
            "There is no task {unknown}, so the model was shown none.",
            unknown=", ".join(f"@{code}" for code in unknown),
        ),
    )


def _surplus_images(context: TurnContext, prompt: Prompt) -> tuple[Sentence, ...]:
    """The note that images are left out because the model takes fewer."""
    surplus = sum(source.reason == "too_many_images" for source in prompt.report.sources)
    name, most = context.model.name, context.image_limit
    if not surplus or most is None:
        return ()
    return (
        Sentence(
            "{name} takes at most {most} images in one prompt, so {surplus} older images are only named.",
            name=name,
            most=most,
            surplus=surplus,
        ),
    )


def prompt_tokens(context: TurnContext) -> tuple[int, int]:
    """The tokens of the system prompt and of the persona's prompt with the project's instructions, without overhead."""
    system, persona = _prompts(context)
    return (system.tokens or 0 if system else 0), (persona.tokens or 0 if persona else 0)


def required_texts(context: TurnContext, summary: Summary | None) -> list[int]:
    """The tokens, without overhead, of each text that every prompt of the conversation has: S, CA, K, M and R."""
    frame, known = _frame(context, FIRST_STEP), _told(context, summary)
    blocks = (frame.system, frame.persona, frame.tasks, known, frame.reminder)
    return [block.tokens or 0 for block in blocks if block]


def project_room(context: TurnContext) -> int:
    """What a project's files may fill a share of: window − reserved output − system prompt − persona prompt."""
    return context.room.window - context.room.reserved_output - sum(prompt_tokens(context))


def _program_replaces(context: TurnContext) -> bool:
    return bool(context.options.replaces_system and context.options.instructions)


def _replaces(context: TurnContext) -> bool:
    persona = context.persona
    replaces = persona and persona.replaces_system_prompt and persona.instructions.strip()
    return bool(replaces and not _program_replaces(context))


def _prompts(context: TurnContext, step: Step = FIRST_STEP) -> tuple[Block | None, Block | None]:
    """S and CA. A persona in the system prompt's place leaves the project's instructions alone in CA."""
    texts, persona = context.texts, context.persona.instructions.strip() if context.persona else ""
    project = context.project.instructions.strip() if context.project else ""
    sections = [] if _program_replaces(context) else [context.options.instructions]
    if project and context.project:
        heading = texts.fill("project_heading", name=context.project.name)
        sections.insert(0, _headed(heading, _filled(context, project)))
    if persona and context.persona and not _replaces(context):
        heading = texts.fill("persona_heading", name=context.persona.name)
        sections.insert(0, _headed(heading, _filled(context, persona)))
    together = "\n\n".join(text for text in sections if text)
    return _system(context, step), _block(context, note_text(together, note_form(context), texts))


def _filled(context: TurnContext, text: str) -> str:
    """Return the text of a person or administrator with the values of its variables."""
    if "{{" not in text:
        return text
    asked, language = context.asked_at.astimezone(context.user.zone), context.user.language or get_language() or "en"
    values = {
        "date": f"{asked:%Y-%m-%d}",
        "weekday": f"{asked:%A}",
        "user.name": context.user.get_full_name() or context.user.get_username(),
        "user.language": get_language_info(language)["name"],
        "persona.name": context.persona.name if context.persona else "",
        "project.name": context.project.name if context.project else "",
        "model.name": context.model.name,
    }
    return fill_variables(text, values)


def _headed(heading: str, text: str) -> str:
    return f"{heading}\n{text}" if heading else text


def _system(context: TurnContext, step: Step, *, documents: bool = False) -> Block | None:
    """S, or the persona that replaces it; `documents`: numbered documents are in the prompt."""
    base = context.system_prompt.text.strip() if context.system_prompt else ""
    if _program_replaces(context):
        return _block(context, system_text(context.options.instructions, _moment(context, step, documents=documents)))
    if context.persona and _replaces(context):
        base = context.persona.instructions.strip()
    return _block(context, system_text(_filled(context, base), _moment(context, step, documents=documents)))


def _with_rules(context: TurnContext, step: Step, request: ContextRequest) -> ContextRequest:
    """Return the request with S and R for a prompt that has numbered documents."""
    reminder, above = _reminder(context, step, documents=True)
    system = _system(context, step, documents=True)
    ruled = replace(request, system=system, reminder=reminder, reminder_above=above)
    return context.completed(ruled, ("system", "reminder"), "searched" if step.searched else "documents")


def note_form(context: TurnContext) -> NoteForm:
    """Return how texts of the workspace are told from the person's words (docs/develop/context.md, “Notes”)."""
    form = context.profile.note_form
    if form == BudgetProfile.NoteForm.AUTOMATIC:
        return "plain" if is_small(context.model.name) else "heading"
    return form  # type: ignore[return-value]  # the field's other choices are these words


def _reminder(context: TurnContext, step: Step, *, documents: bool = False) -> tuple[Block | None, bool]:
    """Return R, and whether it stands above the current turn.

    A model that binds its reasoning to what stood before it gets R last. A time alone is never last as it is.
    """
    moment, reminders = _moment(context, step, documents=documents), list(context.reminders)
    if step.last and context.toolbox.definitions and context.texts["last_step"]:
        reminders.append(context.texts["last_step"])
    text, bare = reminder_text(reminders, moment) or "", reminder_text(reminders, replace(moment, date_awareness="off"))
    place = context.profile.reminder_place
    above = place == BudgetProfile.ReminderPlace.ABOVE
    if place == BudgetProfile.ReminderPlace.AUTOMATIC:
        above = is_small(context.model.name)
    if moment.append_only:
        above = False
    if text and bare is None and not above:
        if moment.append_only:
            text = note_text(asked_at(moment), moment.note_form, context.texts)
        else:
            above = True
    return _block(context, text), above


def expected_files(context: TurnContext) -> tuple[ProjectFiles, Documents]:
    """What of the project would be inline beside a message of the expected length without files."""
    documents, expected = context.documents(), ContextMessage("draft", "user", tokens=context.profile.expected_user)
    request = replace(_frame(context, FIRST_STEP), messages=[expected])
    files = PromptFiles(_project_files(context, documents), documents)
    return files.fitted(request, required_tokens(request)), documents


def _project_files(context: TurnContext, documents: Documents) -> ProjectFiles:
    if context.project is None:
        return ProjectFiles()
    entries = context.project_entries()
    return project_files(entries, documents, room=project_room(context), profile=context.profile)


def _frame(context: TurnContext, step: Step) -> ContextRequest:
    """Everything but the messages and files."""
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
        tasks=_block(context, render(context.tasks, context.texts)) if context.tasks else None,
        persona=persona,
        system_is_persona=_replaces(context),
        reminder=reminder,
        reminder_above=above,
        whole_results=context.for_program,
        exact=context.exact,
        texts=context.texts,
        max_images=context.image_limit,
        versions=_versions(context),
    )


def _moment(context: TurnContext, step: Step, *, documents: bool = False) -> Moment:
    # The field's choices are these words.
    awareness: DateAwareness = (context.persona or context.workspace).date_awareness  # type: ignore[assignment]
    toolbox, zone = context.toolbox, context.user.zone
    return Moment(
        layout=context.profile.layout,
        asked_at=context.asked_at.astimezone(zone),
        date_awareness=awareness,
        tools=toolbox.guidance,
        available=frozenset() if step.last else frozenset(toolbox.tools),
        searched=step.searched,
        append_only=context.model.provider.append_only,
        texts=context.texts,
        documents=documents,
        always_remind=context.profile.always_remind_citations,
        web_unopened=step.web_unopened,
        note_form=note_form(context),
    )


def _versions(context: TurnContext) -> dict[str, str]:
    own = context.system_prompt if not _program_replaces(context) else None
    versions = {"system_prompt": str(own.version)} if own else {}
    versions |= {"persona": str(context.persona.version)} if context.persona else {}
    versions |= {"project": str(context.project.version)} if context.project else {}
    return versions | context.texts.versions()


def _block(context: TurnContext, text: str) -> Block | None:
    return Block(text, context.tokenizer.count(text)) if text else None


def added_messages(answer_id: object, added: Sequence[ModelMessage]) -> list[ContextMessage]:
    """What this turn has said and been told so far, for the next cycle."""
    return [
        ContextMessage(
            f"{answer_id}#{number}", message.role, message.text, tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id, reasoning=message.reasoning, result=message.result,
        )
        for number, message in enumerate(added, 1)
    ]  # fmt: skip


def draft_message(text: str) -> ContextMessage:
    return ContextMessage("draft", "user", text)


COUNTED_FROM = 85  # percent of the room; a prompt that takes as much is counted by its provider where that can
ROUGHLY_COUNTED_FROM = 50  # percent, where the tokenizer is not known


def _payer(context: TurnContext) -> Payer:
    """Of what is searched for the prompt."""
    return Payer(context.user.pk, conversation=context.conversation.pk if context.conversation is not None else None)


def worth_counting(context: TurnContext, prompt: Prompt) -> bool:
    """Whether an exact count could change what is sent, or keep it from being refused."""
    report, known = prompt.report, context.exact or context.model.ratio_samples >= RATIO_TRUSTED
    share = COUNTED_FROM if known else ROUGHLY_COUNTED_FROM
    return report.without_room > 0 or report.used * 100 > report.limit * share


def with_count(context: TurnContext, prompt: Prompt, count: int) -> TurnContext | None:
    """Under which to plan anew, now that the provider has counted `count` tokens; None where that changes nothing."""
    ours = prompt.report.used + context.room.tools_tokens
    true = replace(context, true_ratio=Decimal(count) / max(1, ours))
    more = true.margin < context.margin and prompt.report.without_room
    return true if more or count > true_room(context) else None


def true_room(context: TurnContext) -> int:
    """What prompt and tools may take by the provider's count."""
    room = context.room
    return floored(room.window, 1 - context.profile.safety_margin) - room.reserved_output - room.buffer


def log_trimmed(context: TurnContext, prompt: Prompt) -> None:
    """The one line about a trimmed prompt: how many messages, for which model and limit, and the tools' tokens."""
    left_out = prompt.report.without_room
    if left_out:
        logger.info(
            "left out %d older messages to fit the context (model: %s, limit: %d tokens, tools: %d tokens)",
            left_out, context.model.name, prompt.report.limit, context.room.tools_tokens,
        )  # fmt: skip


def sent(context: TurnContext, prompt: Prompt, request: ModelRequest) -> SentTokens:
    """What providers count much as we do, and what not: images and replayed reasoning they count in ways of their own.

    Where no tool may be called, some servers leave the definitions out.
    """
    others = sum(
        sum(image.tokens for image in message.images) + (message.reasoning.tokens if message.reasoning else 0)
        for message in prompt.messages
    )
    tools = context.toolbox.tokens(context.tokenizer) if request.tool_choice != "none" else 0
    texts = sum(message.tokens for message in prompt.messages) - others
    return SentTokens(texts, tools, plain=not others, scripts=script_shares([each.text for each in request.messages]))


def _tool_choice(context: TurnContext, step: Step) -> ToolChoice:
    """A call that is demanded is demanded once: after it the model chooses again."""
    demanded = step.first and not step.last and context.options.tool_choice == "required"
    return "none" if step.last else "required" if demanded else "auto"


def _points(context: TurnContext, prompt: Prompt, step: Step) -> tuple[int, ...]:
    """After how many messages the provider is asked to keep what it has read: at the borders of the prompt, and where
    tools may make it go on, at its end."""
    goes_on = context.toolbox.definitions and not step.last
    borders = (*prompt.borders, len(prompt.messages)) if goes_on else prompt.borders
    rule = cache_rule(context.model)
    return points_of(prompt.messages, borders if rule.points == "any" else prompt.borders, rule)


def fingerprint(context: TurnContext, prompt: Prompt, step: Step = FIRST_STEP) -> SentPrompt:
    """What is kept of a prompt to know how far the next one begins the same."""
    model, options, messages = context.model, context.options, prompt.messages
    definitions = [[tool.name, tool.description, json.dumps(tool.parameters)] for tool in context.toolbox.definitions]
    tools = digest(definitions, json.dumps(options.response_format)) if definitions or options.response_format else ""
    points = _points(context, prompt, step)
    if cache_rule(model).points == "user" and messages[-1].role in ("user", "tool"):
        points = (*points, len(messages))  # which the provider sets by itself
    if not model.several_system_messages:
        messages = sorted(messages, key=lambda message: message.role != "system")
    return SentPrompt(
        pieces=pieces_of(messages, tools, context.room.tools_tokens),
        points=tuple(point + 1 for point in points),
        settings=digest([_tool_choice(context, step), context.effort.sent]),
        versions=prompt.report.versions,
        at=timezone.now().timestamp(),
    )


def model_request(context: TurnContext, prompt: Prompt, step: Step = FIRST_STEP) -> ModelRequest:
    """In the last step the definitions are sent all the same: providers want them beside earlier calls.

    They are left out where the model has called a tool in its last step, although none could be called.
    """
    model, options, choice = context.model, context.options, _tool_choice(context, step)
    left = context.room.window - prompt.report.used
    limits = [limit for limit in (model.max_output, options.max_output) if limit]
    # Anthropic's signatures of thoughts cover the definitions of tools.
    signed = not (step.undefined and model.provider.protocol == Provider.Kind.ANTHROPIC)
    return ModelRequest(
        model=model.name,
        messages=tuple(_wire(message, signed=signed) for message in prompt.messages),
        max_output=min(*limits, left) if limits else None,
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
        left=left,
        counted=prompt.report.used + context.room.tools_tokens,
        streaming=not model.whole_answers,
        written_calls=model.written_calls,
        untagged_reasoning=model.untagged_reasoning,
        cache_key=str(context.conversation.pk) if context.conversation is not None else "",
        cache_points=_points(context, prompt, step),
        needed_tools=frozenset(tool.name for tool in context.toolbox.external),
    )


def _wire(message: PromptMessage, *, signed: bool) -> ModelMessage:
    images = tuple(_image(image.id) for image in message.images)
    said = (message.role, message.text or "", images, message.tool_calls, message.tool_call_id)
    return ModelMessage(*said, reasoning=message.reasoning if signed else None)


def _image(file_id: str) -> Image:
    file = File.objects.get(pk=file_id)
    media_type, shown = open_shown(file=file)
    with shown:
        return Image(media_type, shown.read())


def _asked(leaf: MessageRow | None, added: Sequence[ContextMessage]) -> str:
    """The newest question: that of a draft, else the one that is being answered."""
    drafted = added[0].text if added and added[0].role == "user" else None
    return drafted or (leaf.text if leaf is not None else "")
