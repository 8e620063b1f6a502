"""HAProxy with TLS, and what watches it, by the files that `deploy/` has: only ports and the certificate are put in."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.cluster.process import ClusterError, Process
from tests.product import ROOT

PLACE = ROOT / "deploy" / "haproxy"
FILE, UNIT = PLACE / "haproxy.cfg", PLACE / "haproxy-watch.service"
NAME = "localhost"
ALIVE = "127.0.0.1:8404"  # in both files


class Proxy:
    """`webs` are the ports of two web processes, `plain` and `alive` of HTTP and of the question whether it lives."""

    def __init__(self, directory: Path, port: int, plain: int, alive: int, webs: Sequence[int]) -> None:
        self.port, home = port, directory / "proxy"
        home.mkdir()
        self.certificate, both = home / "certificate.pem", home / "both.pem"
        _certify(self.certificate, home / "key.pem", both)
        file, pid = home / "haproxy.cfg", home / "pid"
        file.write_text(site(port, plain, alive, webs, both))
        # As Debian's unit has it, but for the word to systemd that it is there.
        self.process = Process("haproxy", ["haproxy", "-W", "-f", str(file), "-p", str(pid)], directory)
        self.watch = Process("haproxy-watch", watching(alive, pid), directory)


def watching(alive: int, pid: Path) -> list[str]:
    """The command of the unit of `deploy/`, which ends all processes of HAProxy, as systemd would."""
    found = re.search(r"^ExecStart=\S+ \S+/(\w+\.py) (\S+) systemctl kill --signal=SIGKILL ", UNIT.read_text(), re.M)
    if not found or ALIVE not in found[2]:
        raise ClusterError(f"{UNIT} does not have systemd end HAProxy; scripts/cluster/proxy.py puts in what is ours.")
    end = ["sh", "-c", f'kill -KILL "-$(cat {shlex.quote(str(pid))})"']
    return [sys.executable, str(PLACE / found[1]), found[2].replace(ALIVE, f"127.0.0.1:{alive}"), *end]


def site(port: int, plain: int, alive: int, webs: Sequence[int], pem: Path) -> str:
    """The file of `deploy/` with what is ours. Raises ClusterError where it no longer says what is to be replaced."""
    put_in = {
        "127.0.0.1:8000": f"127.0.0.1:{webs[0]}",
        "127.0.0.1:8001": f"127.0.0.1:{webs[1]}",
        f"bind {ALIVE}\n": f"bind 127.0.0.1:{alive}\n",
        "bind :80\n": f"bind 127.0.0.1:{plain}\n",
        "bind :443 ": f"bind 127.0.0.1:{port} ",
        "/etc/ssl/glasshouse/fullchain-and-key.pem": str(pem),
    }
    text = FILE.read_text()
    for theirs, ours in put_in.items():
        if theirs not in text:
            raise ClusterError(f"{FILE} says “{theirs}” no more; scripts/cluster/proxy.py puts in what is ours.")
        text = text.replace(theirs, ours)
    return text


def _certify(certificate: Path, key: Path, both: Path) -> None:
    names = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    command = [shutil.which("openssl") or "openssl", "req", *kind, *names, "-keyout", str(key)]
    made = subprocess.run([*command, "-out", str(certificate)], capture_output=True, text=True)
    if made.returncode:
        raise ClusterError(f"openssl made no certificate:\n{made.stderr}")
    both.write_text(certificate.read_text() + key.read_text())
