"""Build inputs from a regular expression's own parts that make it slow if anything does, and try them.

As a program it reads patterns as JSON from its standard input. A process of its own tries each, and may use
`CPU_SECONDS` for each input. The program prints the names of patterns whose process was ended or failed.
"""

import importlib
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# They have no public name, and no types.
codes: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")
# A pattern that is linear needs milliseconds for all of its inputs; one that is quadratic needs, for the largest, some
# ten seconds, one that is cubic for 16,000 characters hours.
SIZES = (2_000, 16_000, 128_000)
CPU_SECONDS = 2
LONG = 10  # times; a repetition that ends before is no run
MISMATCHES = ("\0", "\n", "!")
CATEGORIES = {
    codes.CATEGORY_DIGIT: "1",
    codes.CATEGORY_NOT_DIGIT: "a",
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_NOT_SPACE: "a",
    codes.CATEGORY_WORD: "a",
    codes.CATEGORY_NOT_WORD: "-",
}
REPETITIONS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


@dataclass(frozen=True)
class TrialPattern:
    """A pattern, how the product applies it, and the most characters that it is ever applied to (0: any number)."""

    name: str
    pattern: str
    flags: int
    is_bytes: bool
    methods: tuple[str, ...]
    bound: int = 0

    def compiled(self) -> re.Pattern[Any]:
        return re.compile(self.pattern.encode("latin-1") if self.is_bytes else self.pattern, self.flags)


def sample(parts: Any, chosen: int = 0) -> str:
    """Return a text that the parsed parts match, look-arounds ignored. `chosen` selects branches and classes."""
    return "".join(_sample_of(operation, argument, chosen) for operation, argument in parts)


def _sample_of(operation: Any, argument: Any, chosen: int) -> str:
    if operation is codes.LITERAL:
        return chr(argument)
    if operation is codes.NOT_LITERAL:
        return "b" if argument == ord("a") else "a"
    if operation is codes.ANY:
        return "a"
    if operation is codes.IN:
        return _member(argument, chosen)
    if operation is codes.BRANCH:
        return sample(argument[1][chosen % len(argument[1])], chosen)
    if operation is codes.SUBPATTERN:
        return sample(argument[3], chosen)
    if operation is codes.ATOMIC_GROUP:
        return sample(argument, chosen)
    if operation in REPETITIONS:
        least, most, inner = argument
        repeated: str = sample(inner, chosen) * max(least, min(1, most))
        return repeated
    return ""  # what looks around, beginnings and ends, references


def _member(choices: Sequence[tuple[Any, Any]], chosen: int) -> str:
    negated = choices[0][0] is codes.NEGATE
    if negated:
        inside = re.compile(f"[{_class_of(choices[1:])}]")
        free = [each for each in ("a", " ", "-", "<", "\n", "1", "\\", '"', "x", "=") if not inside.match(each)]
        return free[chosen % len(free)] if free else "\u2603"
    members = []
    for kind, value in choices:
        if kind is codes.LITERAL:
            members.append(chr(value))
        elif kind is codes.RANGE:
            members.append(chr(value[0]))
        elif kind is codes.CATEGORY:
            members.append(CATEGORIES.get(value, "a"))
    return members[chosen % len(members)]


def _class_of(choices: Sequence[tuple[Any, Any]]) -> str:
    names = {codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_SPACE: r"\s", codes.CATEGORY_WORD: r"\w"}
    names |= {codes.CATEGORY_NOT_DIGIT: r"\D", codes.CATEGORY_NOT_SPACE: r"\S", codes.CATEGORY_NOT_WORD: r"\W"}
    written = []
    for kind, value in choices:
        if kind is codes.LITERAL:
            written.append(re.escape(chr(value)))
        elif kind is codes.RANGE:
            written.append(f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}")
        elif kind is codes.CATEGORY:
            written.append(names[value])
    return "".join(written)


def runs(parts: Any, before: str = "", chosen: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the text before each long repetition, and the repeated text."""
    for operation, argument in parts:
        if operation in REPETITIONS:
            _least, most, inner = argument
            if most > LONG:
                yield before, sample(inner, chosen)
            yield from runs(inner, before, chosen)
        elif operation is codes.SUBPATTERN:
            yield from runs(argument[3], before, chosen)
        elif operation is codes.ATOMIC_GROUP:
            yield from runs(argument, before, chosen)
        elif operation in (codes.ASSERT, codes.ASSERT_NOT):
            yield from runs(argument[1], before, chosen)
        elif operation is codes.BRANCH:
            for branch in argument[1]:
                yield from runs(branch, before, chosen)
        before += _sample_of(operation, argument, chosen)


def inputs(pattern: TrialPattern, size: int) -> Iterator[str]:
    parts = parser.parse(pattern.pattern.encode("latin-1") if pattern.is_bytes else pattern.pattern, pattern.flags)
    units: dict[tuple[str, str], None] = {}
    for chosen in range(4):
        pairs = [(before, unit) for before, unit in runs(parts, "", chosen) if unit]
        units |= dict.fromkeys(pairs)
        units |= dict.fromkeys(("", before + unit) for before, unit in pairs)  # a beginning at many places
        units |= dict.fromkeys(("", before) for before, _unit in pairs if before)
        units |= dict.fromkeys((first + one, other) for first, one in pairs for _second, other in pairs if one != other)
        units |= dict.fromkeys(("", one + other) for _first, one in pairs for _second, other in pairs if one != other)
        units[("", sample(parts, chosen))] = None
    for before, unit in units:
        if not unit:
            continue
        run = before + unit * (size // len(unit))
        for mismatch in MISMATCHES[: None if size < SIZES[-1] else 1]:
            yield run + mismatch


def allow_time() -> None:
    """Let the process use `CPU_SECONDS` more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + 1 + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def attempt(pattern: TrialPattern) -> None:
    """Apply the pattern to all of its inputs."""
    compiled = pattern.compiled()
    sizes = sorted({min(size, pattern.bound) if pattern.bound else size for size in SIZES})
    for size in sizes:
        for text in inputs(pattern, size):
            allow_time()
            subject: Any = text.encode("utf-8", "surrogatepass") if pattern.is_bytes else text
            for method in pattern.methods:
                if method == "search":
                    compiled.search(subject)
                elif method == "match":
                    compiled.match(subject)
                elif method == "fullmatch":
                    compiled.fullmatch(subject)
                else:  # sub, split, findall and finditer look for one match after the other
                    for _match in compiled.finditer(subject):
                        pass


def slow(patterns: Sequence[TrialPattern]) -> list[str]:
    """Return the names of the patterns that need more than `CPU_SECONDS` for one of their inputs."""
    names = []
    for pattern in patterns:
        child = os.fork()
        if not child:
            try:
                attempt(pattern)
            except BaseException as error:  # said, and told by the status
                sys.stderr.write(f"{pattern.name}: {error!r}\n")
                os._exit(1)
            os._exit(0)
        _pid, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            names.append(pattern.name)
        elif status:
            raise RuntimeError(f"{pattern.name} could not be tried")
    return names


def as_json(patterns: Sequence[TrialPattern]) -> str:
    return json.dumps([asdict(pattern) for pattern in patterns])


def main() -> None:
    patterns = [TrialPattern(**{**each, "methods": tuple(each["methods"])}) for each in json.load(sys.stdin)]
    sys.stdout.write(json.dumps(slow(patterns)))


if __name__ == "__main__":
    main()
