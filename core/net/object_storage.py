"""Django's storage in a bucket of S3, or of a server that speaks its protocol (MinIO, Garage, Ceph, SeaweedFS)."""

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

CONNECT_SECONDS = 2  # short, since a person waits and can try again
READ_SECONDS = 10
ATTEMPTS = 2
EXISTS_SECONDS = 1.5  # per attempt to check that an object exists, of which there are at most two
SILENT_SECONDS = 2  # after a timeout, in which `exists` fails without a request
IN_MEMORY = 5_000_000  # bytes of a read object that are held in memory; a larger one is held on disk


class BucketUnavailable(OSError):
    """The server of the bucket does not answer, or refuses the request."""


class ObjectStorage(S3Storage):  # type: ignore[misc]  # has no types
    """A bucket. Without `access_key` and `secret_key`, boto3 uses keys of the environment or the machine's role."""

    def __init__(self, **options: Any) -> None:
        self._exists_config = _config(options, EXISTS_SECONDS, 1)
        self._lock = threading.Lock()
        self._exists_client = None
        self._silent_until = 0.0
        self._shared_session = None
        super().__init__(
            default_acl=None,
            file_overwrite=True,
            max_memory_size=IN_MEMORY,
            client_config=_config(options, READ_SECONDS, ATTEMPTS),
            **options,
        )

    @property
    def connection(self) -> Any:
        """Return the client of this thread. boto3 needs one client per thread."""
        with self._lock:
            return super().connection

    def _create_session(self) -> Any:
        """Return the session that all threads share, since loading the protocol takes 0.1 seconds of CPU time."""
        self._shared_session = self._shared_session or super()._create_session()
        return self._shared_session

    def _client_for_exists(self) -> Any:
        """Return the client that all threads share, with the short timeouts of `exists`."""
        with self._lock:
            if self._exists_client is None:
                self._exists_client = self._create_session().client(
                    "s3",
                    endpoint_url=self.endpoint_url,
                    config=self._exists_config,
                    region_name=self.region_name,
                    use_ssl=self.use_ssl,
                    verify=self.verify,
                )
            return self._exists_client

    def _save(self, name: str, content: Any) -> str:
        with wrap_library_errors():
            return str(super()._save(name, content))

    def _open(self, name: str, mode: str = "rb") -> Any:
        """Open an object. Reads it at once, so that an outage raises `BucketUnavailable` here and not later."""
        self.exists(name)
        with wrap_library_errors():
            file = super()._open(name, mode)
            if "r" in mode:
                _ = file.file
            return file

    def exists(self, name: str) -> bool:
        """Return whether an object with this name exists.

        Raises `BucketUnavailable` within seconds if the server does not answer. For `SILENT_SECONDS` after that it
        raises at once, since queued requests would otherwise each wait for the timeout in turn.
        """
        key = self._normalize_name(clean_name(name))
        if time.monotonic() < self._silent_until:
            raise BucketUnavailable("it did not answer the last request")
        with wrap_library_errors():
            try:
                self._client_for_exists().head_object(Bucket=self.bucket_name, Key=key)
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == HTTPStatus.NOT_FOUND:
                    return False
                raise
            except (ConnectTimeoutError, ReadTimeoutError):
                self._silent_until = time.monotonic() + SILENT_SECONDS
                raise
        return True

    def delete(self, name: str) -> None:
        with wrap_library_errors():
            super().delete(name)

    def listdir(self, name: str) -> Any:
        with wrap_library_errors():
            return super().listdir(name)


def _config(options: Mapping[str, Any], read: float, retries: int) -> Config:
    return Config(
        s3={"addressing_style": "path"} if options.get("endpoint_url") else {},
        signature_version="s3v4",
        connect_timeout=min(CONNECT_SECONDS, read),
        read_timeout=read,
        retries={"max_attempts": retries, "mode": "standard"},
        # Servers other than Amazon's often know only the checksums of the protocol's first version.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )


@contextmanager
def wrap_library_errors() -> Iterator[None]:
    """Raise `BucketUnavailable` in place of the errors of boto3."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise BucketUnavailable(f"{type(error).__name__}: {error}") from error
