"""`python -m contrib.cluster` runs a whole installation on this machine until Ctrl-C.

Variables: PORT is the port for HTTPS, by default 8443. PROXY is `haproxy` (the default), `nginx` or `caddy`. CLUSTER is
a new directory for logs and data, which are kept; without CLUSTER they are removed at the end.
"""

import os
import sys
import time
from pathlib import Path

from contrib.cluster.company import Company
from contrib.cluster.keeper import run_contained
from contrib.cluster.process import ClusterError
from contrib.cluster.proxy import chosen


def main(place: Path) -> int:
    try:
        proxy = chosen(os.environ.get("PROXY") or "haproxy")
        directory = Path(os.environ.get("CLUSTER") or place / "company")
        company = Company(directory, int(os.environ.get("PORT", "8443")), proxy)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        company.start()
        for name, process in company.processes.items():
            print(f"  {name:<14} process {process.pid}, {process.log}")
        print(f"{company.url} (admin, {company.product.environment['ADMIN_PASSWORD']}); Ctrl-C ends it", flush=True)
        while True:
            time.sleep(0.5)
            for name in company.tend():
                print(f"{name} had ended and was started again", flush=True)
    except KeyboardInterrupt:
        return 0
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        company.stop()


if __name__ == "__main__":
    sys.exit(run_contained(main))
