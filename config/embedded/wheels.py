"""Files inside installed wheels, found without importing them."""

import os
from importlib.util import find_spec
from pathlib import Path

from config.embedded.errors import StartError


def installed(package: str) -> bool:
    return find_spec(package) is not None


def wheel_file(package: str, name: str) -> Path:
    """Raises StartError when the package is not installed or has no such file on this platform."""
    spec = find_spec(package)
    path = Path(spec.origin).parent / name if spec and spec.origin else None
    if path is None or not path.is_file():
        raise StartError(
            f"The package {package.replace('_', '-')} with {Path(name).name} is not installed or does not support this"
            " platform; run `make setup`, or set DATABASE_URL and REDIS_URL to servers of your own."
        )
    return path


def binary(package: str, name: str) -> str:
    path = wheel_file(package, name)
    if not os.access(path, os.X_OK):
        raise StartError(f"{path} cannot be executed; reinstall {package.replace('_', '-')}.")
    return str(path)
