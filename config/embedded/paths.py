"""The data directory: paths and URLs of the embedded services, file modes, and the lock that allows one supervisor."""

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

PROJECT_ROOT = Path(__file__).resolve().parents[2]
DATABASE = "glasshouse"
UPLOADS = "files"
POSTGRES_SOCKET = ".s.PGSQL.5432"
REDIS_SOCKET = "redis.sock"
# sockaddr_un.sun_path holds 108 bytes with the final NUL; PostgreSQL refuses to start with a longer path.
MAX_SOCKET_PATH_LENGTH = 107
LEFTOVER_SECONDS = 20.0
OTHERS_MODE_BITS = 0o077  # mode bits for everybody but the owner
# The product's files in its data directory, without `pg`: PostgreSQL refuses to start on a directory that is open to
# other users. The directory may hold foreign files, which we must not touch.
OWN_FILES = (
    UPLOADS,
    "redis",
    "run",
    "locale",
    "static",
    "secret_key",
    "up.lock",
    "children.lock",
    "celerybeat-schedule*",
)


class StartError(Exception):
    """The product cannot start. The message is one sentence for the operator: the problem and its remedy."""


def data_dir() -> Path:
    """Return the absolute path, which need not exist. A relative `DATA_DIR` starts at the current directory."""
    path = os.environ.get("DATA_DIR")
    return Path(path).expanduser().absolute() if path else PROJECT_ROOT / "var"


def socket_dir(data: Path) -> Path:
    """Return `run/` in the data directory or, if its path is too long for a socket, a private directory under /tmp.

    Raises StartError if the path under /tmp exists but is not a private directory of this user. Anyone may create names
    there, so another user could impersonate our database.
    """
    inside = data / "run"
    if len(os.fsencode(inside / POSTGRES_SOCKET)) <= MAX_SOCKET_PATH_LENGTH:
        return inside
    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    short = Path("/tmp") / f"glasshouse-{os.geteuid()}-{name}"  # noqa: S108 - its owner and mode are checked below
    try:
        status = short.lstat()
    except FileNotFoundError:
        return short
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise StartError(f"{short} is not a private directory of yours; remove it, or set DATA_DIR to a shorter path.")
    return short


def database_url(data: Path) -> str:
    """Return the URL in libpq's socket form: `postgresql://USER@/DBNAME?host=/socket/dir`."""
    return f"postgresql://{DATABASE}@/{DATABASE}?host={quote(str(socket_dir(data)))}"


def redis_url(data: Path) -> str:
    """Return the URL in redis-py's socket form: `unix:///path/redis.sock?db=0`."""
    return f"unix://{quote(str(socket_dir(data) / REDIS_SOCKET))}?db=0"


def make_data_dir(data: Path) -> None:
    """Make the data directory, closed to other users. An existing one keeps its mode, but its uploads are closed.

    The next start closes our other files as well (`close_to_others`). Raises StartError if it is not writable.
    """
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data / UPLOADS).mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(PermissionError):  # another user owns it, which `manage.py doctor` reports
            (data / UPLOADS).chmod(0o700)
        with tempfile.TemporaryFile(dir=data):
            pass
    except OSError as error:
        raise StartError(
            f"The data directory {data} cannot be written ({error.strerror}); set DATA_DIR to one that can."
        ) from error


def find_open_paths(data: Path) -> Iterator[Path]:
    """Yield our paths in the data directory that other users of this machine could read, write or enter."""
    for top in (each for name in OWN_FILES for each in data.glob(name)):
        below = (os.path.join(folder, name) for folder, *names in os.walk(top) for name in (*names[0], *names[1]))
        for path in (str(top), *below):
            with contextlib.suppress(OSError):  # it was deleted meanwhile, or is in a folder that we may not enter
                mode = os.lstat(path).st_mode
                if mode & OTHERS_MODE_BITS and not stat.S_ISLNK(mode):
                    yield Path(path)


def close_to_others(data: Path) -> None:
    """Set our folders to 0700 and files to 0600. On a mounted volume they may be open to all.

    Files of another user stay as they are; `manage.py doctor` reports them.
    """
    for path in find_open_paths(data):
        with contextlib.suppress(OSError):
            path.chmod(stat.S_IMODE(path.lstat().st_mode) & ~OTHERS_MODE_BITS)


def secret_key(data: Path) -> str:
    """Return the secret key. The first call creates it, even if several processes call at once.

    Raises StartError if there is no key and the data directory is not writable.
    """
    path = data / "secret_key"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        make_data_dir(data)
    except OSError as error:
        raise StartError(f"{path} cannot be read ({error.strerror}); run as its owner or set SECRET_KEY.") from error
    draft = data / f".secret_key.{os.getpid()}"
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(50) + "\n")
        file.flush()
        os.fsync(file.fileno())
    # A link fails if another process has just made the key; a rename would overwrite that key.
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()
    return path.read_text().strip()


@contextmanager
def lock_data_dir(data: Path) -> Iterator[int]:
    """Lock the directory, and yield a descriptor for children to inherit. Raises StartError if it is locked.

    There are two locks: the supervisor's own, and one that each child shares while it lives. So a start soon after the
    supervisor was killed waits until the last process that writes here has ended.
    """
    with (data / "up.lock").open("a+") as own, (data / "children.lock").open("a") as shared:
        if not _try_lock(own.fileno()):
            own.seek(0)
            holder = own.read().strip() or "unknown"
            raise StartError(
                f"The data directory {data} is in use by another `manage.py up` (process {holder});"
                " stop that one first, or set DATA_DIR to another directory."
            )
        own.truncate(0)
        own.write(f"{os.getpid()}\n")
        own.flush()
        deadline = time.monotonic() + LEFTOVER_SECONDS
        while not _try_lock(shared.fileno()):
            if time.monotonic() > deadline:
                raise StartError(f"Processes of an earlier start still use {data}; `fuser -k {shared.name}` ends them.")
            time.sleep(0.05)
        yield shared.fileno()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
