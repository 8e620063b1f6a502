"""A backup is a directory: `manifest.json`, the rows of each table, and the objects of the storage.

    manifest.json        what it holds, of which version, and the fingerprints of the keys that open its secrets
    rows/<id>/*.copy.gz  all tables at one moment
    objects/…            every object of the storage, by its name

The manifest is written last, so a directory with one is a whole backup. A backup into the same directory again copies
only objects that are new, also when the one before was broken off; the rows are always those of one moment, all anew.
"""

import hashlib
import hmac
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from config.backup import objects, tables
from config.backup.tables import Later, Table
from config.http.health import missing_migrations
from core.private_files import make_private, make_target, open_private
from files.index.indexing import create_vector_index
from files.models import Embedder

FORMAT = 1
MANIFEST = "manifest.json"
STATE = "glasshouse_restore"  # the table of a restore that is under way: its steps that are done
SECONDS_AN_INDEXED_MESSAGE = 0.002  # on a busy machine, both indexes of words; see docs/operations.md
SECONDS_A_ROW = 0.0002  # of any table, with all its other indexes and keys

Say = Callable[[str], object]


class Refused(Exception):
    """Says what is wrong and what to do."""


def back_up(target: Path, say: Say) -> None:
    if missing_migrations():
        raise Refused("Migrations are missing in the database. Run manage.py migrate, then make the backup.")
    if warning := make_target(target):
        say(warning)
    before = target / MANIFEST
    say(f"{objects.copy_out(target / 'objects'):,} objects are copied.")
    own = str(uuid4())
    rows = target / "rows" / own
    make_private(rows, below=target)
    with tables.snapshot():
        made, found = timezone.now(), tables.sequences()
        written = [tables.write(name, columns, rows) for name, columns in tables.tables().items()]
    say(f"{sum(each.rows for each in written):,} rows of {len(written)} tables are written.")
    say(f"{objects.copy_out(target / 'objects'):,} objects that came meanwhile are copied.")
    manifest = {
        "format": FORMAT,
        "id": own,
        "made": made.isoformat(),
        "migrations": _migrations(),
        "keys": _fingerprints(),
        "tables": [each.as_json() for each in written],
        "sequences": found,
    }
    written_aside = before.with_suffix(".partial")
    with open_private(written_aside) as file:
        file.write(json.dumps(manifest, indent=1).encode())
    written_aside.rename(before)
    for each in rows.parent.iterdir():
        if each != rows:
            shutil.rmtree(each)
    say(f"The backup in {target} is whole.")


def restore(source: Path, say: Say) -> None:
    """Into an empty database and the storage of the settings; broken off, it goes on where it was."""
    manifest = _manifest(source)
    rows, kept = source / "rows" / manifest["id"], [Table(**each) for each in manifest["tables"]]
    _begin(manifest, rows, kept)
    say(f"{objects.copy_in(source / 'objects'):,} objects are copied into the storage.")
    if "migrated" not in _done():
        call_command("migrate", interactive=False, verbosity=0)
        _note("migrated")
        say("The tables are made.")
    if "stripped" not in _done():
        with transaction.atomic():
            _note("stripped", [[each.name, each.of, each.definition, each.key] for each in tables.strip([STATE])])
    for table in kept:
        if f"rows of {table.name}" not in _done():
            with transaction.atomic():
                tables.load(table, rows)
                _note(f"rows of {table.name}")
    say(f"{sum(each.rows for each in kept):,} rows are loaded.")
    _make_the_rest(kept, say)
    with transaction.atomic():
        tables.finish([STATE], manifest["sequences"])
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {STATE}")
    say("All is restored. Start the processes; manage.py doctor says what does not fit.")


def _make_the_rest(kept: list[Table], say: Say) -> None:
    count = {table.name: table.rows for table in kept}
    most = 60 + SECONDS_AN_INDEXED_MESSAGE * count.get("chat_message", 0) + SECONDS_A_ROW * sum(count.values())
    later = [Later(*each) for each in _done()["stripped"]]
    say(
        f"{len(later)} indexes and keys are made, those of the search in messages too, within {most / 60:,.0f} minutes."
    )
    begun = time.monotonic()
    for each in later:
        if f"made {each.name}" not in _done():
            with transaction.atomic():
                tables.make(each)
                _note(f"made {each.name}")
    # `reembed` makes these, not a migration, so an empty database has only that of the bundled embedder.
    for dimensions in Embedder.objects.order_by("dimensions").values_list("dimensions", flat=True).distinct():
        create_vector_index(dimensions)
    say(f"That took {(time.monotonic() - begun) / 60:,.1f} minutes.")


def _manifest(source: Path) -> Any:
    try:
        manifest = json.loads((source / MANIFEST).read_text())
    except FileNotFoundError:
        raise Refused(f"There is no whole backup in {source}: it has no {MANIFEST}. Name another directory.") from None
    if manifest["format"] != FORMAT or manifest["migrations"] != _migrations():
        raise Refused(
            f"This backup was made by another version of Glasshouse, on {manifest['made']}. Restore it with that "
            "version, then upgrade."
        )
    keys = _fingerprints()
    if any(not set(needed) <= set(keys[kind]) for kind, needed in manifest["keys"].items()):
        raise Refused(
            "This backup was made with other keys, so its secrets could not be read. Set SECRET_KEY and "
            "ENCRYPTION_KEYS, or the file secret_key in DATA_DIR, to those of the installation that it is from."
        )
    return manifest


def _begin(manifest: Any, rows: Path, kept: list[Table]) -> None:
    """Notes in the database which backup is restored into it, unless it is the one that was broken off."""
    broken = [table.file for table in kept if not tables.is_whole(table, rows)]
    if broken:
        raise Refused(f"The backup is damaged: {', '.join(broken[:5])} is not what was written. Take another backup.")
    under_way = STATE in tables.tables()
    if _done()["backup"] != manifest["id"] if under_way else not tables.is_empty():
        raise Refused(
            "The database is not empty. Make a new one, in which a superuser has made the extension vector, and name "
            "it in DATABASE_URL."
        )
    if not under_way:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {STATE} (step text PRIMARY KEY, said jsonb NOT NULL)")
            _note("backup", manifest["id"])


def _note(step: str, said: Any = "") -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {STATE} VALUES (%s, %s)", [step, json.dumps(said)])  # noqa: S608 - a constant


def _done() -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT step, said::text FROM {STATE}")  # noqa: S608 - a constant
        return {step: json.loads(said) for step, said in cursor.fetchall()}


def _migrations() -> list[str]:
    """Those of this version of Glasshouse and its packages: what the tables are like."""
    loader = MigrationLoader(None)
    return sorted(f"{app}.{name}" for app, name in loader.disk_migrations or ())


def _fingerprints() -> dict[str, list[str]]:
    """Of the keys, which cannot be found out from them."""
    keys = {"secret": [settings.SECRET_KEY], "encryption": settings.ENCRYPTION_KEYS}
    return {kind: [_fingerprint(key) for key in several] for kind, several in keys.items()}


def _fingerprint(key: str) -> str:
    return hmac.new(key.encode(), b"glasshouse backup", hashlib.sha256).hexdigest()[:24]
