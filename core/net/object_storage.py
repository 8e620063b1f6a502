"""Django's storage in a bucket of S3, or of what speaks its protocol (MinIO, Garage, Ceph, SeaweedFS)."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError
from storages.backends.s3 import S3Storage
from storages.utils import clean_name

CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 2, 10, 2  # somebody waits, and is told to try again
ANSWER_SECONDS = 1.5  # twice at most, for the question whether an object is there, asked before it is written or read
SILENT_SECONDS = 2  # in which one that has not answered is not asked again
IN_MEMORY = 5_000_000  # bytes of an object that is read; more wait on disk


class StorageAway(OSError):
    """The server of the bucket does not answer, or refuses."""


class ObjectStorage(S3Storage):  # type: ignore[misc]
    """Without `access_key` and `secret_key` those of the environment, or of the machine's role, are used."""

    def __init__(self, **options: Any) -> None:
        config = _config(options, READ_SECONDS, ATTEMPTS)
        self._hurried = _config(options, ANSWER_SECONDS, 1)
        self._making, self._asking, self._silent_until = threading.Lock(), None, 0.0
        own = {"default_acl": None, "file_overwrite": True, "max_memory_size": IN_MEMORY, "client_config": config}
        self._shared = None
        super().__init__(**own, **options)

    @property
    def connection(self) -> Any:
        """One for each thread, as boto3 wants it, and each request has a thread of its own."""
        with self._making:
            return super().connection

    def _create_session(self) -> Any:
        """One for all threads: what it reads of the protocol takes a tenth of a second of processor."""
        self._shared = self._shared or super()._create_session()
        return self._shared

    def _asked(self) -> Any:
        """A client for short questions, of all threads."""
        with self._making:
            if self._asking is None:
                options = {"region_name": self.region_name, "use_ssl": self.use_ssl, "verify": self.verify}
                made = self._create_session().client(
                    "s3", endpoint_url=self.endpoint_url, config=self._hurried, **options
                )
                self._asking = made
            return self._asking

    def _save(self, name: str, content: Any) -> str:
        with _told():
            return str(super()._save(name, content))

    def _open(self, name: str, mode: str = "rb") -> Any:
        """What is read is here when this returns: later nobody would say in words that the server is away."""
        self.exists(name)
        with _told():
            found = super()._open(name, mode)
            if "r" in mode:
                _ = found.file
            return found

    def exists(self, name: str) -> bool:
        """Also tells soon when the server does not answer, and at once where somebody has just asked in vain: those who
        waited for one another would wait in turn."""
        key = self._normalize_name(clean_name(name))
        if time.monotonic() < self._silent_until:
            raise StorageAway("it has not answered just now")
        with _told():
            try:
                self._asked().head_object(Bucket=self.bucket_name, Key=key)
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == HTTPStatus.NOT_FOUND:
                    return False
                raise
            except (ConnectTimeoutError, ReadTimeoutError):
                self._silent_until = time.monotonic() + SILENT_SECONDS
                raise
        return True

    def delete(self, name: str) -> None:
        with _told():
            super().delete(name)

    def listdir(self, name: str) -> Any:
        with _told():
            return super().listdir(name)


def _config(options: Mapping[str, Any], read: float, retries: int) -> Config:
    return Config(
        s3={"addressing_style": "path"} if options.get("endpoint_url") else {},
        signature_version="s3v4",
        connect_timeout=min(CONNECT_SECONDS, read),
        read_timeout=read,
        retries={"max_attempts": retries, "mode": "standard"},
        # Servers other than Amazon's often know no checksums but those of the protocol's first version.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise StorageAway(f"{type(error).__name__}: {error}") from error
