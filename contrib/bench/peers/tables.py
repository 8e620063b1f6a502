"""Measure all products in turn. Each row has the limit that Glasshouse must keep.

To add a table: 1. Write a function that returns `FigureRow`s. 2. Name it in `TABLES` of `__main__`.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from contrib.bench.peers import model
from contrib.bench.peers.client import AnswerExchange, Clients, TimedAnswer
from contrib.bench.peers.figures import FigureRow, percentile
from contrib.bench.peers.products import Ask, Product

TTFT = 0.05  # seconds the scripted model waits before its first token
SHORT = model.script(TTFT, 20, 0.002)
RATE = 0.02  # seconds between two tokens of a stream
WITHIN = 0.5  # seconds within which all sends of a burst, or all streams, begin
WARMING = 3  # warm-up answers before the measured ones
SETTLING = 0.2  # seconds for the writes after an answer, which belong to its cost
QUIET, IDLE_SHARE = 30.0, 0.1  # longest wait in seconds; share of a processor below which a product is idle
IDLE = 6.0  # seconds from the first answer after a start to the measurement of memory
FIRST_LIMIT, CPU_LIMIT = {"Open WebUI": 0.6}, {"Open WebUI": 0.8}
BURST_LIMITS = {100: {"Open WebUI": 0.3, "Chainlit": 2.5}}
STREAM_CPU_LIMITS = {25: {"Open WebUI": 1.0}, 100: {"Open WebUI": 0.8}}
DELAY_AT_MOST = {100: 250.0}  # milliseconds
LATEST_FIRST_AT_MOST = {300: 12_900.0}  # milliseconds: 0.3 times the 43 s measured when each turn still needed a slot
ALL_SENT_LIMITS = {1_000: {"Open WebUI": 1.0}}
START_LIMIT, MEMORY_AT_MOST = {"Open WebUI": 0.4}, 700.0  # megabytes


@dataclass(frozen=True)
class AnswerTimes:
    """The times of one answer in seconds, from the time stamps in it. `first` is None if no token came.

    `waited`: from the send until the model had the request. `added`: the product's share of the time to first token.
    """

    whole: bool
    size: int
    first: float | None = None
    waited: float = 0.0
    added: float = 0.0
    messages: int = 0
    delays: Sequence[float] = field(default_factory=list)

    @classmethod
    def of(cls, answer: TimedAnswer) -> "AnswerTimes":
        size = sum(len(data) for _, data in answer.reads)
        tokens: dict[bytes, float] = {}  # by first arrival: a product may repeat its whole text at the end
        for at, match in answer.matches(model.STAMP):
            tokens.setdefault(match[1], at)
        starts = answer.matches(model.PROMPT_NUMBERS)
        if not tokens or not starts:
            return cls(False, size)
        delays = [model.since(stamped, at) for stamped, at in tokens.items()]
        arrived, first = starts[0][1], next(iter(tokens.values()))
        on_the_way = model.since(arrived[1], first)  # from the request's arrival at the model to the first token here
        waited = first - answer.sent - on_the_way
        return cls(answer.whole, size, first - answer.sent, waited, waited + delays[0], int(arrived[2]), delays)


class FigureTable:
    """Collects figures by row and column. The rows are in the order of their first figure."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, float]] = {}
        self._limits: dict[str, tuple[Mapping[str, float], float | None]] = {}

    def add(
        self, what: str, column: str, value: float, limits: Mapping[str, float] | None = None, most: float | None = None
    ) -> None:
        self._rows.setdefault(what, {})[column] = value
        self._limits[what] = (limits or {}, most)

    def rows(self) -> list[FigureRow]:
        return [FigureRow(what, figures, *self._limits[what]) for what, figures in self._rows.items()]


def _paths(products: Sequence[Product]) -> Iterator[tuple[Product, str, Ask]]:
    for product in products:
        for path, ask in product.paths.items():
            yield product, path, ask


def _one(product: Product, clients: Clients, exchange: AnswerExchange) -> tuple[AnswerTimes, float]:
    """Run one exchange. Return the times of its answer, and the CPU milliseconds of the product."""
    before = product.cpu()
    [answer] = clients.run([exchange])
    time.sleep(SETTLING)
    return AnswerTimes.of(answer), (product.cpu() - before) * 1000


def first(products: Sequence[Product], clients: Clients, runs: int) -> list[FigureRow]:
    """Measure answers of 20 tokens one by one."""
    by_path: dict[str, list[AnswerTimes]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    for run in range(runs + WARMING):
        for product, path, ask in _paths(products):
            answer, cpu_ms = _one(product, clients, ask(SHORT))
            if run >= WARMING:
                by_path[path].append(answer)
                cpu[path].append(cpu_ms)
    figures = FigureTable()
    for path, answers in by_path.items():
        added = [each.added * 1000 for each in answers if each.whole]
        figures.add("added to the first token, p50, ms", path, percentile(added, 0.5), FIRST_LIMIT)
        figures.add("added to the first token, p95, ms", path, percentile(added, 0.95))
        figures.add("added to the first token, least, ms", path, min(added, default=0))
        figures.add("until the model has it, p50, ms", path, median(each.waited * 1000 for each in answers))
        figures.add("CPU of a short turn, ms", path, sum(cpu[path]) / len(answers), CPU_LIMIT)
        figures.add("answers that were not whole", path, len(answers) - len(added))
    return figures.rows()


def burst(products: Sequence[Product], clients: Clients, counts: Sequence[int], rounds: int) -> list[FigureRow]:
    """Measure bursts of each size in `counts`, sent within half a second."""
    figures = FigureTable()
    for count in counts:
        by_path: dict[str, list[list[AnswerTimes]]] = defaultdict(list)
        for product in products:
            product.people(count)
        for _ in range(rounds):
            for _, path, ask in _paths(products):
                answers = clients.run([ask(SHORT) for _ in range(count)], WITHIN)
                by_path[path].append([AnswerTimes.of(answer) for answer in answers])
                time.sleep(1.0)
        for path, runs in by_path.items():
            p50 = median(_firsts(run, 0.5) for run in runs)
            figures.add(f"{count} sends: first token, p50, ms", path, p50, BURST_LIMITS.get(count))
            figures.add(f"{count} sends: first token, p99, ms", path, median(_firsts(run, 0.99) for run in runs))
            refused = sum(not each.whole for run in runs for each in run) / len(runs)
            figures.add(f"{count} sends: refused or lost", path, refused)
    return figures.rows()


def _firsts(answers: Sequence[AnswerTimes], share: float) -> float:
    return percentile([each.first * 1000 for each in answers if each.first is not None], share)


def streams(products: Sequence[Product], clients: Clients, counts: Sequence[int], seconds: float) -> list[FigureRow]:
    """Measure each number of concurrent answers at 50 tokens/s.

    A delay is the time from the model's write of a token to the client's read.
    """
    tokens = int(seconds / RATE)
    question = model.script(0.1, tokens, RATE)
    figures = FigureTable()
    for count in counts:
        for product in products:
            product.people(count)
        for product, path, ask in _paths(products):
            exchanges = [ask(question) for _ in range(count)]
            before = product.cpu()
            answers = clients.run(exchanges, WITHIN)
            time.sleep(SETTLING)
            cpu_seconds = product.cpu() - before
            _stream_rows(figures, path, [AnswerTimes.of(answer) for answer in answers], cpu_seconds, tokens)
            figures.add(f"{count} streams: memory, MB", path, product.memory())
    return figures.rows()


def _stream_rows(figures: FigureTable, path: str, seen: Sequence[AnswerTimes], spent: float, tokens: int) -> None:
    count = len(seen)
    tokens_read = sum(len(each.delays) for each in seen)
    delays = [delay * 1000 for each in seen for delay in each.delays]
    lost = sum(not each.whole or len(each.delays) != tokens for each in seen)

    def add(what: str, value: float, limits: Mapping[str, float] | None = None, most: float | None = None) -> None:
        figures.add(f"{count} streams: {what}", path, value, limits, most)

    add("CPU of 1,000 tokens, s", spent / max(1, tokens_read) * 1000, STREAM_CPU_LIMITS.get(count))
    add("delay of a token, p50, ms", percentile(delays, 0.5))
    add("delay of a token, p99, ms", percentile(delays, 0.99), None, DELAY_AT_MOST.get(count))
    add("first token, p50, ms", _firsts(seen, 0.5))
    add("first token, p99, ms", _firsts(seen, 0.99), None, LATEST_FIRST_AT_MOST.get(count))
    add("refused, or a token lost", lost)
    add("bytes of a token", sum(each.size for each in seen) / max(1, tokens_read))


def length(products: Sequence[Product], clients: Clients, counts: Sequence[int], runs: int) -> list[FigureRow]:
    """Measure the time from a send until the model has the request, in conversations with each number of messages."""
    figures = FigureTable()
    for count in counts:
        asks = [(p, name, make(count)) for p in products for name, make in p.lengths.items()]
        for product in products:
            _settled(product)
        by_name: dict[str, list[tuple[AnswerTimes, float]]] = defaultdict(list)
        for _ in range(runs + 1):
            for product, name, ask in asks:
                by_name[name].append(_one(product, clients, ask(SHORT)))
        for name, (first_send, *rest) in by_name.items():
            waited = [each.waited * 1000 for each, _ in rest if each.whole]
            limits = ALL_SENT_LIMITS.get(count)
            figures.add(f"{count:,} messages: until the model has it, p50, ms", name, percentile(waited, 0.5), limits)
            figures.add(f"{count:,} messages: the first after the import, ms", name, first_send[0].waited * 1000)
            figures.add(f"{count:,} messages: CPU of a send, ms", name, median(spent for _, spent in rest))
            figures.add(f"{count:,} messages: the model was given", name, median(each.messages for each, _ in rest))
    return figures.rows()


def _settled(product: Product) -> None:
    """Wait until the work after an import is done, but at most `QUIET` seconds."""
    deadline = time.monotonic() + QUIET
    while time.monotonic() < deadline:
        before = product.cpu()
        time.sleep(1.0)
        if product.cpu() - before < IDLE_SHARE:
            return


def start(products: Sequence[Product], clients: Clients, runs: int) -> list[FigureRow]:
    """Restart each product while the others are idle. Measure the time to the first answer and the memory after it."""
    start_times: dict[str, list[float]] = defaultdict(list)
    memory: dict[str, list[float]] = defaultdict(list)
    figures = FigureTable()
    for _ in range(runs):
        for product in products:
            product.end()
            started = time.monotonic()
            product.start()
            start_times[product.name].append(_answered(product, clients) - started)
            time.sleep(IDLE)
            memory[product.name].append(product.memory())
    for product in products:
        figures.add("second start to an answer, s", product.name, median(start_times[product.name]), START_LIMIT)
        figures.add("memory of all processes, MB", product.name, median(memory[product.name]), None, MEMORY_AT_MOST)
        figures.add("processes", product.name, product.processes())
    return figures.rows()


def _answered(product: Product, clients: Clients) -> float:
    """Ask until an answer is whole. Return the time at which it ended. Raises `RuntimeError` after ten answers."""
    ask = next(iter(product.paths.values()))
    for _ in range(10):
        [answer] = clients.run([ask(SHORT)], limit=30.0)
        if answer.whole:
            return answer.reads[-1][0]
    raise RuntimeError(f"{product.name} answered nothing after its start.")
