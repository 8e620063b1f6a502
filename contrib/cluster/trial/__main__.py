"""`python -m contrib.cluster.trial`: tries what FAULTS names, all without it, on a cluster of its own,
behind the proxy that PROXY names.

Ends with 1 where something was lost, late or not back in time. CLUSTER is the directory that is made and stays.
"""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from contrib.cluster.company import Company
from contrib.cluster.keeper import kept
from contrib.cluster.process import ClusterError
from contrib.cluster.proxy import PROXIES, Kind, chosen
from contrib.cluster.trial import deploy, streams, table
from contrib.cluster.trial.client import session_of
from contrib.cluster.trial.faults import Fault, faults
from contrib.cluster.trial.suffer import Trial, requests_words
from tests.product import free_port

LOADS = {"deploy": (deploy.SAID, deploy.tried), "streams": (streams.SAID, streams.tried)}


def _order() -> list[str]:
    loads = [said for said, _ in LOADS.values()]
    return [
        table.about(proxy, said)
        for proxy in PROXIES.values()
        for said in [*(each.said for each in faults(proxy)), *loads]
    ]


async def _tend(company: Company) -> None:
    while True:
        company.tend()
        await asyncio.sleep(0.5)


async def _fault(trial: Trial, fault: Fault) -> bool:
    outcome, ready = await trial.suffer(fault)
    proxy = trial.company.proxy.kind
    table.written(proxy, table.row(proxy, outcome, ready), _order())
    for kind, result in outcome.results.items():
        print(f"  {kind}: {result}")
    print(f"  requests: {requests_words(outcome)}; /readyz: {ready}; all back after {outcome.back} s")
    for said in outcome.wrong:
        print(f"  ! {said}")
    return not outcome.wrong


async def _load(company: Company, session: aiohttp.ClientSession, name: str) -> bool:
    about, tried = LOADS[name]
    said, well = await tried(company, session)
    proxy = company.proxy.kind
    table.written(proxy, table.load_row(proxy, about, said), _order())
    print(f"  {said}")
    return well


async def _try(company: Company, names: Sequence[str]) -> list[str]:
    """The names of those that did not go well."""
    tending, bad = asyncio.create_task(_tend(company)), []
    known = {each.name: each for each in faults(company.proxy.kind)}
    async with session_of(company) as session:
        trial = Trial(company, session)
        if set(names) & set(known):
            await trial.begin()
        for name in names:
            begun = time.monotonic()
            print(name, flush=True)
            try:
                well = await (_fault(trial, known[name]) if name in known else _load(company, session, name))
            except ClusterError as error:
                print(f"  ! {error}")
                well = False
            print(f"  {'well' if well else 'NOT WELL'}, {time.monotonic() - begun:.0f} s in all", flush=True)
            bad += [] if well else [name]
    tending.cancel()
    return bad


def _with_company(proxy: Kind, names: Sequence[str], place: Path) -> list[str]:
    """Without faults its lines cannot be cut, which costs processor time."""
    directory = Path(os.environ.get("CLUSTER") or place / "company")
    company = Company(directory, free_port(), proxy, wired=not set(names) <= set(LOADS))
    try:
        company.start()
        return asyncio.run(_try(company, names))
    finally:
        company.stop()


def main(place: Path) -> int:
    try:
        proxy = chosen(os.environ.get("PROXY") or "haproxy")
        known = [*(each.name for each in faults(proxy)), *LOADS]
        wanted = os.environ.get("FAULTS", "").split() or known
        if unknown := set(wanted) - set(known):
            raise ClusterError(f"There is no {', '.join(sorted(unknown))} to try; there are {', '.join(known)}.")
        begun = time.monotonic()
        bad = _with_company(proxy, [name for name in known if name in wanted], place)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    well = f"{len(wanted) - len(bad)} of {len(wanted)} went well"
    missing = f"; not {', '.join(bad)}" if bad else ""
    print(f"{well}{missing}; {(time.monotonic() - begun) / 60:.0f} minutes in all")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(kept(main))
