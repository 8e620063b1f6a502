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
from chat.lab.services import Totals, TurnComparison, answered, cells, chosen, conversation_of, planned
from core.background import submit
from core.errors import ProductError
from llm.models import Model
from personas.models import BudgetProfile, SystemPrompt

Row = TypeVar("Row", bound=AnyRow)
WIDTHS = (36, 9, 9, 9, 9, 9, 9, 14, 14)
HEADINGS = ("turn", "tokens", "now", "cached %", "now", "left out", "now", "cost", "now")


class Command(BaseCommand):
    help = (
        "Plans stored turns again under another model, budget profile, layout, policy, form and place of reminders, or "
        "version of the system prompt, "
        "and says what that would take, beside what was sent. What is not named stays as it was. Without anything "
        "named, every number is that of the stored report; where that is not so any more, it says why."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--conversation", metavar="ID", help="its newest turns; without it a sample of all")
        which.add_argument("--sample", type=number, metavar="TURNS", help="how many of all conversations (100)")
        parser.add_argument("--most", type=number, metavar="TURNS", help="of the conversation, the newest (1,000)")
        parser.add_argument("--model", metavar="MODEL", help="MODEL or PROVIDER/MODEL")
        parser.add_argument("--profile", metavar="NAME", help="a budget profile")
        parser.add_argument("--layout", choices=[*LAYOUTS])
        parser.add_argument("--policy", choices=[*POLICIES])
        parser.add_argument("--note-form", choices=BudgetProfile.NoteForm.values, help="the mark of reminders")
        parser.add_argument("--reminder-place", choices=BudgetProfile.ReminderPlace.values)
        parser.add_argument("--citation-reminder", choices=Replay.CitationReminder.values, help="when it stands there")
        parser.add_argument("--system-prompt", type=int, metavar="VERSION")
        parser.add_argument(
            "--ask",
            action="store_true",
            help=f"the model answers, too, at most {Replay.MOST_ASKED} turns; both answers are written out",
        )
        parser.add_argument("--json", action="store_true", help="a JSON object a line, the sums last")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            variation = variation_of(options)
            place = conversation_of(options["conversation"]) if options["conversation"] else None
            turns = chosen(conversation=place, most=how_many(options))
        except ProductError as error:
            raise CommandError(error.detail) from error
        totals = Totals()
        show = self._json if options["json"] else self._row
        if not options["json"]:
            self._line(HEADINGS)
        for result in planned(turns, variation):
            if options["ask"]:
                submit(answered([result])).result()
            totals.add(result)
            show(result)
        if options["json"]:
            self.stdout.write(json.dumps({"totals": totals.as_json()}))
            return
        self._line(("all that can be compared", *cells(totals.sent.as_json(), totals.planned.as_json())))
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
        self._line((str(result.turn.pk), *cells(sent, now)))
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


def how_many(options: dict[str, Any]) -> int:
    """Return the number of turns. Raises `CommandError` if the model would answer too many turns."""
    number = options["most"] or options["sample"]
    if options["most"] and not options["conversation"]:
        raise CommandError("--most is for a --conversation; say --sample for turns of all conversations.")
    if not options["ask"]:
        return number or (Replay.MOST if options["conversation"] else 100)
    if number and number > Replay.MOST_ASKED:
        raise CommandError(f"With --ask at most {Replay.MOST_ASKED} turns: each is a model call that costs money.")
    return number or Replay.MOST_ASKED


def variation_of(options: dict[str, Any]) -> Variation:
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
        raise CommandError(f"Several providers have a {what}. Say PROVIDER/MODEL.")
    return matches[0]


def number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:5]) <= Replay.MOST):
        raise argparse.ArgumentTypeError(f"a number of turns from 1 to {Replay.MOST:,}, not {text[:20]!r}")
    return int(text)
