"""What the templates of personas show: plain values, with the choices in words."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from accounts.models import User
from llm import tokens
from llm.errors import ProductError
from llm.models import Model, WebSearch
from llm.sentences import grouped
from personas import tools
from personas.forms import PersonaPageForm
from personas.models import BudgetProfile, Persona, SystemPrompt
from personas.services import default_profile, model_for
from personas.tools import Offer


@dataclass(frozen=True, slots=True)
class Option:
    """One of the values of a field: its name, what it means, and whether it is the chosen one."""

    value: str
    label: str
    words: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Count:
    """`percent` of the model's window, rounded up; `model` is empty where none is set up."""

    tokens: int
    exact: bool
    model: str = ""
    window: int = 0

    @property
    def percent(self) -> int:
        return -(-100 * self.tokens // self.window) if self.window else 0


@dataclass(frozen=True, slots=True)
class ServerTools:
    """Of one server: what can be ticked, and the sentence that says why there is not more."""

    name: str
    tools: list[Option]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class PersonaList:
    mine: list[Persona]
    others: list[Persona]


def persona_list(user: User) -> PersonaList:
    rows = Persona.objects.visible_to(user).select_related("owner", "model").defer("instructions")
    found = list(rows)
    return PersonaList(
        mine=[persona for persona in found if persona.owner_id == user.pk],
        others=[persona for persona in found if persona.owner_id != user.pk],
    )


def count(text: str, model: Model | None) -> Count:
    """`text` as the model counts it; without one that can be used, as the workspace's default does."""
    try:
        counting = model_for(Persona(model=model))
    except ProductError:
        return Count(tokens.count(text.strip()), exact=False)
    size = tokens.count(text.strip(), counting.tokenizer or tokens.CATCH_ALL)
    return Count(size, bool(counting.tokenizer), counting.name, counting.window)


def choices(form: PersonaPageForm) -> dict[str, Any]:
    """The options of every field that has some, by the field's name."""
    chosen = [str(name) for name in form["tools"].value() or ()]
    servers = [Offer(name) for name in tools.server_names()]
    return {
        "places": _places(bool(form["replaces_system_prompt"].value())),
        "models": _models(form),
        "profiles": _profiles(str(form["budget_profile"].value() or "")),
        "web": _web(chosen),
        "tasks": _tasks(chosen),
        "servers": server_tools(servers, chosen),
        "kept": [name for name in chosen if name in tools.AUTOMATIC],
        "searching": WebSearch.objects.filter(active=True).exists(),
        "dates": _dates(str(form["date_awareness"].value())),
        "visibilities": _visibilities(str(form["visibility"].value())),
    }


def _places(replaces: bool) -> list[Option]:
    active = SystemPrompt.objects.filter(active=True).first()
    named = _("the workspace's system prompt")
    if active is not None:
        size = active.tokens.get(tokens.CATCH_ALL, 0)
        named = _("the workspace's system prompt (version %(version)s, %(tokens)s tokens)") % {
            "version": active.version,
            "tokens": grouped(size),
        }
    beside = _("These instructions stand just above the newest message, and %(named)s stays at the beginning.")
    instead = _("These instructions stand at the beginning, and %(named)s is not sent. Its rules hold no more.")
    return [
        Option("false", _("Beside the system prompt"), beside % {"named": named}, not replaces),
        Option("true", _("In the system prompt's place"), instead % {"named": named}, replaces),
    ]


def _models(form: PersonaPageForm) -> list[Option]:
    chosen = str(form["model"].value() or "")
    try:
        default = _("The workspace's default (%(name)s)") % {"name": model_for(None).name}
    except ProductError:
        default = _("The workspace's default")
    usable = [
        Option(str(model.pk), _model_label(model), "", str(model.pk) == chosen) for model in Model.objects.usable()
    ]
    options = [Option("", default, "", not chosen), *usable]
    if not any(option.chosen for option in options):
        off = _("%(name)s (switched off; the default answers)") % {"name": form.instance.model or chosen}
        options.append(Option(chosen, off, "", True))
    return options


def _model_label(model: Model) -> str:
    return _("%(name)s (%(window)s tokens)") % {"name": model.name, "window": grouped(model.window)}


def _profiles(chosen: str) -> list[Option]:
    default = default_profile()
    label = _("The workspace's default (%(name)s)") % {"name": default.name}
    named = [
        Option(str(row.pk), row.name, profile_words(row), str(row.pk) == chosen) for row in BudgetProfile.objects.all()
    ]
    return [Option("", label, profile_words(default), not chosen), *named]


def profile_words(profile: BudgetProfile) -> str:
    """The numbers of a profile that its persona's conversations notice, as a sentence each."""
    window = _("It uses the model's whole window.")
    if profile.window is not None:
        window = _("It uses at most %(window)s tokens of the model's window.") % {"window": grouped(profile.window)}
    answer = _("%(tokens)s are kept free for the answer.") % {"tokens": grouped(profile.reserved_output)}
    files = _("Attached files may fill %(ui)s of the room; project files are sent whole below %(project)s.") % {
        "ui": _percent(profile.ui_share),
        "project": _percent(profile.project_share),
    }
    return " ".join([window, answer, files, _summary_words(profile)])


def _summary_words(profile: BudgetProfile) -> str:
    if not profile.summaries:
        return _("Old messages are left out when there is no room.")
    if profile.ceiling is not None and profile.floor is not None:
        above, down = grouped(profile.ceiling), grouped(profile.floor)
        sentence = _("Old messages are summarised above %(above)s tokens, down to %(down)s.")
    else:
        above, down = _percent(profile.ceiling_share), _percent(profile.floor_share)
        sentence = _("Old messages are summarised above %(above)s of the room, down to %(down)s.")
    return sentence % {"above": above, "down": down}


def _percent(share: Any) -> str:
    return f"{float(share) * 100:g}\N{NO-BREAK SPACE}%"


def _web(chosen: Collection[str]) -> list[Option]:
    words = {
        "web_search": _("Searches the web and cites what it finds."),
        "open_url": _("Reads a page whose address a person or a search has given."),
    }
    return [Option(name, name, words[name], name in chosen) for name in tools.WEB]


def _tasks(chosen: Collection[str]) -> list[Option]:
    words = _("Lists your tasks, creates them, drafts checklists and ticks items. Only you clear a breakpoint.")
    return [Option(tools.TASKS, tools.TASKS, words, tools.TASKS in chosen)]


def server_tools(asked: Sequence[Offer], chosen: Sequence[str]) -> list[ServerTools]:
    """For each server what can be ticked: all its tools, those it has named, and those that are chosen all the same."""
    ours = [name for name in chosen if name not in (*tools.WEB, tools.TASKS, *tools.AUTOMATIC)]
    servers = [_server(offer, ours) for offer in asked]
    known = {option.value for server in servers for option in server.tools}
    gone: dict[str, list[str]] = {}
    for name in ours:
        if name not in known:
            gone.setdefault(name.partition(tools.SEPARATOR)[0], []).append(name)
    return servers + [_gone(server, names) for server, names in gone.items()]


def _server(offer: Offer, chosen: Collection[str]) -> ServerTools:
    offered = dict(offer.tools)
    named = [name for name in chosen if name.startswith(f"{offer.server}{tools.SEPARATOR}") and name != offer.every]
    options = [Option(name, name, words, name in chosen) for name, words in offered.items()]
    absent = _("Not offered at the moment.") if offered or offer.failure else ""
    options += [Option(name, name, absent, True) for name in named if name not in offered]
    every = Option(
        offer.every, offer.every, _("All tools of this server, also those it gets later."), offer.every in chosen
    )
    return ServerTools(offer.server, [every, *options], offer.failure)


def _gone(server: str, names: Sequence[str]) -> ServerTools:
    options = [Option(name, name, "", True) for name in names]
    return ServerTools(server, options, _("This server is not set up or switched off."))


def _dates(chosen: str) -> list[Option]:
    words = {
        Persona.DateAwareness.DAY: _("It knows the day of the newest message."),
        Persona.DateAwareness.MINUTE: _("It knows the time too; its prompt then changes every minute."),
        Persona.DateAwareness.OFF: _("It is told no date."),
    }
    return [Option(value.value, str(value.label), words[value], value == chosen) for value in words]


def _visibilities(chosen: str) -> list[Option]:
    words = {
        Persona.Visibility.PRIVATE: _("Nobody else sees it."),
        Persona.Visibility.WORKSPACE: _(
            "Everybody may use, read and duplicate it; only you and administrators change it."
        ),
    }
    return [Option(value.value, str(value.label), words[value], value == chosen) for value in words]
