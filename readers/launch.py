"""Become another program, confined: `python -m readers.launch PARENT FOLDER PROGRAM ...`.

The program may read the system's programs, libraries, fonts and settings, and write into FOLDER alone. It has no
network. If the system cannot enforce this, the process ends with `UNCONFINED`, so that no unconfined program sees a
file.
"""

import os
import sys
from pathlib import Path

from readers.confinement import limit, seal_program
from readers.outside.programs import UNCONFINED

MEMORY = 4 << 30  # bytes of address space; an office program reserves much more than it uses
CPU_SECONDS = 120
_SYSTEM = (
    "/usr",
    "/bin",
    "/lib",
    "/lib64",
    "/opt",
    "/etc",
    "/proc",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
    "/sys/devices",
)

if __name__ == "__main__":
    parent, folder, program, *arguments = sys.argv[1:]
    limit(int(parent), MEMORY, CPU_SECONDS)
    # A program may be a link, and its target must be readable.
    places = [*map(Path, _SYSTEM), Path(program).resolve()]
    if not seal_program(places, Path(folder)):
        sys.exit(UNCONFINED)
    os.chdir(folder)
    os.execv(program, [program, *arguments])  # noqa: S606  # the purpose of this module
