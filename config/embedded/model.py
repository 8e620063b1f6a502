"""`python -m config.embedded.model PORT WEIGHTS NAME PREFIX`: a small model on loopback, with OpenAI's protocol.

A request needs the key in the environment variable `BUNDLED_MODEL_KEY`: other users of the machine can reach the port,
and so can pages of other sites in a local browser, by a name that resolves to this address. llama.cpp lets everybody
list models and check its health, but only at its usual paths: below the `PREFIX` these need the key, too.

It gives way to all other processes of the machine: one thread, nice 10, prompts read 128 tokens at a time, and a prompt
cache of 64 MiB in the place of llama.cpp's usual 8 GiB. Two requests at a time share a window of 6,144 tokens, and the
product plans each for 2,048; the keys and values have 8 bits, 75 MB from the start.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import xllamacpp

SLOTS = 2
WINDOW = 6_144  # tokens of all slots together
CACHE_MIB = 64
AT_ONCE = 128  # tokens; memory for the scores of all of them is allocated at the start


def main(port: int, weights: str, name: str, prefix: str) -> None:
    # The destructor of a server with a request in flight never returns.
    signal.signal(signal.SIGTERM, _exit)
    os.nice(10)
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.api_keys = [os.environ["BUNDLED_MODEL_KEY"]]
    params.api_prefix = prefix
    params.model_alias = [name]  # else its name is the path of the file
    params.n_parallel = SLOTS
    params.n_ctx = WINDOW
    params.kv_unified = True
    params.cache_ram_mib = CACHE_MIB
    params.n_ubatch = AT_ONCE
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_Q8_0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.ui = params.endpoint_slots = False
    params.verbosity = 1
    server = xllamacpp.Server(params)
    sys.stderr.write(f"serving at {server.listening_address}\n")
    while True:
        signal.pause()


def _exit(signum: int, frame: FrameType | None) -> NoReturn:
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
