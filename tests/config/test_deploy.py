"""Names in `deploy/` exist in the code: variables, commands, queues, values of the chart, times."""

import importlib.util
import os
import re
import shutil
import subprocess
import time
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings

from config import service_urls
from contrib.cluster.failover import Pair
from contrib.cluster.product import command
from contrib.cluster.proxy import PROXIES, Ports, site
from contrib.cluster.servers import Valkey
from contrib.cluster.trial.deploy import ORDER
from contrib.cluster.trial.faults import faults
from core.background import QUEUES
from files.ingest import SLOTS
from readers.__main__ import MEMORY
from scripts.docs import variables

DEPLOY = Path(settings.BASE_DIR) / "deploy"
CHART = DEPLOY / "helm" / "glasshouse"
OF_OTHERS = {
    "PIP_DISABLE_PIP_VERSION_CHECK",
    "PATH",
    "HOME",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "DOMAIN",
    "SEARXNG_SECRET",
    "UPSTREAM",
}
BESIDE = 120  # seconds that DRAIN_SECONDS is by default
CONNECTIONS = 25  # to the database, of a process at most, as docs/operate/processes.md has it
SYSTEMD_ANALYZE = shutil.which("systemd-analyze")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
HAPROXY_UNITS = sorted((DEPLOY / "haproxy").glob("*.service"))
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
VALUES: Any = yaml.safe_load((CHART / "values.yaml").read_text())
TEMPLATES = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
UNIT_TEXTS = "".join(unit.read_text() for unit in UNITS)
CONTAINER = (DEPLOY / "Containerfile").read_text()


def test_every_variable_is_one_of_the_settings() -> None:
    names = variables.documented() | variables.INTERNAL | OF_OTHERS
    named = {
        *re.findall(r"^([A-Z_]+)=", (DEPLOY / "glasshouse.env.example").read_text(), re.M),
        *re.findall(r"^Environment=([A-Z_]+)=", UNIT_TEXTS, re.M),
        *re.findall(r"(?:^ENV|^   ) ?(?:.*?\s)??([A-Z_]+)=", CONTAINER, re.M),
        *VALUES["env"],
        *re.findall(r"\{name: ([A-Z_]+),", TEMPLATES),
        *(name for each in COMPOSE["services"].values() for name in each.get("environment", {})),
    }
    assert {"SECRET_KEY", "DRAIN_SECONDS", "METRICS_PORT", "DATA_DIR"} <= named
    assert named - names == set()


def test_every_command_starts_something_and_all_queues_have_a_worker_everywhere() -> None:
    compose = " ".join(str(each.get("command", "")) for each in COMPOSE["services"].values())
    chart = re.sub(r'[" ]+', " ", TEMPLATES)
    for text in (compose, chart, UNIT_TEXTS):
        assert set(re.findall(r"-Q (\w+)", text)) == set(QUEUES)
        modules = {*re.findall(r"python -m ([\w.]+)", text), *re.findall(r"-A ([\w.]+)", text)}
        assert modules == {"config.web", "config", "config.beat"}
        assert all(importlib.util.find_spec(module) for module in modules)
    commands = {path.stem for path in Path(settings.BASE_DIR).glob("*/management/commands/*.py")}
    assert set(re.findall(r"manage\.py (\w+)", compose + TEMPLATES + CONTAINER)) <= commands | {
        "migrate",
        "collectstatic",
    }


def test_whoever_stops_a_process_waits_until_it_has_drained() -> None:
    waits = [int(each) for each in re.findall(r"TimeoutStopSec=(\d+)", UNIT_TEXTS)]
    waits += [
        int(each["stop_grace_period"][:-1]) for each in COMPOSE["services"].values() if "stop_grace_period" in each
    ]
    assert len(waits) == len(UNITS) + 7 and min(waits) > BESIDE == settings.DRAIN_SECONDS == VALUES["drainSeconds"]


def test_every_process_has_a_limit_of_memory_and_is_started_again_wherever_it_ends() -> None:
    names = {"web", "turns", "background", "beat"}
    in_bytes = {"": 1, "M": 1 << 20, "G": 1 << 30}

    def size(text: str) -> int:
        number, unit = re.findall(r"^(\d+)([a-z]?)", text.lower())[0]
        return int(number) * in_bytes[unit.upper()]

    units = {unit.stem.removesuffix("@").removeprefix("glasshouse-"): unit.read_text() for unit in UNITS}
    by_systemd = {name: size(re.findall(r"^MemoryMax=(.+)$", text, re.M)[0]) for name, text in units.items()}
    for text in units.values():
        assert {"Restart=always", "OOMPolicy=continue", "StartLimitIntervalSec=0"} <= set(text.splitlines())
    ours = {name: each for name, each in COMPOSE["services"].items() if "build" in each and name != "migrate"}
    by_compose = {name.partition("-")[0]: size(each["mem_limit"]) for name, each in ours.items()}
    assert {each["restart"] for each in ours.values()} == {"unless-stopped"}
    resources = {name: VALUES[name]["resources"] for name in names}
    by_chart = {name: size(each["limits"]["memory"]) for name, each in resources.items()}
    assert by_systemd == by_compose == by_chart and set(by_chart) == names
    assert all(by_chart[name] > size(each["requests"]["memory"]) for name, each in resources.items())
    assert by_chart["background"] > SLOTS * MEMORY


def test_the_guide_upgrades_every_process_in_the_order_that_is_tried_and_enables_every_unit() -> None:
    guide = (DEPLOY / "README.md").read_text()
    by_compose, by_systemd = (each.split() for each in re.findall(r"^    for each in (.+?);", guide, re.M))
    ours = [name for name, each in COMPOSE["services"].items() if "build" in each and name != "migrate"]
    assert sorted(by_compose) == sorted(ours)
    assert by_compose == [name.replace("background-1", "background") for name in ORDER]
    assert [name.partition("@")[0] for name in by_systemd] == [name.partition("-")[0] for name in ORDER]
    assert sorted(COMPOSE["services"]["caddy"]["environment"]["UPSTREAM"].split()) == ["web-1:8000", "web-2:8000"]
    enabled = re.findall(r"systemctl enable --now (.+)", guide)[0].split()
    assert sorted(enabled) == sorted([*(f"glasshouse-{name}" for name in by_systemd), "glasshouse.target"])
    units = {unit.stem.removesuffix("@") for unit in UNITS}
    assert {name.partition("@")[0] for name in enabled} == {*units, "glasshouse.target"}


def test_both_web_processes_serve_what_either_has_collected() -> None:
    for name in ("web-1", "web-2"):
        web = COMPOSE["services"][name]
        (shared,) = (each.partition(":")[2] for each in web["volumes"])
        assert Path(web["environment"]["STATIC_ROOT"]).parent == Path(shared)


def test_postgresql_takes_what_the_processes_open() -> None:
    """`migrate` counts too, since it runs beside them."""
    guide = (DEPLOY / "README.md").read_text()
    (by_compose,) = re.findall(r"-c max_connections=(\d+)", COMPOSE["services"]["postgres"]["command"])
    (by_systemd,) = re.findall(r"ALTER SYSTEM SET max_connections = (\d+)", guide)
    ours = [name for name, each in COMPOSE["services"].items() if "build" in each]
    units = re.findall(r"systemctl enable --now (.+)", guide)[0].split()
    pool = service_urls.database("postgresql://localhost/glasshouse")["OPTIONS"]["pool"]["max_size"]
    assert pool + 1 == CONNECTIONS
    assert len(ours) * CONNECTIONS <= int(by_compose) and len(units) * CONNECTIONS <= int(by_systemd)


def test_a_worker_is_healthy_while_it_touches_its_file(tmp_path: Path) -> None:
    workers = [each for each in COMPOSE["services"].values() if "celery -A config worker" in str(each.get("command"))]
    assert len(workers) == 3
    checks = {(each["environment"]["ALIVE_FILE"], each["healthcheck"]["test"][1]) for each in workers}
    (probed,) = re.findall(r'exec: \{command: \["sh", "-c", "(.+)"\]\}\n +periodSeconds', TEMPLATES)
    (touched,) = re.findall(r"\{name: ALIVE_FILE, value: (\S+)\}", TEMPLATES)
    assert checks == {(touched, probed)}

    file = tmp_path / "alive"
    command = ["sh", "-c", probed.replace(touched, str(file))]

    def healthy() -> bool:
        return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0

    assert not healthy()
    file.touch()
    assert healthy()
    os.utime(file, (time.time() - 30,) * 2)
    assert not healthy()


@pytest.mark.skipif(not (SYSTEMD_ANALYZE and shutil.which("haproxy")), reason="needs systemd and HAProxy")
def test_systemd_takes_the_units_of_haproxy() -> None:
    verified = subprocess.run([str(SYSTEMD_ANALYZE), "verify", *HAPROXY_UNITS], check=False, capture_output=True)
    assert (verified.returncode, verified.stderr) == (0, b"")


def test_the_guide_enables_every_unit_of_haproxy_and_each_watch_asks_its_own() -> None:
    guide = (DEPLOY / "README.md").read_text()
    enabled = {name for names in re.findall(r"`systemctl enable --now (haproxy.+?)`", guide) for name in names.split()}
    assert enabled == {unit.stem for unit in HAPROXY_UNITS}
    for watch, watched, file in (
        ("haproxy-watch", "haproxy", "haproxy.cfg"),
        ("haproxy-redis-watch", "haproxy-redis", "redis.cfg"),
    ):
        unit = (DEPLOY / "haproxy" / f"{watch}.service").read_text()
        ((address, ended),) = re.findall(r"http://(\S+)/alive systemctl kill --signal=SIGKILL (\S+)\.service\n", unit)
        assert ended == watched and f"bind {address}\n" in (DEPLOY / "haproxy" / file).read_text()
    unit = (DEPLOY / "haproxy" / "haproxy-redis.service").read_text()
    assert "-f /etc/haproxy/redis.cfg\n" in unit


def test_the_chart_uses_the_values_that_it_has() -> None:
    for used in set(re.findall(r"\.Values((?:\.\w+)+)", TEMPLATES)):
        value = VALUES
        for name in used.split(".")[1:]:
            value = value[name]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == _version()


def test_the_image_has_all_apps_and_is_not_run_by_root() -> None:
    roots = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
    copied = set(re.findall(r"^COPY (\w+)[ /]", CONTAINER, re.M))
    assert copied == {*roots, "docs", "locale", "static", "templates"}
    assert re.findall(r"^USER (\S+)", CONTAINER, re.M) == ["10001"]


def test_whoever_serves_static_files_may_read_what_another_has_collected() -> None:
    """In the image root collects them, and uploads have the mode 0600."""
    options = import_module("config.settings").STORAGES["staticfiles"]["OPTIONS"]
    assert options == {"file_permissions_mode": 0o644, "directory_permissions_mode": 0o755}
    assert "compileall -q /srv/glasshouse\n" in CONTAINER  # of packages some modules are of Python 2, and fail it


def test_the_cluster_starts_what_the_units_start() -> None:
    units = ("web@", "turns@", "background@", "beat")
    commands = [" ".join(command(f"glasshouse-{unit}", "8001")) for unit in units]
    starts = re.findall(r"^ExecStart=/usr/bin/env .venv/bin/(.+)$", UNIT_TEXTS, re.M)
    assert len(starts) == len(commands)
    assert all(any(each.replace("%i", "8001").replace("%%", "%") in line for line in commands) for each in starts)
    assert [line.startswith("nice -n 10 ") for line in commands] == [False, False, True, False]


def test_the_cluster_puts_its_ports_and_its_certificate_into_the_file_of_each_proxy() -> None:
    texts = {name: site(kind, Ports(8443, 8080, 8405, (1001, 1002)), Path("/c")) for name, kind in PROXIES.items()}
    assert "server web-2 127.0.0.1:1002\n" in texts["haproxy"]
    assert "bind 127.0.0.1:8443 ssl crt /c/both.pem " in texts["haproxy"]
    assert "server 127.0.0.1:1002 max_fails=1 " in texts["nginx"] and "listen 127.0.0.1:8443 ssl " in texts["nginx"]
    assert "\ttls /c/certificate.pem /c/key.pem\n" in texts["caddy"] and "\thttps_port 8443\n" in texts["caddy"]


def test_the_cluster_puts_its_ports_into_the_files_of_a_redis_that_fails_over(tmp_path: Path) -> None:
    pair = Pair(tmp_path, first := Valkey(tmp_path))
    front = (tmp_path / "failover" / "redis.cfg").read_text()
    assert f"bind 127.0.0.1:{pair.port}\n" in front and "10.0.0." not in front
    assert "127.0.0.1:8405" not in front  # which may be the machine's own
    assert f"server redis-1 127.0.0.1:{first.port}\n" in front
    assert f"server redis-2 127.0.0.1:{pair.second.port}\n" in front
    sentinels = [(tmp_path / "failover" / f"sentinel-{number}.conf").read_text() for number in (1, 2, 3)]
    assert all(f"monitor glasshouse 127.0.0.1 {first.port} 2\n" in each for each in sentinels)
    assert len(set(sentinels)) == len(sentinels)  # each at a port of its own


def test_each_fault_has_a_name_and_words_of_its_own() -> None:
    for tried in map(faults, PROXIES.values()):
        assert len({each.name for each in tried}) == len({each.description for each in tried}) == len(tried)


def _version() -> str:
    return str(tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text())["project"]["version"])
