import sys
from typing import Any

from django.core.management.base import BaseCommand

from config.doctor import findings


class Command(BaseCommand):
    """Ends with status 1 when anything fails; a warning alone is none."""

    help = "Checks every dependency and setting, and says what is wrong and how to mend it."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        styles = {"ok": self.style.SUCCESS, "warn": self.style.WARNING, "fail": self.style.ERROR}
        failed = False
        for finding in findings():
            failed = failed or finding.state == "fail"
            mend = f" → {finding.mend}" if finding.mend else ""
            state = styles[finding.state](f"{finding.state:<4}")
            self.stdout.write(f"{state}  {finding.subject}: {finding.detail}{mend}")
        if failed:
            sys.exit(1)
