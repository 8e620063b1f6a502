"""Run HAProxy, nginx or Caddy with TLS, and its watchdog. Uses the files of `deploy/` with other ports and paths."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contrib.cluster.process import ClusterError, Process
from tests.product import ROOT

NAME = "localhost"
HAPROXY = ROOT / "deploy" / "haproxy"
ALIVE = "127.0.0.1:8404"  # HAProxy's health check
# Replaces Debian's /etc/nginx/nginx.conf, which includes our file. It has no paths in the system's directories.
NGINX = """
user www-data;
daemon off;
pid {home}/pid;
error_log stderr;
events {{ worker_connections 4096; }}
http {{
    access_log {home}/access.log;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/answers;
    fastcgi_temp_path {home}/unused;
    uwsgi_temp_path {home}/unused;
    scgi_temp_path {home}/unused;
    include {file};
}}
"""


@dataclass(frozen=True)
class Kind:
    """A kind of proxy: its display name (`called`), its program and package in Debian, and its file in `deploy/`.

    `watch` is the systemd unit that kills the proxy when it hangs.
    """

    called: str
    program: str
    package: str
    file: Path
    watch: str = ""


PROXIES = {
    each.program: each
    for each in (
        Kind("HAProxy", "haproxy", "haproxy", HAPROXY / "haproxy.cfg", "haproxy-watch"),
        Kind("nginx", "nginx", "nginx-light", ROOT / "deploy" / "nginx" / "glasshouse.conf"),
        Kind("Caddy", "caddy", "caddy", ROOT / "deploy" / "Caddyfile"),
    )
}


@dataclass(frozen=True)
class Ports:
    """The proxy's ports for HTTPS, HTTP and its health check (`alive`). `webs` are the ports of two web processes."""

    https: int
    http: int
    alive: int
    webs: Sequence[int]


class Proxy:
    def __init__(self, kind: Kind, directory: Path, ports: Ports) -> None:
        home = directory / "proxy"
        home.mkdir(mode=0o711)
        self.kind, self.certificate = kind, home / "certificate.pem"
        _certify(home)
        file = home / kind.file.name
        file.write_text(site(kind, ports, home))
        self.process = Process(kind.program, _command(kind, file), directory, _environment(kind, ports, home))
        watch = Process(kind.watch, watching(kind.watch, ports, home / "pid"), directory) if kind.watch else None
        self.processes = (self.process, watch) if watch else (self.process,)


def chosen(name: str) -> Kind:
    """Return the kind of proxy with this name. Raises ClusterError."""
    if name not in PROXIES:
        raise ClusterError(f"There is no proxy {name}; PROXY is one of {', '.join(PROXIES)}.")
    return PROXIES[name]


def site(kind: Kind, ports: Ports, home: Path) -> str:
    """Return the file of `deploy/` with our ports and paths. Raises ClusterError if a text to replace is missing."""
    text = kind.file.read_text()
    for theirs, ours in _put_in(kind, ports, home).items():
        if theirs not in text:
            raise ClusterError(f"{kind.file} says “{theirs}” no more; contrib/cluster/proxy.py puts in what is ours.")
        text = text.replace(theirs, ours)
    return text


def watching(unit: str, ports: Ports, pid: Path) -> list[str]:
    """Return the command of the watchdog's unit, changed to kill the proxy's process group. Raises ClusterError."""
    file = HAPROXY / f"{unit}.service"
    match = re.search(r"^ExecStart=\S+ \S+/(\w+\.py) (\S+) systemctl kill --signal=SIGKILL ", file.read_text(), re.M)
    if not match or ALIVE not in match[2]:
        raise ClusterError(f"{file} does not have systemd end HAProxy; contrib/cluster/proxy.py puts in what is ours.")
    end = ["sh", "-c", f'kill -KILL "-$(cat {shlex.quote(str(pid))})"']
    return [sys.executable, str(HAPROXY / match[1]), match[2].replace(ALIVE, f"127.0.0.1:{ports.alive}"), *end]


def _put_in(kind: Kind, ports: Ports, home: Path) -> Mapping[str, str]:
    webs = {f"127.0.0.1:800{number}": f"127.0.0.1:{port}" for number, port in enumerate(ports.webs)}
    match kind.program:
        case "haproxy":
            return webs | {
                f"bind {ALIVE}\n": f"bind 127.0.0.1:{ports.alive}\n",
                "bind :80\n": f"bind 127.0.0.1:{ports.http}\n",
                "bind :443 ": f"bind 127.0.0.1:{ports.https} ",
                "/etc/ssl/glasshouse/fullchain-and-key.pem": f"{home}/both.pem",
            }
        case "nginx":
            return webs | {
                "listen 80;": f"listen 127.0.0.1:{ports.http};",
                "listen 443 ": f"listen 127.0.0.1:{ports.https} ",
                "chat.example.org": NAME,
                "/etc/ssl/glasshouse/fullchain.pem": f"{home}/certificate.pem",
                "/etc/ssl/glasshouse/privkey.pem": f"{home}/key.pem",
                "/var/lib/nginx/glasshouse": f"{home}/lives",
            }
    return {
        "\n{\n": f"\n{{\n\tadmin off\n\thttp_port {ports.http}\n\thttps_port {ports.https}\n\tdefault_bind 127.0.0.1\n",
        "\n{$DOMAIN:localhost} {\n": f"\n{NAME} {{\n\ttls {home}/certificate.pem {home}/key.pem\n",
    }


def _command(kind: Kind, file: Path) -> list[str]:
    match kind.program:
        case "haproxy":
            # As in Debian's unit, but with -W instead of -Ws, which notifies systemd.
            return ["haproxy", "-W", "-f", str(file), "-p", str(file.with_name("pid"))]
        case "nginx":
            around = file.with_name("nginx.conf")
            around.write_text(NGINX.format(home=file.parent, file=file))
            return ["nginx", "-c", str(around)]
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]


def _environment(kind: Kind, ports: Ports, home: Path) -> Mapping[str, str]:
    if kind.program != "caddy":
        return {}
    return {"UPSTREAM": " ".join(f"127.0.0.1:{port}" for port in ports.webs), "HOME": str(home)}


def _certify(home: Path) -> None:
    """Write `certificate.pem`, `key.pem`, and `both.pem`, which joins them."""
    names = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    certificate, key = home / "certificate.pem", home / "key.pem"
    command = [shutil.which("openssl") or "openssl", "req", *kind, *names, "-keyout", str(key)]
    done = subprocess.run([*command, "-out", str(certificate)], capture_output=True, text=True)
    if done.returncode:
        raise ClusterError(f"openssl made no certificate:\n{done.stderr}")
    (home / "both.pem").write_text(certificate.read_text() + key.read_text())
