"""`python -m scripts.cluster`: a whole company on this machine, until Ctrl-C. HTTPS at PORT, else 8443.

CLUSTER is the directory that is made and stays, with the logs and all data; without it they go with the company.
"""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from scripts.cluster.company import Company
from scripts.cluster.process import ClusterError


def main(directory: Path) -> None:
    company = Company(directory, int(os.environ.get("PORT", "8443")))
    asked: list[int] = []
    try:
        company.start()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: asked.append(number))
        for name, process in company.processes.items():
            print(f"  {name:<14} process {process.pid}, {process.log}")
        print(f"{company.url} (admin, {company.product.environment['ADMIN_PASSWORD']}); Ctrl-C ends it", flush=True)
        while not asked:
            time.sleep(0.5)
            for name in company.tend():
                print(f"{name} had ended and was started again", flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        company.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="glasshouse-cluster-") as temporary:
        Path(temporary).chmod(0o711)  # PostgreSQL runs as another user
        try:
            main(Path(os.environ.get("CLUSTER") or f"{temporary}/company"))
        except ClusterError as error:
            sys.exit(str(error))
