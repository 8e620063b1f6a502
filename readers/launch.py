"""`python -m readers.launch PARENT FOLDER PROGRAM ...`: becomes that program, confined.

It reads the system's programs, libraries, fonts and settings, writes into FOLDER alone, and has no network. Ends with
`UNCONFINED` where the system does not grant that: no other program gets to see a file then.
"""

import os
import sys
from pathlib import Path

from readers.confinement import limit, seal_program
from readers.outside.programs import UNCONFINED

MEMORY = 4 << 30  # bytes of address space, of which an office program reserves much and uses little
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
    # Where a program is a link, what it leads to is run.
    places = [*map(Path, _SYSTEM), Path(program).resolve()]
    if not seal_program(places, Path(folder)):
        sys.exit(UNCONFINED)
    os.chdir(folder)
    os.execv(program, [program, *arguments])  # noqa: S606  # what this module is for
