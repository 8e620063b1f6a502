"""The wording of plans and reports: names of sections, states and reasons, and the line that sums up a report."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from chat.context.build import SourceEntry
from chat.context.types import ADVICE, too_long_by
from chat.ledger import limits
from chat.prompts.preview import Plan, PlanCost, PlanError
from chat.prompts.report import CoveredEntry, ResolvedReport, ToolsOnDemandEntry
from core.i18n import dollars, grouped, percent
from core.sentences import Sentence
from personas.texts import TEXTS

# A panel shows the sections of a prompt in these groups. Each group has a colour, a card, and a segment of the bar.
GROUPS = {
    "instructions": gettext_lazy("Instructions"),
    "persona": gettext_lazy("Persona, project and memory"),
    "files": gettext_lazy("Files"),
    "tasks": gettext_lazy("Tasks"),
    "summary": gettext_lazy("Summary of older messages"),
    "conversation": gettext_lazy("Earlier in the conversation"),
    "current": gettext_lazy("This question"),
}
GROUP_OF = {
    "system": "instructions",
    "reminder": "instructions",
    "persona": "persona",
    "project": "persona",  # a source that is gone; its instructions belong to the section of the persona
    "memory": "persona",
    "profile": "persona",
    "fact": "persona",
    "project_files": "files",
    "file_listing": "files",
    "file": "files",
    "tasks": "tasks",
    "summary": "summary",
    "omitted": "conversation",
    "history": "conversation",
    "current": "current",
}
SECTIONS = {
    "system": gettext_lazy("Instructions of the workspace"),
    "tasks": gettext_lazy("Tasks"),
    "summary": gettext_lazy("Summary"),
    "omitted": gettext_lazy("A note that messages are missing"),
    "history": gettext_lazy("Conversation"),
    "persona": gettext_lazy("Persona and project"),
    "memory": gettext_lazy("What is remembered about you"),
    "project_files": gettext_lazy("Project files"),
    "file_listing": gettext_lazy("List of the files that can be searched"),
    "file": gettext_lazy("Attached files"),
    "current": gettext_lazy("This question"),
    "reminder": gettext_lazy("Reminder at the end"),
}
KINDS = {
    "message": gettext_lazy("Message"),
    "file": gettext_lazy("File"),
    "project_file": gettext_lazy("Project file"),
    "image": gettext_lazy("Image"),
    "task": gettext_lazy("Task"),
    "project": gettext_lazy("Project"),
    "profile": gettext_lazy("About you"),
    "fact": gettext_lazy("Remembered fact"),
}
ROLES = {
    "question": gettext_lazy("You"),
    "answer": gettext_lazy("Answer"),
    "call": gettext_lazy("Tool"),
    "result": gettext_lazy("Tool"),
}
STATES = {
    "full": gettext_lazy("in full"),
    "shortened": gettext_lazy("shortened"),
    "stubbed": gettext_lazy("its result is not repeated"),
    "by_search": gettext_lazy("by search"),
    "summarised": gettext_lazy("in the summary"),
    "left_out": gettext_lazy("left out"),
}
# To add a reason: 1. Add its code to `chat.context.types.Reason`. 2. Add its words here; they follow the state, such as
# “left out: ”.
REASONS = {
    "no_room": gettext_lazy("there was no room"),
    "behind_gap": gettext_lazy("older than the first message that did not fit"),
    "by_user": gettext_lazy("you have left it out"),
    "summarised": gettext_lazy("it is in the summary"),
    "failed_file": gettext_lazy("the file could not be read"),
    "unread_file": gettext_lazy("the file is still being read"),
    "deleted_file": gettext_lazy("the file was deleted"),
    "deleted_persona": gettext_lazy("the persona was deleted"),
    "lost_persona": gettext_lazy("the persona is no longer shared with you"),
    "deleted_project": gettext_lazy("the project was deleted"),
    "lost_project": gettext_lazy("the project is no longer shared with you"),
    "unknown_task": gettext_lazy("there is no such task"),
    "tasks_off": gettext_lazy("your settings leave tasks out"),
    "tasks_off_here": gettext_lazy("tasks are left out of this conversation"),
    "mention_off": gettext_lazy("tasks are left out; your settings and the options of the conversation change that"),
    "always": gettext_lazy("it always goes along"),
    "pinned_fact": gettext_lazy("you have pinned it"),
    "matches": gettext_lazy("it shares words with your message or the title"),
    "matched_before": gettext_lazy("it matched an earlier message of this conversation"),
    "memory_full": gettext_lazy("the part of the room for what is remembered is used up"),
    "memory_off": gettext_lazy("your settings leave it out"),
    "memory_off_here": gettext_lazy("it is left out of this conversation"),
    "memory_off_persona": gettext_lazy("the persona leaves it out"),
    "memory_off_workspace": gettext_lazy("the workspace has it switched off"),
    "project_image": gettext_lazy("pictures of a project are sent while there is room"),
    "over_share": gettext_lazy("the project's files are larger than the part of the room that is theirs"),
    "not_searchable_yet": gettext_lazy("it is still being made searchable, so it can only be read page by page"),
    "not_searchable": gettext_lazy("it could not be made searchable, so it can only be read page by page"),
    "attached": gettext_lazy("once, with the message that it is attached to"),
    "in_project": gettext_lazy("once, with the project's files"),
    "of_result": gettext_lazy("the file stays in the conversation"),
    "result_without_call": gettext_lazy("what asked for it is not sent"),
    "no_vision": gettext_lazy("the model does not see images"),
    "too_many_images": gettext_lazy("the model takes fewer images in one prompt"),
    "call_without_result": gettext_lazy("it is not finished"),
}
MEMORY_OFF = ("memory_off", "memory_off_here", "memory_off_persona", "memory_off_workspace")
BY_PERSON = ("by_user", "tasks_off", "tasks_off_here", *MEMORY_OFF)
NO_ROOM = ("no_room", "behind_gap")
UNSEEN = ("project_image", "no_vision", "too_many_images")  # reasons for which a picture is not sent
UNFINISHED = ("call_without_result", "result_without_call")
CHANGES = {
    "added": gettext_lazy("new"),
    "changed": gettext_lazy("changed"),
    "gone": gettext_lazy("no longer sent"),
}
# To add a reason: 1. Return its code in `chat.context.cache`. 2. Add its words here.
#
# The reasons why the provider read part of a prompt again. `chat.context.cache` has the same codes.
CACHE_REASONS = {
    "model_changed": gettext_lazy("this model was not asked before, another was"),
    "expired": gettext_lazy("the last call is longer ago than the provider keeps prompts (Anthropic: 5 minutes)"),
    "settings_changed": gettext_lazy("a tool is demanded or forbidden, or the effort is another"),
    "tools_changed": gettext_lazy("the tools changed"),
    "date_changed": gettext_lazy("the date line changed"),
    "system_changed": gettext_lazy("the system prompt changed"),
    "guidance_changed": gettext_lazy("the guidance for tools or citations changed"),
    "persona_changed": gettext_lazy("the persona changed"),
    "project_changed": gettext_lazy("the instructions of the project changed"),
    "persona_moved": gettext_lazy("the persona moved: it stands below the conversation, which has grown"),
    "files_changed": gettext_lazy("the files of the project changed"),
    "files_moved": gettext_lazy("the files moved: they stand below the conversation, which has grown"),
    "memory_changed": gettext_lazy("what is remembered changed"),
    "memory_moved": gettext_lazy("what is remembered moved: it stands below the conversation, which has grown"),
    "tasks_changed": gettext_lazy("the tasks changed"),
    "summary_changed": gettext_lazy("the summary changed"),
    "reminder_moved": gettext_lazy("the reminder moved to the end"),
    "reminder_changed": gettext_lazy("the reminder changed"),
    "history_trimmed": gettext_lazy("older messages were left out"),
    "branch_changed": gettext_lazy("the conversation goes on from another message"),
    "message_changed": gettext_lazy("a message changed"),
    "result_stubbed": gettext_lazy("an old tool result is not repeated"),
    "result_shortened": gettext_lazy("a tool result was shortened"),
    "reasoning_dropped": gettext_lazy("reasoning of an earlier step is not sent any more"),
    "too_short": gettext_lazy("what is the same is shorter than what the provider keeps"),
    "not_kept": gettext_lazy("the prompt began the same, but the provider did not have it any more"),
}
VERSIONS = {
    "system_prompt": gettext_lazy("System prompt"),
    "persona": gettext_lazy("Persona"),
    "project": gettext_lazy("Project"),
    "summary_prompt": gettext_lazy("Summary prompt"),
}


def version_named(name: str) -> str:
    """Return the name of a versioned object. A text has the title that the admin shows."""
    if name in VERSIONS:
        return str(VERSIONS[name])
    return _("Text “%(title)s”") % {"title": TEXTS[name].title if name in TEXTS else name}


class StatusLine(NamedTuple):
    """One line that sums up a plan or a report: an icon's name, and a sentence without its full stop."""

    icon: str
    words: str


def plan_line(plan: Plan) -> StatusLine:
    """Return the line at the composer: sources that would not be sent unchanged, and the share of the room in use."""
    if plan["fits"] is False:
        return StatusLine("warn", _too_long(plan["error"]))
    status = status_line(plan, _("Everything you gave fits"))
    used = _("%(percent)s of the room used") % {"percent": percent(plan["used"], plan["limit"])}
    line = status._replace(words=f"{status.words} · {used}")
    if plan["near_limit"] is None:
        return line
    limit = limits.describe_limit(plan["near_limit"])
    return StatusLine("warn", _("%(what)s: %(used)s of %(most)s used") % limit + f" · {line.words}")


def _too_long(error: PlanError) -> str:
    """Return the words for a draft that is too long, with advice. For another error, return its whole sentence."""
    over = error["needed"] - error["limit"] if "needed" in error else error.get("over", 0)
    if over <= 0:
        return str(error["detail"])
    length = too_long(over, error["limit"])
    advice = ADVICE.get(error.get("part", ""))
    return f"{length} · {Sentence(advice) if advice else error['detail']}"


def too_long(over: int, whole: int) -> str:
    """Return the words for a prompt that exceeds a room of `whole` tokens by `over` tokens."""
    if whole <= 0:
        return _("No room is left")
    return _("Too long by %(number)s %%") % {"number": grouped(too_long_by(over, whole))}


def freed(tokens: int, room: int, *, more: bool) -> str:
    """Return the words for the tokens that an offer frees of the `room`. `more`: the offer adds room instead."""
    if room <= 0:
        return _("makes room")
    if more:
        return _("%(number)s %% more room") % {"number": grouped(max(1, 100 * tokens // room))}
    return _("frees %(percent)s of the room") % {"percent": percent(tokens, room)}


def status_line(report: ResolvedReport, whole: str, *, names: bool = True) -> StatusLine:
    """Return the line that sums up a plan or a report.

    `whole` is the sentence for a prompt in which nothing was left out, shortened or summarised. Without `names` the
    line only counts.
    """
    # The user knows which sources they have excluded, and nobody asked for a fact that only shares a word.
    quiet = (*BY_PERSON, "memory_full")
    sources = [source for source in report["sources"] if source.get("reason") not in quiet]
    lines = [
        *_missing(sources, names),
        *_left_out_messages(sources, report["unloaded"]),
        *_reduced(sources, report.get("summary")),
    ] or [StatusLine("tick", whole)]
    on_demand = report.get("tools_on_demand")
    words = [*(each.words for each in lines), *([tools_on_demand(on_demand)] if on_demand else [])]
    return StatusLine(lines[0].icon, " · ".join(words))


def tools_on_demand(tools: ToolsOnDemandEntry) -> str:
    """Return how many tools are listed by name, how many of them are loaded, and how many tokens that saves."""
    listed = ngettext("%(count)s tool listed by name", "%(count)s tools listed by name", len(tools["listed"]))
    loaded = ngettext("%(count)s of them loaded", "%(count)s of them loaded", len(tools["loaded"]))
    saved = ngettext("%(count)s token saved", "%(count)s tokens saved", tools["saved"])
    counts = ((listed, len(tools["listed"])), (loaded, len(tools["loaded"])), (saved, tools["saved"]))
    return ", ".join(words % {"count": grouped(count)} for words, count in counts if count)


def _missing(sources: Sequence[SourceEntry], names: bool) -> Iterator[StatusLine]:
    """Yield lines on the pinned turns and the files that are not sent."""
    if pinned := next((source for source in sources if source.get("mark")), None):
        words = _("“%(title)s” is always to be sent, but there is no room")
        yield StatusLine("out", words % {"title": pinned.get("title", "")})
    missing = [
        source
        for source in sources
        if source["state"] == "left_out" and source["kind"] != "message" and not is_unseen_picture(source)
    ]
    if len(missing) == 1 and names:
        values = {"title": name_of(missing[0]), "reason": REASONS[missing[0].get("reason") or "no_room"]}
        yield StatusLine("out", _("“%(title)s” is not sent: %(reason)s") % values)
    elif missing:
        only_files = all(source["kind"] in ("file", "project_file", "image") for source in missing)
        words = (
            ngettext("%(count)s file was not sent", "%(count)s files were not sent", len(missing))
            if only_files
            else ngettext("%(count)s part was not sent", "%(count)s parts were not sent", len(missing))
        )
        yield StatusLine("out", words % {"count": grouped(len(missing))})


def _left_out_messages(sources: Sequence[SourceEntry], unloaded: int) -> Iterator[StatusLine]:
    """Yield lines on the messages that are not sent, because there is no room or because they are unfinished."""
    reasons = [
        source.get("reason") or "no_room"
        for source in sources
        if source["kind"] == "message" and source["state"] == "left_out" and not source.get("mark")
    ]
    if without_room := unloaded + sum(reason in NO_ROOM for reason in reasons):
        words = ngettext(
            "%(count)s older message left out: no room", "%(count)s older messages left out: no room", without_room
        )
        yield StatusLine("out", words % {"count": grouped(without_room)})
    if unfinished := sum(reason in UNFINISHED for reason in reasons):
        words = ngettext(
            "%(count)s step of an answer not sent: it is not finished",
            "%(count)s steps of an answer not sent: they are not finished",
            unfinished,
        )
        yield StatusLine("out", words % {"count": grouped(unfinished)})


def _reduced(sources: Sequence[SourceEntry], summary: CoveredEntry | None) -> Iterator[StatusLine]:
    """Yield lines on the sources that are shortened, reached by search or summarised."""
    if shortened := sum(1 for source in sources if source["state"] == "shortened"):
        words = ngettext("%(count)s text shortened", "%(count)s texts shortened", shortened)
        yield StatusLine("short", words % {"count": grouped(shortened)})
    if searched := sum(1 for source in sources if source["state"] == "by_search"):
        words = ngettext("%(count)s file by search", "%(count)s files by search", searched)
        yield StatusLine("lens", words % {"count": grouped(searched)})
    if summary:
        words = ngettext("%(count)s old message summarised", "%(count)s old messages summarised", summary["messages"])
        yield StatusLine("stack", words % {"count": grouped(summary["messages"])})


def is_unseen_picture(source: SourceEntry) -> bool:
    """Return whether this is a picture of the project that the model is not shown.

    It is a row of the panel only: nobody has asked for it in this message, and there is nothing to do about it.
    """
    return source["kind"] == "project_file" and source.get("reason") in UNSEEN


def name_of(source: SourceEntry) -> str:
    """Return the source's title, or the name of its kind or section."""
    return source.get("title") or str(KINDS.get(source["kind"]) or SECTIONS[source["kind"]])


def state_of(source: SourceEntry) -> str:
    """Return the words for a source's state and its reason."""
    words = str(STATES[source["state"]])
    if source["state"] == "shortened" and (whole := source.get("cut_from")):
        shares = {"percent": percent(source["tokens"] or 0, whole), "whole": grouped(whole)}
        words = _("shortened to %(percent)s of %(whole)s tokens") % shares
    if source["state"] == "stubbed" and source["kind"] == "file" and not source.get("reason"):
        words = _("only named")
    if reason := source.get("reason"):
        words = f"{words}: {REASONS[reason]}"
    return words


def cost_ahead(cost: PlanCost | None) -> str:
    """Return the words for the cost of sending; empty without a price."""
    if cost is None:
        return ""
    if not Decimal(cost["at_most"]):
        return dollars(Decimal(0))
    amounts = {
        "prompt": dollars(Decimal(cost["prompt"])),
        "answer_per_1000": dollars(Decimal(cost["answer_per_1000"])),
    }
    return _("%(prompt)s + %(answer_per_1000)s per 1,000 tokens (some 700 words) of answer") % amounts
