"""The table of a run's statuses and its transitions."""

import pytest

from chat.runs.transitions import TRANSITIONS, change_status
from core.sentences import Sentence
from projects.planner.models import Run


def test_every_status_is_in_the_table_and_every_way_is_named() -> None:
    assert set(TRANSITIONS) == set(Run.Status.values)
    for ways in TRANSITIONS.values():
        assert set(ways) <= set(Run.Status.values)
        assert all(ways.values())


def test_from_every_open_status_a_run_can_be_stopped() -> None:
    for status in Run.OPEN:
        assert Run.Status.STOPPED in TRANSITIONS[status]


@pytest.mark.parametrize("status", Run.Status.values)
@pytest.mark.parametrize("after", Run.Status.values)
def test_a_run_becomes_what_the_table_says_and_nothing_else(status: str, after: str) -> None:
    run = Run(status=status, code="question", detail="Which?", needs="an answer")
    if after not in TRANSITIONS[status]:
        with pytest.raises(ValueError, match=status):
            change_status(run, after)
        return
    change_status(run, after, "code", Sentence("Why."))
    assert (run.status, run.code, run.detail, run.needs) == (after, "code", Sentence("Why."), "")
    assert (run.finished is not None) == (after in (Run.Status.DONE, Run.Status.STOPPED, Run.Status.FAILED))
