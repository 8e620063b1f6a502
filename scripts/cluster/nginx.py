"""nginx with TLS, by the file that `deploy/` has for it: only names, ports and certificates are put in."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripts.cluster.process import ClusterError, Process
from tests.product import ROOT

FILE = ROOT / "deploy" / "nginx" / "glasshouse.conf"
NAME = "localhost"
AROUND = """{user}
daemon off;
pid {home}/nginx.pid;
error_log stderr warn;
worker_processes 1;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {home}/bodies;
    proxy_temp_path {home}/proxied;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    include {home}/glasshouse.conf;
}}
"""


class Nginx:
    """`webs` are the ports of two web processes."""

    def __init__(self, directory: Path, port: int, plain: int, webs: Sequence[int]) -> None:
        self.port, home = port, directory / "nginx"
        home.mkdir()
        self.certificate, key = home / "certificate.pem", home / "key.pem"
        _certify(self.certificate, key)
        pems = (self.certificate, key)
        (home / "glasshouse.conf").write_text(site(port, plain, webs, pems))
        user = "user root;" if os.geteuid() == 0 else ""
        (home / "nginx.conf").write_text(AROUND.format(home=home, user=user))
        self.process = Process("nginx", ["nginx", "-p", str(home), "-c", str(home / "nginx.conf")], directory)


def site(port: int, plain: int, webs: Sequence[int], pems: tuple[Path, Path]) -> str:
    """The file of `deploy/` with what is ours. Raises ClusterError where it no longer says what is to be replaced."""
    put_in = {
        "127.0.0.1:8000": f"127.0.0.1:{webs[0]}",
        "127.0.0.1:8001": f"127.0.0.1:{webs[1]}",
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        "chat.example.org": NAME,
        "/etc/ssl/glasshouse/fullchain.pem": str(pems[0]),
        "/etc/ssl/glasshouse/privkey.pem": str(pems[1]),
    }
    text = FILE.read_text()
    for theirs, ours in put_in.items():
        if theirs not in text:
            raise ClusterError(f"{FILE} says “{theirs}” no more; scripts/cluster/nginx.py puts in what is ours.")
        text = text.replace(theirs, ours)
    return text


def _certify(certificate: Path, key: Path) -> None:
    names = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    command = [shutil.which("openssl") or "openssl", "req", *kind, *names, "-keyout", str(key)]
    made = subprocess.run([*command, "-out", str(certificate)], capture_output=True, text=True)
    if made.returncode:
        raise ClusterError(f"openssl made no certificate:\n{made.stderr}")
