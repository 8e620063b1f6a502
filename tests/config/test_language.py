"""Tests of the check of the code's language."""

from pathlib import Path

import pytest

from scripts.language import problem_of_subject, problems_of_class_names, problems_of_source


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "for said in (): pass",
        "def read(given): pass",
        "(told := 1)",
        '"""What a module holds."""',
        'def read():\n    """Whoever reads."""',
        'class Limit:\n    """Of which there is one."""',
    ],
)
def test_a_vague_name_or_a_relative_docstring_is_one_problem(source: str) -> None:
    assert len(list(problems_of_source(source, "module.py"))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "rows = 1",
        "print(found)",
        "row.found",
        "read(found=1)",
        "class Row:\n    found = models.JSONField()",
        'def read():\n    """Return the rows."""',
        '"""Whatever."""',
    ],
)
def test_names_of_things_and_names_of_others_are_no_problem(source: str) -> None:
    assert list(problems_of_source(source, "module.py")) == []


def test_a_class_name_that_two_modules_use_is_a_problem_of_the_second(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("class Limit:\n    class Meta: pass\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "c.py").write_text("class Limit: pass\n")
    assert [problem.place for problem in problems_of_class_names(tmp_path)] == ["b.py:1"]


@pytest.mark.parametrize(
    "subject",
    [
        "files: release the quota lock before writing to storage",
        "chat/runs: keep the id of a stopped run",
        "Merge branch 'x'",
    ],
)
def test_a_subject_with_an_area_passes(subject: str) -> None:
    assert problem_of_subject(subject) is None


@pytest.mark.parametrize(
    "subject",
    [
        "Release the quota lock",
        "files: " + "x" * 66,
        "files: Release the lock",
        "files: release the lock.",
        "files release the lock",
        "docs, tests: name the new page",
        "",
    ],
)
def test_a_subject_without_an_area_too_long_or_in_capitals_is_refused(subject: str) -> None:
    assert problem_of_subject(subject)
