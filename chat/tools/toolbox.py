"""Collect the tools of a turn, in the fixed order in which the model gets them, and the guidance for them.

1. `toolbox_for` chooses the product's own tools.
2. `with_server_tools` adds tools of MCP servers, for personas that name them (`server__tool`, or `server__*` for all).
   A plan uses `with_known_tools`, which queries no server.
3. `with_external_tools` adds tools of the calling program.
4. `with_tools_on_demand` lists tools of servers by name if their definitions take too much of the window.
5. `within_limit` leaves out tools beyond the limit of the model's provider.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

from django.utils.translation import gettext_noop

from accounts.access.rights import Rights
from accounts.models import User
from chat.context.rendering import ToolGuidance
from chat.models import Conversation, Message
from chat.models.conversation_state import ChatScope
from chat.models.summary import in_force
from chat.models.tree import branch_rows
from chat.tools.conversation import CONVERSATION_GUIDANCE, SearchConversation
from chat.tools.files import READ_GUIDANCE, SEARCH_GUIDANCE, FileScope, ReadFile, SearchFiles
from chat.tools.memory import REMEMBER_GUIDANCE, Remember
from chat.tools.on_demand import (
    FIND_TOOLS,
    SEPARATOR,
    ToolRoom,
    ToolsOnDemand,
    definition_tokens,
    plan_on_demand,
    tokens_of_each,
)
from chat.tools.past_conversations import PAST_GUIDANCE, PastScope, SearchConversations
from chat.tools.permission import Gate
from chat.tools.results import READ_RESULT_GUIDANCE, ReadResult
from chat.tools.tasks import TaskToolContext, task_tools
from chat.tools.web import OPEN_GUIDANCE, WEB_GUIDANCE, NumberedResults, open_url
from core.background import on_database
from core.net.addresses import find_addresses, host_of
from core.sentences import Sentence
from files.models import File
from llm.models import Model
from llm.oauth.bearer import sign_in_problem
from llm.tokens import NamedTokenizer
from llm.tools.mcp import Listing, ServerTool, list_tools
from llm.tools.mcp_failures import SIGN_IN_REQUIRED
from llm.tools.servers import ServerFailed, SessionScope, ToolServerConfig
from llm.tools.services import known_tools, remember_listing, tool_servers, web_search_tool
from llm.types.model_call import ToolDefinition
from llm.types.tools import Tool
from personas.models import Persona
from personas.tools import TASK_TOOLS, WEB_TOOLS

# A word such as report.pdf is the name of a file, and no host.
FILE_SUFFIXES = frozenset(
    (
        *("c", "cpp", "css", "csv", "doc", "docx", "eml", "gif", "go", "htm", "html", "ini", "java", "jpeg", "jpg"),
        *("js", "json", "log", "md", "odt", "pdf", "png", "pptx", "ppt", "py", "rb", "rs", "sh", "sql", "svg", "toml"),
        *("ts", "txt", "xls", "xlsx", "xml", "yaml", "yml", "zip"),
    )
)
WEB_OFF = gettext_noop("The project has the web switched off, so no tool that reaches out is there: {names}.")
WEB_NOT_YOURS = gettext_noop("None of your groups may use the web in answers, so these tools are not there: {names}.")
SERVER_NOT_YOURS = gettext_noop("None of your groups may use the tool server {name}.")
TOOL_LEFT_OUT = gettext_noop(
    "The model does not get the tool {name}. {reason} Ask the operator of the tool server to fix it."
)
TOOL_IN_PART = gettext_noop(
    "The model gets a part of the tool {name}. {reason} Ask the operator of the tool server to shorten it."
)
TOOL_GONE = gettext_noop("The tool server {server} does not list the tool {name}, which the persona names.")
TOO_MANY_TOOLS = gettext_noop(
    "The model's provider takes at most {limit} tools, so {count} of this persona's were not sent: {names}. Let the "
    "persona name the tools that it needs."
)
ONE_DENIED = gettext_noop("One result of a search is of a host that the workspace denies; the model did not get it.")
DENIED = gettext_noop("{count} results of searches are of hosts that the workspace denies; the model did not get them.")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of a turn. `tools` (by name) and `guidance` are in the fixed order in which the model gets them.

    `approval`: names of the tools whose calls need a decision by `gate`. `notes`: sentences for people about missing
    tools. `external`: tools that the calling program runs itself; a call of one ends the turn. `web`: whether tools
    that reach out are offered. `reader`: the tool that reads more of a shortened result. It is among `tools` only if
    another tool can return such results. `on_demand`: the tools that are listed by name; they are among `tools`, but
    only the loaded ones among `definitions`. `sign_ins`: names of the tool servers that are left out until the person
    signs in to them.
    """

    tools: Mapping[str, Tool] = field(default_factory=dict)
    guidance: Sequence[ToolGuidance] = ()
    notes: Sequence[Sentence] = ()
    approval: frozenset[str] = frozenset()
    gate: Gate | None = None
    external: tuple[ToolDefinition, ...] = ()
    web: bool = True
    reader: ReadResult | None = None
    on_demand: ToolsOnDemand | None = None
    sign_ins: tuple[str, ...] = ()

    @property
    def all_notes(self) -> Sequence[Sentence]:
        """Return `notes` and, after the tools have run, the notes on denied results and on searches."""
        denied = self.gate.denied if self.gate else 0
        about_denied = [Sentence(DENIED, count=denied) if denied > 1 else Sentence(ONE_DENIED)] if denied else []
        search = self.tools.get(SEARCH_GUIDANCE.name)
        return [*self.notes, *about_denied, *(search.notes if isinstance(search, SearchFiles) else ())]

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return the definitions that are sent. Those of loaded tools are the last, so that they change no others."""
        listed = frozenset(self.on_demand.names) if self.on_demand else frozenset()
        always = (tool.definition for name, tool in self.tools.items() if name not in listed)
        loaded = (self.tools[name].definition for name in self.on_demand.loaded) if self.on_demand else ()
        return (*always, *self.external, *loaded)

    @property
    def unloaded(self) -> frozenset[str]:
        """Return the names of the tools whose definitions are not sent."""
        return frozenset(self.on_demand.names) - frozenset(self.on_demand.loaded) if self.on_demand else frozenset()

    @property
    def of_servers(self) -> dict[str, ServerTool]:
        """Return the tools of servers."""
        return {name: tool for name, tool in self.tools.items() if isinstance(tool, ServerTool)}

    @property
    def searching(self) -> frozenset[str]:
        """Return the names of the tools whose results can be cited."""
        return frozenset(each.name for each in self.guidance if each.is_search)

    def tokens(self, tokenizer: NamedTokenizer) -> int:
        """Return the tokens of the definitions that are sent."""
        return definition_tokens(self.definitions, tokenizer)


NO_TOOLS = Toolbox()


def toolbox_for(
    scope: ChatScope,
    *,
    task_context: TaskToolContext,
    model: Model,
    question: str,
    files: Sequence[File] = (),
    chosen: Collection[str],
    search_asks: bool,
    answer: UUID | None = None,
) -> Toolbox:
    """Return the product's own tools; none for a model that cannot call tools.

    `files`: the files of a question that is not stored yet. `chosen`: the names of the tools for the web, for tasks and
    for the memory that the turn may use (`chat.prompts.turn_context`). `search_asks`: each web search waits for the
    user's permission. `answer`: the id of the answer that is being written; None in a plan, which calls no tool.
    """
    if not model.tools:
        return NO_TOOLS
    # A new conversation is not stored yet.
    conversation = scope.conversation or Conversation(owner=task_context.user)
    persona = scope.persona
    gate = Gate(conversation)
    web = scope.project is None or scope.project.web
    offered = [
        *_file_tools(FileScope(conversation, scope.project, question), files),
        *_conversation_tools(conversation),
        *_past_tools(chosen, PastScope(conversation, scope.project)),
        *(_web_tools(chosen, conversation, gate, persona=persona, question=question) if web else ()),
        *task_tools(task_context, named=TASK_TOOLS in chosen),
        *_memory_tools(chosen, conversation, answer or uuid4()),
    ]
    tools = {guidance.name: tool for guidance, tool in offered}
    asking = {OPEN_GUIDANCE.name, WEB_GUIDANCE.name} if search_asks else {OPEN_GUIDANCE.name}
    asking = asking & set(tools)
    notes = tuple(_missing(persona, tools, chosen, web=web))
    guidance = tuple(guidance for guidance, _ in offered)
    box = Toolbox(tools, guidance, notes, frozenset(asking), gate, web=web, reader=ReadResult(conversation))
    return _with_reader(box) if OPEN_GUIDANCE.name in tools else box


def _with_reader(box: Toolbox) -> Toolbox:
    """Add the tool that reads more of a shortened result, as the last of the product's own tools."""
    if box.reader is None or READ_RESULT_GUIDANCE.name in box.tools:
        return box
    tools = {**box.tools, READ_RESULT_GUIDANCE.name: box.reader}
    return replace(box, tools=tools, guidance=(*box.guidance, READ_RESULT_GUIDANCE))


def _missing(
    persona: Persona | None, tools: Mapping[str, Tool], chosen: Collection[str], *, web: bool
) -> Iterator[Sentence]:
    """Yield the reasons why tools for the web are missing."""
    expected = [name for name in WEB_TOOLS if persona is None or name in persona.tools]
    lacking = [name for name in expected if not web or name not in chosen]
    if lacking and (persona is not None or web_search_tool() is not None):
        yield Sentence(WEB_NOT_YOURS if web else WEB_OFF, names=", ".join(lacking))
    elif persona is not None and WEB_GUIDANCE.name in set(persona.tools) - set(tools):
        yield Sentence("The persona cannot search the web: no search service is set up.")


def _file_tools(scope: FileScope, files: Sequence[File]) -> Iterator[tuple[ToolGuidance, Tool]]:
    """Yield the file tools. They do not depend on the persona, since the model must be able to read a project's files.

    A file can be read as soon as it has text, and searched once it is indexed.
    """
    if any(file.searchable for file in files) or scope.files().filter(searchable=True).exists():
        yield from _searching(scope)
    elif any(not file.is_image for file in files) or scope.files().filter(width=None).exists():
        yield READ_GUIDANCE, ReadFile(scope)


def _conversation_tools(conversation: Conversation) -> Iterator[tuple[ToolGuidance, Tool]]:
    """Yield the search of the conversation if a summary replaces messages. It does not depend on the persona."""
    if in_force(conversation.pk, conversation.leaf_id) is not None:
        yield CONVERSATION_GUIDANCE, SearchConversation(conversation)


def _past_tools(chosen: Collection[str], scope: PastScope) -> Iterator[tuple[ToolGuidance, Tool]]:
    """Yield the search of other conversations, if the person allows it. It does not depend on the persona."""
    if PAST_GUIDANCE.name in chosen:
        yield PAST_GUIDANCE, SearchConversations(scope)


def _memory_tools(
    chosen: Collection[str], conversation: Conversation, answer: UUID
) -> Iterator[tuple[ToolGuidance, Tool]]:
    """Yield the tool that proposes facts about the person, if they allow it. It does not depend on the persona."""
    if REMEMBER_GUIDANCE.name in chosen:
        yield REMEMBER_GUIDANCE, Remember(conversation, answer)


def _searching(scope: FileScope) -> Iterator[tuple[ToolGuidance, Tool]]:
    yield SEARCH_GUIDANCE, SearchFiles(scope)
    yield READ_GUIDANCE, ReadFile(scope)


def with_file_tools(box: Toolbox, scope: ChatScope, user: User) -> Toolbox:
    """Return the toolbox as it will be once a file is attached."""
    if SEARCH_GUIDANCE.name in box.tools:
        return box
    conversation = scope.conversation or Conversation(owner=user)
    file_tools = dict(_searching(FileScope(conversation, scope.project, "")))
    tools = {guidance.name: tool for guidance, tool in file_tools.items()} | dict(box.tools)
    return replace(box, tools=tools, guidance=(*file_tools, *box.guidance))


def _web_tools(
    names: Collection[str], conversation: Conversation, gate: Gate, *, persona: Persona | None, question: str
) -> Iterator[tuple[ToolGuidance, Tool]]:
    """Yield the web tools with these names.

    Without a search service there is no search. Pages are then opened where the persona has the tool or somebody has
    written an address, so that the prompts of all other conversations do without its definition.
    """
    search = web_search_tool() if set(names) & set(WEB_TOOLS) else None
    if search is not None and WEB_GUIDANCE.name in names:
        yield WEB_GUIDANCE, NumberedResults(search, conversation, gate)
    if OPEN_GUIDANCE.name in names and (search or persona or _address_written(question, conversation)):
        yield OPEN_GUIDANCE, open_url(conversation, gate)


def _address_written(question: str, conversation: Conversation) -> bool:
    """Return whether the question, or an earlier message of a person on its branch, has the address of a page.

    A name without a scheme counts in the question alone, and not if it looks like the name of a file.
    """
    if conversation.origin == Conversation.Origin.API:
        return False  # of a program, which names its own tools
    addresses = find_addresses(question)
    if "://" in question or any(host_of(f"//{each}").rpartition(".")[2] not in FILE_SUFFIXES for each in addresses):
        return bool(addresses)
    if conversation._state.adding or conversation.leaf_id is None:
        return False
    written = Message.objects.filter(pk__in=branch_rows(conversation.leaf_id).values("pk"), role=Message.Role.USER)
    return written.filter(parts__icontains="://").exists()


def with_external_tools(box: Toolbox, offered: tuple[ToolDefinition, ...], unoffered: Sequence[str] = ()) -> Toolbox:
    """Add the tools of the calling program. It runs them itself, so a call of one ends the turn.

    They replace tools of the product with the same names. `unoffered` names tools that the program expects its provider
    to run; notes say that the model does not get them.
    """
    missing = [
        Sentence(
            "The calling program offers {name}, which its provider would run. The model did not get it.", name=name
        )
        for name in unoffered
    ]
    if not offered:
        return replace(box, notes=(*box.notes, *missing)) if missing else box
    names = {tool.name for tool in offered}
    replaced = [
        Sentence("The calling program has a tool {name} of its own.", name=name) for name in box.tools if name in names
    ]
    return replace(
        box,
        tools={name: tool for name, tool in box.tools.items() if name not in names},
        guidance=tuple(each for each in box.guidance if each.name not in names),
        notes=(*box.notes, *replaced, *missing),
        external=offered,
    )


def with_known_tools(box: Toolbox, persona: Persona | None, model: Model, rights: Rights, person: UUID) -> Toolbox:
    """Add server tools for a plan from the last known list of each server. A note names each server without a list.

    `person`: whose sign-ins at the servers are used.
    """
    box, allowed = _allowed(box, persona, model, rights)
    if not allowed:
        return box
    listings: list[tuple[ToolServerConfig, Listing | LeftOut]] = []
    for server, listing in known_tools(person):
        listings.append((server, _why_closed(server, box) or listing or _unknown(server)))
    return _add_listed(box, allowed, listings)


async def with_server_tools(
    box: Toolbox, persona: Persona | None, model: Model, rights: Rights, sessions: SessionScope
) -> Toolbox:
    """Add the persona's server tools. A server that fails is noted, and the turn goes on without it.

    `sessions`: where the sessions with the servers stay open, and whose sign-ins are used.
    """
    box, allowed = _allowed(box, persona, model, rights)
    if not allowed:
        return box
    names = _servers(allowed)
    servers = [server for server in await on_database(tool_servers, sessions.person) if server.name in names]
    answers = await asyncio.gather(*(_listed(server, box, sessions) for server in servers))
    return _add_listed(box, allowed, list(zip(servers, answers, strict=True)))


def _allowed(box: Toolbox, persona: Persona | None, model: Model, rights: Rights) -> tuple[Toolbox, list[str]]:
    """Return the names of the server tools that the persona names and its user may use.

    The list is empty for a model that cannot call tools. The box gets notes about servers that the user may not use.
    """
    if persona is None or not model.tools:
        return box, []
    named = [name for name in persona.tools if SEPARATOR in name]
    lacking = sorted(name for name in _servers(named) if not rights.uses_server(name))
    notes = (Sentence(SERVER_NOT_YOURS, name=name) for name in lacking)
    allowed = [name for name in named if not _servers([name]) & {*lacking}]
    return replace(box, notes=(*box.notes, *notes)), allowed


def _servers(allowed: Sequence[str]) -> set[str]:
    return {name.partition(SEPARATOR)[0] for name in allowed}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why the tools of a server are not there. `sign_in`: the person has to sign in to it."""

    reason: Sentence
    sign_in: bool = False


def _unknown(server: ToolServerConfig) -> LeftOut:
    if server.bearer is not None and (problem := sign_in_problem(server.bearer)) is not None:
        return LeftOut(problem, sign_in=True)
    return LeftOut(Sentence("The tools of the server {name} are not known yet; they come on top.", name=server.name))


def _why_closed(server: ToolServerConfig, box: Toolbox) -> LeftOut | None:
    """Return the reason for a server whose tools reach out while the web is off; else None."""
    if box.web or not server.reaches_out:
        return None
    return LeftOut(Sentence(WEB_OFF, names=f"{server.name}{SEPARATOR}*"))


async def _listed(server: ToolServerConfig, box: Toolbox, sessions: SessionScope) -> Listing | LeftOut:
    """Return the tools that the server lists now, or why there are none."""
    if reason := _why_closed(server, box):
        return reason
    try:
        listing = await list_tools(server, sessions)
    except ServerFailed as failure:
        logger.warning("no tools from server %s: %s", server.name, failure)
        return LeftOut(failure.sentence, sign_in=failure.code == SIGN_IN_REQUIRED)
    await on_database(remember_listing, server, listing)
    return listing


def _add_listed(
    box: Toolbox, allowed: Sequence[str], answers: Sequence[tuple[ToolServerConfig, Listing | LeftOut]]
) -> Toolbox:
    """Add the server tools that the persona may call, sorted by server and name. The reasons of others become notes.

    They have no guidance, since their descriptions say when to call them.
    """
    servers = _servers(allowed)
    missing = sorted(servers - {server.name for server, _ in answers})
    notes = [
        *box.notes,
        *(Sentence("The tool server {name} is not set up or switched off.", name=name) for name in missing),
    ]
    offered: dict[str, ServerTool] = {}
    approval = set(box.approval)
    sign_ins = [*box.sign_ins]
    for server, answer in answers:
        if server.name not in servers:
            continue
        if isinstance(answer, LeftOut):
            notes.append(answer.reason)
            sign_ins += [server.name] if answer.sign_in else []
            continue
        all_tools = f"{server.name}{SEPARATOR}*" in allowed
        listed = {tool.definition.name for tool in answer.tools}
        problems = {each.name: each for each in answer.problems}
        for problem in answer.problems:
            if all_tools or problem.name in allowed:
                sentence = TOOL_IN_PART if problem.offered else TOOL_LEFT_OUT
                notes.append(Sentence(sentence, name=problem.name, reason=problem.reason))
        named = [name for name in allowed if _servers([name]) == {server.name} and not name.endswith("*")]
        missing_tools = [name for name in named if name not in listed and name not in problems]
        notes += [Sentence(TOOL_GONE, server=server.name, name=name) for name in missing_tools]
        for tool in sorted(answer.tools, key=lambda tool: tool.definition.name):
            name = tool.definition.name
            if all_tools or name in allowed:
                offered[name] = tool
                approval |= {name} if tool.asks else set()
    box = _with_reader(box) if offered else box
    return replace(
        box,
        tools={**box.tools, **offered},
        notes=tuple(notes),
        approval=frozenset(approval),
        sign_ins=tuple(sign_ins),
    )


def with_tools_on_demand(
    box: Toolbox, *, model: Model, room: int, share: int, tokenizer: NamedTokenizer, conversation: Conversation
) -> Toolbox:
    """List the tools of servers by name if the definitions take more than `share` tokens of the `room`.

    They are listed, too, if there are more tools than the model's provider accepts, and in a conversation in which
    tools were loaded before: a list that comes and goes would cost the provider's cache each time. A box with a list is
    decided again, from all its tools.
    """
    box = _without_listing(box)
    listed = box.of_servers
    names = box.tools.keys() | {each.name for each in box.external}
    if not listed or FIND_TOOLS in names:
        return box
    limit = model.provider.tool_limit
    too_many = limit is not None and len(box.definitions) > limit
    began = any(name in listed for name in conversation.loaded_tools)
    if not (too_many or began) and tokens_of_each(box.definitions, tokenizer) <= share:
        return box
    others = len(box.definitions) - len(listed) + 1  # with `find_tools`
    most = max(0, limit - others) if limit is not None else None
    on_demand = plan_on_demand(
        listed, room=ToolRoom.of(room, share, most), tokenizer=tokenizer, conversation=conversation
    )
    if on_demand is None:
        return box
    tools = {**box.tools, FIND_TOOLS: on_demand.finder}
    return replace(box, tools=tools, guidance=(*box.guidance, on_demand.guidance), on_demand=on_demand)


def _without_listing(box: Toolbox) -> Toolbox:
    """Return the box with the definitions of all tools."""
    if box.on_demand is None:
        return box
    tools = {name: tool for name, tool in box.tools.items() if name != FIND_TOOLS}
    guidance = tuple(each for each in box.guidance if each.name != FIND_TOOLS)
    return replace(box, tools=tools, guidance=guidance, on_demand=None)


def within_limit(box: Toolbox, persona: Persona | None, model: Model) -> Toolbox:
    """Return the box with as many tools as the model's provider accepts, and a note that names the others.

    Tools of servers that the persona names as a whole are left out first, then server tools that it names one by one,
    then the product's own. Tools of the calling program are always sent.
    """
    limit = model.provider.tool_limit
    if limit is None or len(box.definitions) <= limit:
        return box
    named = frozenset(persona.tools) if persona is not None else frozenset()

    def rank(name: str) -> int:
        return 0 if not isinstance(box.tools[name], ServerTool) else 1 if name in named else 2

    loaded = box.on_demand.loaded if box.on_demand else ()
    defined = [name for name in box.tools if name not in box.unloaded and name not in loaded]
    ranked = sorted(defined, key=rank)  # a stable sort: tools of one rank keep their order
    sent = set(ranked[: max(0, limit - len(box.external) - len(loaded))])
    left_out = [name for name in defined if name not in sent]
    if FIND_TOOLS in left_out and box.on_demand:
        left_out += box.on_demand.names  # the model cannot load them
    note = Sentence(TOO_MANY_TOOLS, limit=limit, count=len(left_out), names=", ".join(left_out))
    return without_tools(box, left_out, note)


def without_tools(box: Toolbox, names: Collection[str], note: Sentence) -> Toolbox:
    """Return the box without these tools, with a note that gives the reason.

    Without the tool that loads others, none of the listed tools is left.
    """
    on_demand = box.on_demand
    if on_demand is not None and FIND_TOOLS in names:
        names = {*names, *on_demand.names}
        on_demand = None
    return replace(
        box,
        tools={name: tool for name, tool in box.tools.items() if name not in names},
        guidance=tuple(each for each in box.guidance if each.name not in names),
        notes=(*box.notes, note),
        approval=box.approval - {*names},
        on_demand=on_demand.without(names) if on_demand else None,
    )
