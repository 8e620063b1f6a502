"""`python -m config.embedded.model PORT WEIGHTS NAME PREFIX`: serve a small model on loopback, with OpenAI's protocol.

A request needs the key in the environment variable `BUNDLED_MODEL_KEY`. Other users of the machine can reach the port.
So can pages of other sites in a local browser, through a name that resolves to this address. At its usual paths,
llama.cpp lists models and reports its health without a key; below `PREFIX`, these requests need the key, too.

The server yields to all other processes: one thread, nice 10, prompts in batches of 128 tokens, and a prompt cache of
64 MiB instead of llama.cpp's usual 8 GiB. Two parallel requests share a window of 6,144 tokens, and the product plans
each for 2,048. The KV cache has 8 bits per value and takes 75 MB from the start.
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
BATCH_TOKENS = 128  # tokens in one batch; memory for the scores of a batch is allocated at the start


def main(port: int, weights: str, name: str, prefix: str) -> None:
    # Exit without the server's destructor, which never returns while a request is in flight.
    signal.signal(signal.SIGTERM, _exit)
    os.nice(10)
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.api_keys = [os.environ["BUNDLED_MODEL_KEY"]]
    params.api_prefix = prefix
    params.model_alias = [name]  # the default name is the path of the file
    params.n_parallel = SLOTS
    params.n_ctx = WINDOW
    params.kv_unified = True
    params.cache_ram_mib = CACHE_MIB
    params.n_ubatch = BATCH_TOKENS
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
