# SPDX-License-Identifier: Apache-2.0
"""ik_llama.cpp's half of benchmarks (bench/_peer_half.py says what it answers); bench/_ik.py says where its library is.

    _ik_peer.py MODEL.gguf CHUNK MAX_PREFILL MAX_BATCH AFTER STEPS
"""
import ctypes
import sys

import ik_llama_cpp
from ik_llama_cpp import _ctypes_api as lib
from _peer_half import Sequences, answer, cells, work_of

SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)


def declare(name, result, *arguments):
    """A function of llama.h that the package does not declare."""
    function = getattr(lib._lib, name)
    function.restype, function.argtypes = result, arguments
    return function


CONTEXT, SEQ, FLAGS, SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t
lib.llama_synchronize = declare("llama_synchronize", None, CONTEXT)
LOG_SET = declare("llama_log_set", None, ctypes.c_void_p, ctypes.c_void_p)
SET_THREADS = declare("llama_set_n_threads", None, CONTEXT, ctypes.c_uint32, ctypes.c_uint32)
STATE_SIZE = declare("llama_state_seq_get_size", SIZE, CONTEXT, SEQ, FLAGS)
GET_STATE = declare("llama_state_seq_get_data", SIZE, CONTEXT, ctypes.c_void_p, SIZE, SEQ, FLAGS)
SET_STATE = declare("llama_state_seq_set_data", SIZE, CONTEXT, ctypes.c_void_p, SIZE, SEQ, FLAGS)


class Calls:
    """What bench/_peer_half.py asks of this version of the library."""

    @staticmethod
    def clear(context):
        lib.llama_kv_cache_clear(context)

    @staticmethod
    def state_size(context, seq):
        return STATE_SIZE(context, seq, 0)

    @staticmethod
    def get_state(context, data, size, seq):
        return GET_STATE(context, data, size, seq, 0)

    @staticmethod
    def set_state(context, data, size, seq):
        return SET_STATE(context, data, size, seq, 0)

    @staticmethod
    def set_threads(context, n):
        SET_THREADS(context, n, n)


def load(path):
    params = lib.llama_model_default_params()
    # Rows interleaved when the file is read: on two cores of Zen 4 at most a tenth slower for a prompt of Q4_K, and more
    # than twice as quick for one sequence that decodes, than computing on what lies in the file.
    params.repack_tensors, params.use_mmap = True, False
    model = lib.llama_model_load_from_file(path.encode(), params)
    if not model:
        raise SystemExit(f"ik_llama.cpp cannot load {path}")
    return model


def sequences(path, work):
    model = load(path)
    params = lib.llama_context_default_params()
    params.n_ctx = cells(work)
    params.n_batch, params.n_ubatch, params.n_seq_max = max(work.chunk, work.max_batch), work.chunk, work.max_batch
    params.flash_attn = True
    context = lib.llama_init_from_model(model, params)
    if not context:
        raise SystemExit("ik_llama.cpp makes no context")
    return Sequences(lib, Calls, context, lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)), work)


def main():
    work = work_of(sys.argv[2:])
    LOG_SET(SILENT, None)
    lib.llama_backend_init()
    peer = sequences(sys.argv[1], work)
    answer(ik_llama_cpp.__version__, {"threads": peer.threads, "prefill": peer.prefill, "decode": peer.decode})
    return 0


if __name__ == "__main__":
    sys.exit(main())
