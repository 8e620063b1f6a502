"""HAProxy with TLS, by the file that `deploy/` has for it: only ports and the certificate are put in."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripts.cluster.process import ClusterError, Process
from tests.product import ROOT

FILE = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
NAME = "localhost"


class Proxy:
    """`webs` are the ports of two web processes."""

    def __init__(self, directory: Path, port: int, plain: int, webs: Sequence[int]) -> None:
        self.port, home = port, directory / "proxy"
        home.mkdir()
        self.certificate, both = home / "certificate.pem", home / "both.pem"
        _certify(self.certificate, home / "key.pem", both)
        (home / "haproxy.cfg").write_text(site(port, plain, webs, both))
        self.process = Process("haproxy", ["haproxy", "-db", "-f", str(home / "haproxy.cfg")], directory)


def site(port: int, plain: int, webs: Sequence[int], pem: Path) -> str:
    """The file of `deploy/` with what is ours. Raises ClusterError where it no longer says what is to be replaced."""
    put_in = {
        "127.0.0.1:8000": f"127.0.0.1:{webs[0]}",
        "127.0.0.1:8001": f"127.0.0.1:{webs[1]}",
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
