"""Read one file in a confined process: `python -m readers PATH NAME PARENT [ENCODING]`.

The output is the result as `formats.result.encode_result` writes it. PARENT is the id of the process that waits for it.
The first line of the standard input is the password of the file, since other processes could read it from the
arguments.
"""

import sys
import traceback
from pathlib import Path

from readers.confinement import limit, seal
from readers.formats import result
from readers.formats.result import Extracted, ReaderError
from readers.nested.dispatch import read

MEMORY = 1 << 30  # bytes of address space
CODE = Path(__file__).parent


def read_or_error(path: Path, name: str, encoding: str = "", password: str = "") -> Extracted | ReaderError:
    """Read a file. Return the error if it cannot be read."""
    try:
        return read(path, name, encoding, password)
    except ReaderError as error:
        return error
    except MemoryError:
        return ReaderError("too_much_memory")
    except Exception:
        # The libraries may raise any exception for a damaged file.
        traceback.print_exc()
        return ReaderError("damaged")


if __name__ == "__main__":
    where, called, parent, *written_in = sys.argv[1:]
    key = sys.stdin.readline().rstrip("\n")
    limit(int(parent), MEMORY)
    seal((Path(where), CODE))
    sys.stdout.buffer.write(result.encode_result(read_or_error(Path(where), called, "".join(written_in), key)))
