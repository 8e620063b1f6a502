from datetime import datetime, time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from core.audit.chain import ChainCheck, verify
from core.audit.models import Entry
from core.audit.reading import AuditFilter, json_lines

MAX_SHOWN = 100  # faults that are printed in full; the rest are only counted


class Command(BaseCommand):
    help = (
        "Prints the audit, oldest act first. With --verify, checks the chain of hashes instead, and exits with status "
        "1 if somebody changed, removed or inserted rows in the database."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--since", metavar="WHEN", help="a day or a time, such as 2026-11-01 or 2026-11-01T08:00Z")
        parser.add_argument("--after", type=int, metavar="SEQUENCE", help="acts with a greater sequence")
        parser.add_argument("--actor", default="", metavar="NAME", help="acts of this user, by name or id")
        parser.add_argument("--action", default="", help="such as token.made, or token for all acts on tokens")
        parser.add_argument("--json", action="store_true", help="one JSON object per line, with all fields")
        parser.add_argument("--verify", action="store_true", help="check the chain from its beginning on")
        parser.add_argument(
            "--head",
            metavar="SEQUENCE:HASH",
            help="with --verify: a sequence and hash that you stored elsewhere, to detect whether the end is missing",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verify"]:
            self._verify(options["head"])
            return
        chosen = AuditFilter(
            since=_parse_time(options["since"]),
            after=options["after"],
            actor=options["actor"],
            action=options["action"],
        )
        try:
            rows = chosen.rows()
        except LookupError as error:
            raise CommandError(f"There is no act “{error.args[0]}”. Name an act such as token.made.") from error
        if options["json"]:
            for page in json_lines(rows):
                self.stdout.write(page, ending="")
            return
        for entry in rows.iterator(2_000):
            who = entry.actor_name or "-"
            what = " ".join(part for part in (entry.object_type, entry.object_name or entry.object_id) if part)
            self.stdout.write(f"{entry.at:%Y-%m-%dT%H:%M:%SZ}  {entry.how:<7}  {who}  {entry.action}  {what}".rstrip())

    def _verify(self, head: str | None) -> None:
        check = ChainCheck()
        faults = 0
        for fault in verify(check):
            faults += 1
            if faults <= MAX_SHOWN:
                place = "-" if fault.sequence is None else f"{fault.sequence:,}"
                self.stderr.write(f"row {place}: {fault.sentence}")
        faults += self._lacks_head(head)
        self.stdout.write(f"{check.rows:,} rows checked; the last is {check.sequence}:{check.hash}")
        if faults:
            raise CommandError(f"The audit was changed after it was written: {faults:,} faults.")

    def _lacks_head(self, head: str | None) -> bool:
        if head is None:
            return False
        sequence, _, digest = head.partition(":")
        if not sequence.isdecimal():
            raise CommandError("Write --head as the sequence and the hash that an earlier --verify printed: 12:9f86…")
        if Entry.objects.filter(sequence=int(sequence), hash=digest).exists():
            return False
        self.stderr.write(f"row {sequence}: It is missing, or its hash differs from --head.")
        return True


def _parse_time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = parse_datetime(text)
        day = parse_date(text)
    except ValueError:
        moment = day = None
    if moment is None and day is not None:
        moment = datetime.combine(day, time.min)
    if moment is None:
        raise CommandError(f"“{text}” is no time. Write it as 2026-11-01 or 2026-11-01T08:00Z.")
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
