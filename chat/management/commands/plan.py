"""`manage.py plan`: answer requests to the context engine and to the check of citations, in JSON lines.

See docs/develop/context.md.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from django.core.management.base import BaseCommand, CommandParser

from chat.citations.plan_io import answer_citation
from chat.context.plan_io import KINDS, run

ALL_KINDS = {**KINDS, "citations": answer_citation}
# Bytes. Only the beginning of a longer line is read, so that it cannot fill the memory. It gets an error answer.
MAX_LINE_LENGTH = 256 * 1024 * 1024


class Command(BaseCommand):
    help = "Answers planning requests, one JSON object a line, without database and model."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("kind", choices=ALL_KINDS)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            well_formed = run(options["kind"], _lines(sys.stdin.buffer), self._write, ALL_KINDS)
        except BrokenPipeError:
            # The reader has closed the pipe (`| head`). Python still flushes its buffer at exit, which must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            well_formed = False
        if not well_formed:
            sys.exit(1)

    def _write(self, line: str) -> None:
        self.stdout.write(line, ending="")
        # A program may wait for this answer before it sends the next request.
        self.stdout.flush()


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline(MAX_LINE_LENGTH):
        yield line
        while line and not line.endswith(b"\n"):
            line = stream.readline(MAX_LINE_LENGTH)
