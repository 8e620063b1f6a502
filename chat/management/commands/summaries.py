import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from chat.models import Conversation, SummaryJob
from chat.models.summary import in_force
from chat.summaries import jobs
from chat.summaries import services as summary_services
from core import background
from core.errors import ProductError
from personas.models import SummaryPrompt


class Command(BaseCommand):
    help = "rebuild: writes every summary that an older version of the summary prompt made anew, one after the other."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["rebuild"])

    def handle(self, *args: Any, **options: Any) -> None:
        active = SummaryPrompt.objects.filter(active=True).values_list("version", flat=True).first() or 0
        rows = Conversation.objects.filter(summaries__withdrawn=None).exclude(summaries=None).distinct()
        holding = ((row, in_force(row.pk, row.leaf_id)) for row in rows.select_related("owner").iterator(100))
        stale = [(row, summary) for row, summary in holding if summary and summary.prompt_version != active]
        done = 0
        for number, (row, summary) in enumerate(stale, 1):
            problem = self._rebuild(row, summary)
            done += not problem
            if problem:
                self.stderr.write(f"\nConversation {row.pk}: {problem}")
            self.stdout.write(f"\r{number} of {len(stale)} summaries", ending="")
            self.stdout.flush()
        self.stdout.write(f"\n{done} summaries are of version {active} now.")

    def _rebuild(self, row: Conversation, summary: Any) -> str:
        """The sentence why not; empty when it was written."""
        try:
            job = summary_services.rebuild_summary(user=row.owner, summary=summary)
        except ProductError as error:
            return error.detail
        # Whoever claims it first writes it: this process or a worker.
        background.submit(jobs.run(job.pk)).result()
        while SummaryJob.objects.live().filter(pk=job.pk).exists():
            time.sleep(0.2)
            jobs.stale()
        return SummaryJob.objects.get(pk=job.pk).detail
