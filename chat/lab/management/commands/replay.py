"""`manage.py replay`: plan stored turns again with other settings, and compare them with the prompts that were sent."""

import argparse
import json
from typing import Any, TypeVar

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Model as AnyRow
from django.db.models import Q, QuerySet

from chat.context.build import POLICIES
from chat.context.rendering import LAYOUTS
from chat.lab.models import Replay
from chat.lab.past import Variation
from chat.lab.services import (
    Totals,
    TurnComparison,
    ask_models,
    choose_turns,
    format_figures,
    get_conversation,
    plan_turns,
)
from core.background import submit
from core.errors import ProductError
from llm.models import Model
from personas.models import BudgetProfile, SystemPrompt

Row = TypeVar("Row", bound=AnyRow)
WIDTHS = (36, 9, 9, 9, 9, 9, 9, 14, 14)
HEADINGS = ("turn", "tokens", "now", "cached %", "now", "left out", "now", "cost", "now")


class Command(BaseCommand):
    help = (
        "Plans stored turns again with another model, budget profile, layout, policy, form and place of reminders, or "
        "version of the system prompt, and compares the new prompts with those that were sent. Options that are not "
        "given keep their values of that time. Without options, every number equals that of the stored report; if a "
        "turn can no longer be planned so, the reason is printed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--conversation", metavar="ID", help="plan its newest turns; default: a sample of all turns")
        which.add_argument("--sample", type=turn_count, metavar="TURNS", help="size of the sample of all turns (100)")
        parser.add_argument(
            "--most", type=turn_count, metavar="TURNS", help="at most this many turns of the conversation (1,000)"
        )
        parser.add_argument("--model", metavar="MODEL", help="MODEL or PROVIDER/MODEL")
        parser.add_argument("--profile", metavar="NAME", help="a budget profile")
        parser.add_argument("--layout", choices=[*LAYOUTS])
        parser.add_argument("--policy", choices=[*POLICIES])
        parser.add_argument("--note-form", choices=BudgetProfile.NoteForm.values, help="the mark of reminders")
        parser.add_argument("--reminder-place", choices=BudgetProfile.ReminderPlace.values)
        parser.add_argument(
            "--citation-reminder", choices=Replay.CitationReminder.values, help="when prompts have this reminder"
        )
        parser.add_argument("--system-prompt", type=int, metavar="VERSION")
        parser.add_argument(
            "--ask",
            action="store_true",
            help=f"also ask the model, for at most {Replay.MAX_ASKED} turns, and print both answers",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object per line, the sums last")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            variation = parse_variation(options)
            place = get_conversation(options["conversation"]) if options["conversation"] else None
            turns = choose_turns(conversation=place, most=number_of_turns(options))
        except ProductError as error:
            raise CommandError(error.detail) from error
        totals = Totals()
        show = self._json if options["json"] else self._row
        if not options["json"]:
            self._line(HEADINGS)
        for result in plan_turns(turns, variation):
            if options["ask"]:
                submit(ask_models([result])).result()
            totals.add(result)
            show(result)
        if options["json"]:
            self.stdout.write(json.dumps({"totals": totals.as_json()}))
            return
        self._line(("all that can be compared", *format_figures(totals.sent.as_json(), totals.planned.as_json())))
        self.stdout.write(f"{totals.compared} of {totals.turns} turns can be compared.")

    def _json(self, result: TurnComparison) -> None:
        row = {
            "turn": str(result.turn.pk),
            "conversation": str(result.turn.conversation_id),
            "sent": result.sent.as_json() if result.sent else None,
            "planned": result.planned.as_json() if result.planned else None,
            "problems": [{"code": problem.code, "detail": problem.detail.english} for problem in result.problems],
            "changes": result.changes,
        }
        if result.answer:
            row |= {"answered": result.turn.answer.text, "answers": result.answer}
        self.stdout.write(json.dumps(row, ensure_ascii=False))

    def _row(self, result: TurnComparison) -> None:
        sent, now = (each.as_json() if each is not None else {} for each in (result.sent, result.planned))
        self._line((str(result.turn.pk), *format_figures(sent, now)))
        for problem in result.problems:
            self.stdout.write(f"  {problem.detail.english} ({problem.code})")
        if result.answer:
            self.stdout.write(f"  --- answered then ---\n{result.turn.answer.text}")
            self.stdout.write(f"  --- answers now ---\n{result.answer}\n  ---")

    def _line(self, cells: tuple[str, ...]) -> None:
        padded = [
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True))
        ]
        self.stdout.write(" ".join(padded).rstrip())


def number_of_turns(options: dict[str, Any]) -> int:
    """Return the number of turns. Raises `CommandError` if the model would answer too many turns."""
    turn_count = options["most"] or options["sample"]
    if options["most"] and not options["conversation"]:
        raise CommandError("--most needs --conversation. Use --sample for turns of all conversations.")
    if not options["ask"]:
        return turn_count or (Replay.MAX_COUNT if options["conversation"] else 100)
    if turn_count and turn_count > Replay.MAX_ASKED:
        raise CommandError(f"--ask allows at most {Replay.MAX_ASKED} turns: each is a model call that costs money.")
    return turn_count or Replay.MAX_ASKED


def parse_variation(options: dict[str, Any]) -> Variation:
    """Return the settings to change. Raises `CommandError` for an unknown name."""
    model, profile, version = (options[name] for name in ("model", "profile", "system_prompt"))
    return Variation(
        model=_model(model) if model is not None else None,
        profile=_one(BudgetProfile.objects.filter(name=profile), f"budget profile {profile}") if profile else None,
        layout=options["layout"] or "",
        policy=options["policy"] or "",
        note_form=options["note_form"] or "",
        reminder_place=options["reminder_place"] or "",
        citation_reminder=options["citation_reminder"] or "",
        prompt=(
            _one(SystemPrompt.objects.filter(version=version), f"version {version} of the system prompt")
            if version is not None
            else None
        ),
    )


def _model(text: str) -> Model:
    provider, _, name = text.partition("/")
    return _one(Model.objects.usable().filter(Q(name=text) | Q(provider__name=provider, name=name)), f"model {text}")


def _one(rows: "QuerySet[Row]", what: str) -> Row:
    matches = list(rows[:2])
    if not matches:
        raise CommandError(f"There is no {what}.")
    if len(matches) > 1:
        raise CommandError(f"Several providers have a {what}. Write PROVIDER/MODEL.")
    return matches[0]


def turn_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:5]) <= Replay.MAX_COUNT):
        raise argparse.ArgumentTypeError(f"a number of turns from 1 to {Replay.MAX_COUNT:,}, not {text[:20]!r}")
    return int(text)
