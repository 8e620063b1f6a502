"""Glasshouse itself: the processes of `deploy/systemd`, with the variables of `deploy/glasshouse.env.example`."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from contrib.cluster.process import ClusterError, Process
from tests.product import ROOT

DEPLOY = ROOT / "deploy"
BIN = "/usr/bin/env .venv/bin/"
PROGRAMS = Path(sys.executable).parent


def example() -> dict[str, str]:
    """Return the variables of the example file that operators copy."""
    lines = (DEPLOY / "glasshouse.env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))


def command(unit: str, instance: str = "") -> list[str]:
    """Return the command of a systemd unit, run by this Python. Raises ClusterError."""
    text = (DEPLOY / "systemd" / f"{unit}.service").read_text()
    match = re.search(r"^ExecStart=(.+)$", text, re.M)
    if not match or BIN not in match[1]:
        raise ClusterError(f"The unit {unit} does not start anything by {BIN}.")
    line = match[1].replace(BIN, f"{PROGRAMS}/").replace("%%", "%").replace("%i", instance)
    nice = re.search(r"^Nice=(\d+)$", text, re.M)
    return [*(["nice", "-n", nice[1]] if nice else []), *shlex.split(line)]


class ProductProcesses:
    """Creates the product's processes. Each has its own DATA_DIR, as on several machines."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory, self.environment = directory, dict(environment)

    def process(self, name: str, unit: str, instance: str = "", **environment: str) -> Process:
        data = self.directory / name
        data.mkdir(exist_ok=True)
        words = [each.replace("/var/lib/glasshouse", str(data)) for each in command(unit, instance)]
        return Process(name, words, self.directory, {**self.environment, "DATA_DIR": str(data), **environment})

    def run(self, module: str, *arguments: str, **environment: str) -> str:
        """Run a module and return its output. Raises ClusterError."""
        data = self.directory / "manage"
        data.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={"PATH": f"{PROGRAMS}:{os.environ['PATH']}", **self.environment, "DATA_DIR": str(data), **environment},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ClusterError(f"{module} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout
