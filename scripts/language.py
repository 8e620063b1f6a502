"""Check the language of the code: names, docstrings, class names and commit subjects. `make lint` runs it.

The rules are in CONTRIBUTING.md. To forbid a name, add it to `VAGUE_NAMES`. To forbid a beginning of docstrings, add it
to `RELATIVE_BEGINNING`. Each problem is printed as `file:line: sentence`, and the exit code is 1 if there is one.

`python -m scripts.language` checks the tree and the commits after `FIRST_CHECKED_COMMIT`. With `--message FILE` it
checks the message of a commit that is about to be made; the hook that `make setup` installs calls it this way.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SKIPPED_FOLDERS = {".git", ".venv", "migrations", "node_modules", "static", "var"}

# Participles and adverbs that say nothing about the value. Name the thing: rows, message, error, request, options.
VAGUE_NAMES = frozenset(
    """
    asked begun beside besides elsewhere found given gone heard held kept known made meant said sought taken there
    told wanted whatever whoever
    """.split()  # noqa: SIM905 - a list of words reads better without quotation marks
)
RELATIVE_BEGINNING = re.compile(
    r"(As what|As which|For whom|In which|Of an?|Of the|Of what|Of which|That of|Those|To whom|What|Where|Which|Who"
    r"|Whoever|Whose)\b"
)
# Classes that a library looks for by their name, in a module or in another class.
NAMES_OF_LIBRARIES = frozenset({"Command", "Migration"})
SUBJECT = re.compile(r"[a-z][a-z0-9_/.-]*: [a-z0-9`\"'/.{_][^\n]*[^.\s]")
SUBJECT_LENGTH = 72
# The last commit before the rule of subjects was checked. Its history stays as it is.
FIRST_CHECKED_COMMIT = "aedf7ba3"


class LanguageProblem(NamedTuple):
    """One break of a rule, and where it stands."""

    place: str
    sentence: str


def python_files(root: Path) -> Iterator[Path]:
    """Yield the Python files of the project, without migrations and packages of others."""
    for path in sorted(root.rglob("*.py")):
        if not SKIPPED_FOLDERS.intersection(path.relative_to(root).parts[:-1]):
            yield path


def problems_of_source(source: str, place: str) -> Iterator[LanguageProblem]:
    """Yield the vague names and the relative docstrings of one module. `place` names the file.

    Columns of the database keep the names that they have.
    """
    tree = ast.parse(source)
    columns = set(_columns(tree))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and node.id in VAGUE_NAMES
            and node not in columns
        ):
            yield LanguageProblem(f"{place}:{node.lineno}", f"`{node.id}` does not say what it holds. Name the thing.")
        elif isinstance(node, ast.arg) and node.arg in VAGUE_NAMES:
            yield LanguageProblem(f"{place}:{node.lineno}", f"The parameter `{node.arg}` does not say what it holds.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            docstring = ast.get_docstring(node)
            if docstring and RELATIVE_BEGINNING.match(docstring):
                begin = " ".join(docstring.split()[:4])
                line = getattr(node, "lineno", 1)
                sentence = f"The docstring begins with a clause (“{begin} …”). Begin with a verb and its object."
                yield LanguageProblem(f"{place}:{line}", sentence)


def _columns(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the names to which a class of a Django model assigns its fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
                value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
                if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("Field"):
                    yield from targets


def classes_of_source(source: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the line of each class at the top of one module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name not in NAMES_OF_LIBRARIES:
            yield node.name, node.lineno


def problems_of_class_names(root: Path) -> Iterator[LanguageProblem]:
    """Yield each class whose name another module of the product uses too. Tests may repeat names."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in python_files(root):
        relative = path.relative_to(root)
        if "tests" not in relative.parts:
            for name, line in classes_of_source(path.read_text()):
                places[name].append(f"{relative}:{line}")
    for name, all_places in sorted(places.items()):
        for place in all_places[1:]:
            yield LanguageProblem(
                place, f"The class `{name}` has the name of a class in {all_places[0]}. Give it a name of its own."
            )


def problem_of_subject(subject: str) -> str | None:
    """Return what is wrong with the first line of a commit message, or None."""
    if subject.startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        return None
    if len(subject) > SUBJECT_LENGTH:
        return f"The subject has {len(subject)} characters. Use at most {SUBJECT_LENGTH}."
    if not SUBJECT.fullmatch(subject):
        return "The subject is not `area: imperative summary`, in lower case after the colon and without a full stop."
    return None


def problems_of_commits(root: Path) -> Iterator[LanguageProblem]:
    """Yield the commits after `FIRST_CHECKED_COMMIT` with a wrong subject.

    A tarball and a shallow clone have no history, so they have no such commits.
    """
    log = subprocess.run(
        ["git", "log", "--no-merges", "--format=%h %s", f"{FIRST_CHECKED_COMMIT}..HEAD"],  # noqa: S607 - Make finds git in PATH too
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    for line in log.stdout.splitlines() if log.returncode == 0 else ():
        commit, _, subject = line.partition(" ")
        if sentence := problem_of_subject(subject):
            yield LanguageProblem(f"commit {commit}", f"{sentence} ({subject})")


def problems_of_tree(root: Path) -> Iterator[LanguageProblem]:
    """Yield every problem of the tree and of its new commits."""
    for path in python_files(root):
        yield from problems_of_source(path.read_text(), str(path.relative_to(root)))
    yield from problems_of_class_names(root)
    yield from problems_of_commits(root)


def main() -> int:
    """Print the problems of the tree, or of one commit message, and return the exit code."""
    parser = argparse.ArgumentParser(description="Check names, docstrings, class names and commit subjects.")
    parser.add_argument("--message", type=Path, help="a file with the message of a commit; only this is checked")
    options = parser.parse_args()
    if options.message:
        first_line = next(
            (line for line in options.message.read_text().splitlines() if line and not line.startswith("#")), ""
        )
        sentence = problem_of_subject(first_line)
        problems = [LanguageProblem("subject", sentence)] if sentence else []
    else:
        problems = list(problems_of_tree(ROOT))
    for problem in problems:
        sys.stderr.write(f"{problem.place}: {problem.sentence}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
