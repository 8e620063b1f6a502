"""The memory of the running product's processes, as the kernel counts it."""

from pathlib import Path

from tests.product import Product


class Gauge:
    """Peaks of resident memory, in bytes, of each process of the product. Linux only, as the product's tests."""

    def __init__(self, product: Product) -> None:
        self._pids = {name: process.pid for name, process in product.processes.items()}
        self._before: dict[str, int] = {}

    def begin(self) -> None:
        """Measure peaks from now on."""
        for name, pid in self._pids.items():
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak becomes what is resident now
            self._before[name] = _status(pid, "VmRSS")

    def growth(self) -> dict[str, int]:
        """Return by how much each process was larger at its largest, since `begin`."""
        return {name: _status(pid, "VmHWM") - self._before[name] for name, pid in self._pids.items()}

    def resident(self) -> dict[str, int]:
        return {name: _status(pid, "VmRSS") for name, pid in self._pids.items()}


def _status(pid: int, field: str) -> int:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024
