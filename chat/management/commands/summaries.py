import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from chat.background.tasks import write_summary
from chat.models import Conversation, Summary, SummaryJob
from chat.models.summary import in_force
from chat.summaries import services as summary_services
from chat.summaries.ending import SUMMARIES
from core import background
from core.errors import ProductError
from core.jobs import sweep
from personas.models import SummaryPrompt

POLL_INTERVAL = 1.0  # seconds between two looks at a job that another process has claimed


class Command(BaseCommand):
    help = "rebuild: writes every summary that an older version of the summary prompt made anew, one after the other."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["rebuild"])

    def handle(self, *args: Any, **options: Any) -> None:
        active = SummaryPrompt.objects.filter(active=True).values_list("version", flat=True).first() or 0
        rows = Conversation.objects.filter(summaries__withdrawn=None).exclude(summaries=None).distinct()
        summarised = ((row, in_force(row.pk, row.leaf_id)) for row in rows.select_related("owner").iterator(100))
        stale = [(row, summary) for row, summary in summarised if summary and summary.prompt_version != active]
        done = 0
        for number, (row, summary) in enumerate(stale, 1):
            problem = self._rebuild(row, summary)
            done += not problem
            if problem:
                self.stderr.write(f"\nConversation {row.pk}: {problem}")
            self.stdout.write(f"\r{number} of {len(stale)} summaries", ending="")
            self.stdout.flush()
        background.wait_for_background_tasks()
        self.stdout.write(f"\n{done} summaries are of version {active} now.")

    def _rebuild(self, row: Conversation, summary: Summary) -> str:
        """Rebuild the summary. Returns the error in a sentence; empty if the summary was written."""
        try:
            summary_services.rebuild_summary(user=row.owner, summary=summary)
        except ProductError as error:
            return error.detail
        # This process or a worker claims the job first and writes it. The same holds for a job that replaces it.
        rebuilds = SummaryJob.objects.filter(target=summary)
        while (job := rebuilds.live().first()) is not None:
            if not background.submit(write_summary(job.pk)).result():
                time.sleep(POLL_INTERVAL)
                sweep(SUMMARIES)
        return rebuilds.latest("id").detail.english
