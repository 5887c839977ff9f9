# SPDX-License-Identifier: Apache-2.0
"""With which options `./baton bench all` runs each benchmark, and about how long that takes."""
import importlib.util
import shutil
import typing

import _grammar_engines
import _ik
import _llama


class Peer(typing.NamedTuple):
    """Something that a benchmark compares itself with where it is installed; nothing is installed for it."""

    name: str
    is_here: typing.Callable
    options: tuple          # more of them, where it is here
    otherwise: tuple = ()   # and where it is not
    how: str = ""           # to get it


class Setting(typing.NamedTuple):
    quick: tuple            # options of the shortest run
    seconds: tuple          # of a whole run and of the shortest, on two cores, about
    peers: tuple = ()
    full: tuple = ()        # options of a whole run
    without_peers: tuple = ()  # of the shortest, which has no peers


def has_tokenizers():
    return importlib.util.find_spec("tokenizers") is not None


def llama(options, otherwise=(), how=""):
    return Peer("llama.cpp", _llama.is_here, options, otherwise, f"./baton bench {how} installs it")


IK = Peer("ik_llama.cpp", lambda: _ik.is_here() and _llama.is_here(), ("--peers", "llama.cpp,ik_llama.cpp"),
          how="./baton bench quants --peers llama.cpp,ik_llama.cpp installs it")
OWN_TYPES = "Q4_0,Q4_K_M,Q6_K,Q8_0,MXFP4,BF16"  # that need no quantizer of another's
SHORT_MIX = ("--seconds", "2", "--long", "512", "--every", "1")

SETTINGS = {
    "start": Setting(("--runs", "1", "--kv-memory", "64m"), (60, 14)),
    "engine": Setting(("--threads", "2", "--prefill", "64", "--batch", "1,4", "--steps", "8", "--rounds", "1", "--sample-ms", "20",
                       "--limit-mib", "64", "--limit-ms", "20"), (420, 5),
                      (llama(("--peer", "llama.cpp"), how="engine --peer llama.cpp"),)),
    "kernels": Setting(("--threads", "1", "--shapes", "135m", "--rows", "1,32", "--types", "Q4_1,Q8_0", "--ms", "5", "--copies-mib", "16",
                        "--limit-mib", "64", "--limit-ms", "10"), (480, 5)),
    "experts": Setting(("--threads", "1", "--shapes", "tiny", "--types", "Q4_K,BF16", "--rows", "1,32", "--rounds", "1", "--ms", "5",
                        "--limit-mib", "64", "--limit-ms", "10"), (420, 5)),
    "lora": Setting(("--cases", "8-attention", "--clients", "2", "--max-tokens", "16", "--turns", "1"), (300, 15)),
    "serve": Setting(("--prompt-tokens", "64", "--output-tokens", "16", "--concurrency", "2", "--requests", "8"), (120, 6),
                     full=("--concurrency", "32", "--requests", "256", "--engine")),
    "speculation": Setting(("--load", "copy", "--concurrency", "1", "--requests", "2", "--output-tokens", "16"), (600, 20)),
    "drafts": Setting(("--layers", "1", "--types", "Q4_0", "--acceptance", "90", "--batch", "1", "--steps", "8", "--rounds", "1"), (500, 15)),
    "table": Setting(("--repeat", "1", "--requests", "16", *SHORT_MIX), (180, 50)),
    "ablation": Setting(("--variants", "default,own", "--crowd", "8", *SHORT_MIX), (700, 40), full=("--seconds", "12")),
    "orders": Setting(("--orders", "srpt", "--clients", "2", "--output-tokens", "16", *SHORT_MIX), (300, 15)),
    "chunks": Setting(("--mixes", "chat", "--chunks", "0,128", "--seconds", "2", "--rate", "2"), (900, 16)),
    "overload": Setting(("--seconds", "2", "--times", "2", "--rates", "0.4", "--prompt", "64", "--output-tokens", "16", "--clients", "4"),
                        (160, 20)),
    "policies": Setting(("--policies", "guaranteed_no_evict,V1", "--clients", "4", "--max-tokens", "48", "--short", "8", "--seconds", "2"),
                        (150, 18)),
    "lending": Setting(("--prompts", "64", "--output-tokens", "8", "--rounds", "1", "--hand-back-ms", "200"), (240, 15)),
    "handover": Setting(("--short", "64", "--long", "256", "--output-tokens", "8", "--requests", "8"), (240, 35)),
    "ranks": Setting(("--layers", "2", "--prefill", "64", "--batch", "1", "--steps", "4", "--rounds", "1", "--prompt", "256",
                      "--handovers", "2"), (240, 25)),
    "tenants": Setting(("--floods", "open", "--prompt", "32", "--flood-prompt", "32", "--output-tokens", "8", "--seconds", "2"), (110, 26)),
    "attack": Setting(("--only", "drips,idle", "--clients", "2", "--requests", "6"), (200, 25)),
    "robustness": Setting(("--long-tokens", "512", "--cancels", "4", "--rounds", "1", "--shared-tokens", "64", "--leaves", "32"), (150, 15)),
    "router": Setting(("--only", "mock,paced", "--sizes", "1024", "--clients", "4", "--seconds", "0.2"), (280, 8),
                      (Peer("valgrind", lambda: shutil.which("valgrind") is not None,
                            ("--only", "mock,paced,many,idle,tls,grpc,watch,whole,count"), (), "./baton bench router --only count installs it"),)),
    "kvtransfer": Setting(("--path", "shm", "--shape", "135m", "--mib", "8", "--rounds", "1"), (150, 8)),
    "tokenizer": Setting(("--seconds", "0.02", "--rounds", "1"), (60, 6),
                         (Peer("tokenizers", has_tokenizers, ("--peer",), (), "pip install tokenizers, see ./baton bench tokenizer --peer"),)),
    "grammar": Setting(("--rounds", "1"), (60, 6),
                       (Peer("llguidance and xgrammar", _grammar_engines.is_here, ("--peers", "llguidance,xgrammar"), (),
                             "./baton bench grammar --peers llguidance,xgrammar installs them"),)),
    "structured": Setting(("--streams", "2", "--turns", "1", "--output-tokens", "16"), (240, 12)),
    "quants": Setting(("--shapes", "135m", "--types", "Q4_0,BF16", "--prefill", "64", "--batch", "1,4", "--steps", "4", "--rounds", "1",
                       "--sample-ms", "20"), (900, 12),
                      (llama(("--peers", "llama.cpp"), ("--peers", "", "--types", OWN_TYPES), "quants"), IK), without_peers=("--peers", "")),
    "quantizer": Setting(("--types", "Q8_0"), (1200, 60), (llama((), ("--no-peer",), "quantizer"),), without_peers=("--no-peer",)),
    "large": Setting(("--layers", "1", "--prefill", "32", "--batch", "1", "--steps", "4", "--repeat", "1"), (240, 25),
                     (llama(("--peer", "llama.cpp"), how="large --peer llama.cpp"),)),
    "gpu-roofline": Setting(("--few",), (240, 90)),
    "gpu-check": Setting(("--limit", "60"), (300, 5)),
}


def options_of(setting, quick):
    """@return (options, what it goes without: [(name, how to get it)])"""
    if quick:
        return [*setting.quick, *setting.without_peers], []
    options, without = list(setting.full), []
    for peer in setting.peers:
        here = peer.is_here()
        options += peer.options if here else peer.otherwise
        if not here:
            without.append((peer.name, peer.how))
    return options, without
