"""Test a new cluster under faults and load: `python -m contrib.cluster.trial`.

FAULTS names the trials to run; without it, all run. PROXY names the proxy. CLUSTER names a new directory, which is
kept. The exit code is 1 if data was lost, or if a response or a recovery was too late.
"""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from contrib.cluster.company import Company
from contrib.cluster.keeper import run_contained
from contrib.cluster.process import ClusterError
from contrib.cluster.proxy import PROXIES, Kind, chosen
from contrib.cluster.trial import deploy, streams, table
from contrib.cluster.trial.client import session_of
from contrib.cluster.trial.fault_trial import FaultTrial, requests_words
from contrib.cluster.trial.faults import Fault, faults
from tests.product import free_port

LOADS = {"deploy": (deploy.DESCRIPTION, deploy.run_trial), "streams": (streams.DESCRIPTION, streams.run_trial)}


def _order() -> list[str]:
    loads = [description for description, _ in LOADS.values()]
    return [
        table.about(proxy, description)
        for proxy in PROXIES.values()
        for description in [*(each.description for each in faults(proxy)), *loads]
    ]


async def _tend(company: Company) -> None:
    while True:
        company.tend()
        await asyncio.sleep(0.5)


async def _fault(trial: FaultTrial, fault: Fault) -> bool:
    outcome, ready = await trial.run(fault)
    proxy = trial.company.proxy.kind
    table.written(proxy, table.row(proxy, outcome, ready), _order())
    for kind, result in outcome.results.items():
        print(f"  {kind}: {result}")
    print(f"  requests: {requests_words(outcome)}; /readyz: {ready}; all back after {outcome.back} s")
    for sentence in outcome.wrong:
        print(f"  ! {sentence}")
    return not outcome.wrong


async def _load(company: Company, session: aiohttp.ClientSession, name: str) -> bool:
    description, run_trial = LOADS[name]
    summary, passed = await run_trial(company, session)
    proxy = company.proxy.kind
    table.written(proxy, table.load_row(proxy, description, summary), _order())
    print(f"  {summary}")
    return passed


async def _try(company: Company, names: Sequence[str]) -> list[str]:
    """Run the trials and return the names of the failed ones."""
    tending, failed = asyncio.create_task(_tend(company)), []
    by_name = {each.name: each for each in faults(company.proxy.kind)}
    async with session_of(company) as session:
        trial = FaultTrial(company, session)
        if set(names) & set(by_name):
            await trial.begin()
        for name in names:
            began = time.monotonic()
            print(name, flush=True)
            try:
                passed = await (_fault(trial, by_name[name]) if name in by_name else _load(company, session, name))
            except ClusterError as error:
                print(f"  ! {error}")
                passed = False
            print(f"  {'well' if passed else 'NOT WELL'}, {time.monotonic() - began:.0f} s in all", flush=True)
            failed += [] if passed else [name]
    tending.cancel()
    return failed


def _with_company(proxy: Kind, names: Sequence[str], place: Path) -> list[str]:
    """Run the trials on a new cluster. Only fault trials get wires that can be cut, since wires cost processor time."""
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
        names = [*(each.name for each in faults(proxy)), *LOADS]
        chosen_names = os.environ.get("FAULTS", "").split() or names
        if unknown := set(chosen_names) - set(names):
            raise ClusterError(f"There is no {', '.join(sorted(unknown))} to try; there are {', '.join(names)}.")
        began = time.monotonic()
        failed = _with_company(proxy, [name for name in names if name in chosen_names], place)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    summary = f"{len(chosen_names) - len(failed)} of {len(chosen_names)} went well"
    missing = f"; not {', '.join(failed)}" if failed else ""
    print(f"{summary}{missing}; {(time.monotonic() - began) / 60:.0f} minutes in all")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_contained(main))
