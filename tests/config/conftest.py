"""Fixtures of the tests of access, and the summary of a run of fuzzed requests."""

from typing import Any

from tests.config.household import household, people

__all__ = ["household", "people"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for name in ("passed", "failed") for report in terminalreporter.stats.get(name, [])]
    requests = sum(count for report in reports for name, count in report.user_properties if name == "requests")
    if requests:
        terminalreporter.write_line(f"{requests:,} made-up requests to the API.")
