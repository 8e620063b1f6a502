import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.files.base import File as Content
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from accounts.models import User
from core.errors import ProductError
from files import services as file_services
from files.models import File
from projects import services
from projects.models import Project, roles

MAX_WAITING_FILES = 20  # waiting files at most, so that a large folder does not delay users' uploads
POLL_SECONDS = 0.5  # seconds
STALLED_AFTER = 120.0  # seconds in which no file has been read
BAR_WIDTH = 30  # characters of the progress bar


class Command(BaseCommand):
    help = (
        "Uploads a file, or all files of a folder and its subfolders, into a project. Files whose content the project "
        "already has are skipped, and failed files are read again. If it is interrupted, run it again: it continues "
        "where it stopped. Ends with status 1 if any file failed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path)
        parser.add_argument(
            "--project", required=True, metavar="NAME", help="name of the project; it is created if it does not exist"
        )
        parser.add_argument("--user", metavar="NAME", help="owner of the files; default: the first administrator")

    def handle(self, *args: Any, **options: Any) -> None:
        user = _choose_user(options["user"])
        paths = list(_paths(options["path"]))
        project = _get_or_create_project(user, options["project"])
        self.by_digest = {file.sha256: file for file in services.project_files(project)}
        self.failures: list[str] = []
        self.pending: dict[UUID, Path] = {}
        self.skipped = 0
        for number, path in enumerate(paths):
            self._wait(len(self.pending) >= MAX_WAITING_FILES, number, len(paths))
            try:
                self._upload_unless_present(user, project, path)
            except ProductError as error:
                self.failures.append(f"{path}: {error.detail}")
            except OSError as error:
                self.failures.append(f"{path}: {error.strerror or error}")
            self._show(number + 1, len(paths))
        while self.pending:
            self._wait(True, len(paths), len(paths))
        self._report(project, len(paths) - self.skipped - len(self.failures))

    def _upload_unless_present(self, user: User, project: Project, path: Path) -> None:
        digest = _digest(path)
        file = self.by_digest.get(digest)
        if file is None:
            file = self.by_digest[digest] = _upload(user, project, path)
        elif file.status == File.Status.FAILED and file.owner_id == user.pk:
            file_services.retry(user=user, file=file)
        elif file.status not in File.UNREAD or file.pk in self.pending:
            self.skipped += 1
            return
        self.pending[file.pk] = path

    def _wait(self, needed: bool, number: int, total: int) -> None:
        """Wait for a pending file, if `needed`. Raises CommandError if no file is read within `STALLED_AFTER`."""
        deadline = time.monotonic() + STALLED_AFTER
        while needed and not self._collect():
            if time.monotonic() > deadline:
                raise CommandError(
                    f"No file was read for {STALLED_AFTER:.0f} seconds. Check with `manage.py doctor` that a worker "
                    "runs. Then run this command again: it continues where it stopped."
                )
            self._show(number, total)
            time.sleep(POLL_SECONDS)

    def _collect(self) -> bool:
        """Remove finished and failed files from the pending ones. Return whether there were any."""
        rows = File.objects.filter(pk__in=self.pending).exclude(status__in=File.UNREAD)
        done = list(rows.only("status", "error"))
        for file in done:
            path = self.pending.pop(file.pk)
            if file.status == File.Status.FAILED:
                self.failures.append(f"{path}: {file.problem.english}")
        return bool(done)

    def _show(self, number: int, total: int) -> None:
        if not self.stderr.isatty():
            return
        filled = BAR_WIDTH * number // max(1, total)
        waiting = f", {len(self.pending)} being read" if self.pending else ""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        line = f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {number:,} of {total:,}{waiting}{failed}"
        self.stderr.write(f"\r\x1b[K{line}", ending="")
        self.stderr.flush()

    def _report(self, project: Project, read: int) -> None:
        if self.stderr.isatty():
            self.stderr.write("")
        self.stdout.write(f"{project}: {read:,} read, {self.skipped:,} already there, {len(self.failures):,} failed")
        for failure in self.failures:
            self.stdout.write(f"  {failure}")
        if self.failures:
            sys.exit(1)


def _choose_user(name: str | None) -> User:
    people = User.objects.filter(is_active=True)
    if name is not None:
        user = people.filter(username=name).first()
        if user is None:
            raise CommandError(f"There is no user “{name}”.")
        return user
    admin = people.filter(is_superuser=True).order_by("date_joined", "pk").first()
    if admin is None:
        raise CommandError("There is no administrator. Choose a user with --user.")
    return admin


def _get_or_create_project(user: User, name: str) -> Project:
    rows = list(Project.objects.visible_to(user).filter(name=name)[:2])
    if len(rows) > 1:
        raise CommandError(f"{user} sees several projects named “{name}”. Rename one of them first.")
    try:
        project = rows[0] if rows else services.create_project(user=user, fields={"name": name})
        roles.require_editor(user=user, project=project)
    except ProductError as error:
        raise CommandError(error.detail) from error
    return project


def _paths(path: Path) -> Iterator[Path]:
    """Yield the file, or all files below the folder in order, without hidden files and links."""
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise CommandError(f"There is neither a file nor a folder at {path}.")
    for each in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in each.relative_to(path).parts)
        if not hidden and not each.is_symlink() and each.is_file():
            yield each


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _upload(user: User, project: Project, path: Path) -> File:
    with path.open("rb") as stream, transaction.atomic():
        file = file_services.store(user=user, name=path.name, content=Content(stream, name=path.name))
        services.add_file(user=user, project=project, file=file)
    return file
