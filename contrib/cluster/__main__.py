"""`python -m contrib.cluster`: a whole company on this machine, until Ctrl-C. HTTPS at PORT, else 8443, by PROXY:
`haproxy`, `nginx` or `caddy`.

CLUSTER is the directory that is made and stays, with the logs and all data; without it they go with the company.
"""

import os
import sys
import time
from pathlib import Path

from contrib.cluster.company import Company
from contrib.cluster.keeper import kept
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
    sys.exit(kept(main))
