"""`manage.py plan`: what the context engine would do, JSON lines in and out: docs/develop/context.md."""

import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from django.core.management.base import BaseCommand, CommandParser

from chat.context.plan_io import KINDS, run

# Of a longer line only the beginning is read, which is no request, so it gets an error answer and not all the memory.
LONGEST_LINE = 256 * 1024 * 1024


class Command(BaseCommand):
    help = "Answers planning requests, one JSON object a line, without database and model."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("kind", choices=KINDS)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            well_formed = run(options["kind"], _lines(sys.stdin.buffer), self._write)
        except BrokenPipeError:
            # Nobody reads any more (`| head`). What is still buffered must go somewhere when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            well_formed = False
        if not well_formed:
            sys.exit(1)

    def _write(self, line: str) -> None:
        self.stdout.write(line, ending="")
        # A program may wait for this answer before it sends the next request.
        self.stdout.flush()


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline(LONGEST_LINE):
        yield line
        while line and not line.endswith(b"\n"):
            line = stream.readline(LONGEST_LINE)
