#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzz targets wire and frame, from the formats as
common/wire/wire.h, common/link/link_frame.h and link_handshake_frames.h describe them.
usage: make_wire_corpus.py FOLDER_OF_CORPORA
       make_wire_corpus.py --golden | --golden-links"""
import hashlib
import struct
import sys
from pathlib import Path


class F32(float):
    """A number that travels in 32 bits."""


def pack(v):
    if isinstance(v, F32):
        return b"\xca" + struct.pack(">f", v)
    if isinstance(v, bool) or v is None:
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[v]
    if isinstance(v, int):
        if 0 <= v < 128:
            return bytes([v])
        if -32 <= v < 0:
            return struct.pack("b", v)
        if v < 0:
            return b"\xd2" + struct.pack(">i", v)
        return b"\xcf" + struct.pack(">Q", v)
    if isinstance(v, str):
        raw = v.encode()
        return b"\xd9" + bytes([len(raw)]) + raw
    if isinstance(v, bytes):
        return b"\xc5" + struct.pack(">H", len(v)) + v
    head = bytes([0x90 | len(v)]) if len(v) < 16 else b"\xdc" + struct.pack(">H", len(v))
    return head + b"".join(pack(x) for x in v)


def ids(*tokens):
    return struct.pack(f"<{len(tokens)}I", *tokens)


def biases(*pairs):
    return b"".join(struct.pack("<If", token, bias) for token, bias in pairs)


def score(logprob, *top):
    return struct.pack("<d", logprob) + b"".join(struct.pack("<Id", *pair) for pair in top)


SAMPLING = [F32(0.5), 40, F32(0.75), F32(1.25), F32(0.375), F32(-0.5), (1 << 63) + 9, 3,
            ids(2, 49152), [ids(11, 12), ids(13)]]
# Two allowed tokens, one breaker, an opening mark of one token and a closing one of two.
PROCESSORS = [3, 9, F32(0.9375), F32(0.25), 7, F32(1.5), F32(0.75), F32(0.5), F32(0.125),
              F32(0.75), F32(1.75), 2, 4096, 100, 1, 2, 1, 1, 2, ids(5, 6, 7, 8, 9, 10)]
# Protocol 2 as it was at first, one message of each type, in the order of the
# types. Kept as tests/golden/wire_v2/independent.txt: never change a line here.
GOLDEN = {
    "hello": [1, 2, 2, 0x1122334455667788, "decode-0", 101, 102, "cpu-avx2", 1, 16, 103, 104, 8192,
              24, 1024, 1, b"\x01\x02\x03"],
    "request": [2, 42, 3, 1, 99, 4, ids(1, 2, 3, 4, 49151), 128, 60000, 7, SAMPLING],
    "grant": [3, 42, 3, 99, 64, b"window"],
    "cancel": [4, 42, 3, 1],
    "tokens": [5, [[42, 3, 0, 5, 0], [43, 0, 700, 49151, 2]]],
    "prefilled": [6, 42, 3, 1000, 2000, 5, 48],
    "joined": [7, 42, 3, 11, 12, 13, 14, 15, 16],
    "failed": [8, 42, 3, -65, "prefill: out of blocks"],
    "ended": [9, 42, 3, 5000, 12, 300, 900],
    "stats": [10] + [1001 + i for i in range(25)],
    "peer": [11, 99, "decode-1", b"blob"],
    "peer_gone": [12, 99],
    "drain": [13],
}
FUTURE = [None, True, "more", [1, [2, b"x"]], -1, F32(0.5)]
# Fields that came after it. A list of one has its blob in the field that was there before.
LATER = {"hello": [2, "smollm2-135m", "0.1.0", 1, 1, [[368640, b""]], 2, 5, 69, 7, "step-7", "/w/7", 8, 9, 10],
         "stats": [2001, 2002, 2003, 2004, 2005, 2006, 2007, 2008, 2009, 3, 2010, 2011,
                   2012, 2013, 2014, 2015, 2016, 2017, 2018, 2019, 2020, 2021, 2022, 2023,
                   2024, 2025, 2026, 2027, 2028, 2029, 2030, 2031, 2032, 2033, 2, 2035, 2036, 2037,
                   *range(2038, 2069)],
         "ended": [3001, 3002, 3003, 3004],
         "request": [0xFEDCBA9876543210, 5, biases((7, 100), (49151, -2.5)), 41, 4, 3, 2, F32(0.0625), ids(), 1500, 40,
                     ids(8, 9), 6, PROCESSORS, 4, 2, F32(0.7), 2, b"BTG", 77, 1, 2, b"\x00\x3c" * 4,
                     6, 1 << 63],
         "tokens": [[[1, score(-0.75, (49151, -0.5), (7, -2.0))]], ids(1, 9, 8)],
         "grant": [[[0, 0, b""]]], "peer": [1, 1, [[368640, b""]], 103, 104, 1]}
TOKENS = GOLDEN["tokens"]
HELLO = GOLDEN["hello"][:-1]
PEER = GOLDEN["peer"][:-1]
GRANT = GOLDEN["grant"][:-1]
RANKS = [[4096, b"one"], [4096, b"two"]]
# What stands in a file called refused_* is not taken, later_type_* is passed
# over, all others are taken.
WIRE = {
    **GOLDEN,
    **{f"{name}_future": message + LATER.get(name, []) + FUTURE for name, message in GOLDEN.items()},
    **{f"refused_{name}_short": message[:-1] for name, message in GOLDEN.items() if len(message) > 1},
    **{f"{name}_later_{n}": GOLDEN[name] + LATER[name][:n]
       for name in LATER for n in range(1, len(LATER[name]) + 1)},
    "refused_hello_later_type": GOLDEN["hello"] + ["2"],
    "request_plain": [2, 1, 0, 0, 9, 1, ids(1), 1, 0, 0,
                      [F32(0), 0, F32(1), F32(1), F32(0), F32(0), 0, 0, b"", []]],
    "request_biases_most": GOLDEN["request"] + [0, 0, biases(*((i, i / 1024) for i in range(1024)))],
    "request_biases_dense": GOLDEN["request"] + [0, 0, biases(*((i, 1) for i in range(1025)))],
    "refused_request_bias_too_much": GOLDEN["request"] + [0, 0, biases((5, 100.5))],
    "refused_request_bias_nan": GOLDEN["request"] + [0, 0, biases((5, float("nan")))],
    "refused_request_biases_cut": GOLDEN["request"] + [0, 0, biases((5, 1))[:-1]],
    "refused_request_biases_list": GOLDEN["request"] + [0, 0, [[5, F32(1)]]],
    "refused_request_min_p": GOLDEN["request"] + [0, 0, b"", 0, 0, 0, 0, F32(1.5)],
    "refused_request_min_p_nan": GOLDEN["request"] + [0, 0, b"", 0, 0, 0, 0, F32(float("nan"))],
    **{f"{name}": GOLDEN["request"][:-1] + [SAMPLING[:8] + [first] + SAMPLING[9:], 0, 0, b"", 0, 0, 0, 0, F32(0), more]
       for name, first, more in (
           ("request_end_ids_most", ids(*range(8)), ids(*range(8, 80))),
           ("refused_request_end_ids_too_many", ids(*range(8)), ids(*range(8, 81))),
           ("refused_request_end_ids_first_too_many", ids(*range(9)), ids()),
           ("refused_request_end_ids_with_a_gap", ids(*range(7)), ids(7)),
           ("refused_request_end_ids_cut", ids(*range(8)), ids(8)[:-1]))},
    **{name: GOLDEN["request"] + LATER["request"][:13] + [fields] for name, fields in (
        ("request_processors_none", []),
        ("request_processors_future", PROCESSORS + FUTURE),
        ("refused_request_processors_no_list", 1),
        ("refused_request_processors_miscounted", PROCESSORS[:-1] + [ids(5, 6, 7, 8, 9)]),
        ("refused_request_processors_nan", PROCESSORS[:5] + [F32(float("nan"))] + PROCESSORS[6:]),
        ("refused_request_processors_decay", PROCESSORS[:2] + [F32(1.5)] + PROCESSORS[3:]))},
    "request_grammar_none": GOLDEN["request"] + LATER["request"][:18] + [b""],
    "refused_request_grammar_no_blob": GOLDEN["request"] + LATER["request"][:18] + ["BTG"],
    **{name: GOLDEN["request"] + LATER["request"][:20] + table for name, table in (
        ("request_table_none", [9, 5, b""]),
        ("request_table_f32", [0, 1, bytes(8)]),
        ("refused_request_table_type", [3, 2, bytes(8)]),
        ("refused_request_table_cut", [1, 2, bytes(7)]),
        ("refused_request_table_no_rows", [1, 0, bytes(8)]),
        ("refused_request_table_no_blob", [1, 2, "rows"]))},
    "refused_request_group_too_large": GOLDEN["request"] + [0, 0, b"", 41, 4097],
    "request_sampling_future": GOLDEN["request"][:-1] + [SAMPLING + FUTURE],
    "refused_request_sampling_short": GOLDEN["request"][:-1] + [SAMPLING[:-1]],
    "tokens_inner_future": [5, [[42, 3, 0, 5, 0] + FUTURE, [43, 0, 700, 49151, 2, None]]],
    "refused_tokens_inner_short": [5, [[42, 3, 0, 5]]],
    "hello_ranks": HELLO + [b"", 2, "", "", 2, 1, RANKS],
    "hello_ranks_future": HELLO + [b"", 2, "", "", 2, 1, [item + FUTURE for item in RANKS], 2, 5, 69, 0, "", "", 0, 0, 0] + FUTURE,
    "hello_no_rank": HELLO + [b"", 2, "", "", 1, 1, []],
    "hello_ranks_most": HELLO + [b"", 2, "", "", 8, 8, [[1, b"x"]] * 64],
    "refused_hello_ranks_too_many": HELLO + [b"", 2, "", "", 64, 64, [[1, b"x"]] * 65],
    "refused_hello_ranks_not_the_split": HELLO + [b"", 2, "", "", 2, 2, RANKS],
    "refused_hello_ranks_unsaid_split": HELLO + [b"", 2, "", "", 0, 1, []],
    "refused_hello_ranks_and_only": HELLO + [b"one", 2, "", "", 2, 1, RANKS],
    "refused_hello_rank_twice": HELLO + [b"one", 2, "", "", 1, 1, [[4096, b"one"]]],
    "refused_hello_rank_nowhere": HELLO + [b"", 2, "", "", 1, 1, [[4096, b""]]],
    "refused_hello_ranks_one_empty": HELLO + [b"", 2, "", "", 2, 1, [RANKS[0], [4096, b""]]],
    "refused_hello_ranks_short": HELLO + [b"", 2, "", "", 2, 1, [RANKS[0], [4096]]],
    "refused_hello_ranks_no_list": HELLO + [b"", 2, "", "", 2, 1, [1, 2]],
    "peer_rank_in_the_list": PEER + [b"", 1, 1, RANKS[:1]],
    "peer_ranks": PEER + [b"", 1, 2, RANKS, 103, 104],
    "refused_peer_sends_twice": PEER + [b"", 1, 2, RANKS, 103, 104, 2],
    "refused_peer_ranks_not_the_split": PEER + [b"", 1, 1, RANKS],
    "grant_windows": GRANT + [b"", [[0, 0, b"a"], [1, 0, b"bc"], [63, 63, b"d"]]],
    "grant_windows_future": GRANT + [b"", [[0, 0, b"a"] + FUTURE, [1, 0, b"bc"]]] + FUTURE,
    "grant_no_window": GRANT + [b"", []],
    "refused_grant_rank_64": GRANT + [b"", [[0, 0, b"a"], [64, 0, b"bc"]]],
    "refused_grant_windows_short": GRANT + [b"", [[0, 0, b"a"], [1, 0]]],
    "later_type": [99, 1],
    "later_type_27": [27] + FUTURE,
    "role": [14, 3],
    "role_duty": [14, 0, 3],
    "role_future": [14, 3, 2] + FUTURE,
    "refused_role_short": [14],
    "tokens_scores": TOKENS + [[[0, score(-0.5)], [1, score(-0.75, *[(i, -i / 8) for i in range(20)])]]],
    "tokens_scores_future": TOKENS + [[[1, score(-0.5)] + FUTURE], ids()] + FUTURE,
    "refused_tokens_scores_too_many_alternatives": TOKENS + [[[1, score(-0.75, *[(i, -i / 8) for i in range(21)])]]],
    "refused_tokens_score_of_no_token": TOKENS + [[[2, score(-0.5)]]],
    "refused_tokens_score_twice": TOKENS + [[[1, score(-0.5)], [1, score(-0.5)]]],
    "refused_tokens_score_cut": TOKENS + [[[1, score(-0.5, (1, -1))[:-1]]]],
    "refused_tokens_score_empty": TOKENS + [[[1, b""]]],
    "refused_tokens_score_short": TOKENS + [[[1]]],
    "refused_tokens_score_no_list": TOKENS + [[5]],
    "refused_tokens_scores_no_list": TOKENS + [b"scores"],
    "rows_logprobs": [15, 42, 3, 0, 1, 1, 0, score(-0.5, (3, -0.25)) + score(-1, (2, -0.5))],
    "rows_logits": [15, 42, 3, 2, 700, 0, 16384, struct.pack("<3f", 1, -2, 0.5)],
    "rows_future": [15, 42, 3, 9, 0, 0, 0, b""] + FUTURE,
    "refused_rows_short": [15, 42, 3, 0, 1, 1, 0],
    "refused_rows_too_many_tokens": [15, 42, 3, 0, (1 << 20) + 1, 1, 0, b""],
    "kv_link": [16, 99, 2, "10.0.0.2:4711 on eth0", "no answer for 2.5 s (a firewall?)"],
    "kv_link_future": [16, 99, 7, "", ""] + FUTURE,
    "refused_kv_link_short": [16, 99, 2, ""],
    "beam": [17, 42, 3, 1, 4, 1, ids(5, 6), struct.pack("<2d", -0.5, -1.25)],
    "beam_without_logprobs": [17, 42, 3, 0, 1, 2, ids(49151), b""],
    "beam_future": [17, 42, 3, 1, 4, 1, ids(5, 6), b""] + FUTURE,
    "refused_beam_without_ids": [17, 42, 3, 1, 4, 1, b"", b""],
    "refused_beam_of_none": [17, 42, 3, 0, 0, 1, ids(5), b""],
    "weights": [18, 7, "step-7", "/w/7", 1],
    "weights_future": [18, 7, "step-7", "/w/7", 0] + FUTURE,
    "refused_weights_short": [18, 7, "step-7", "/w/7"],
    "refused_weights_line_break": [18, 7, "step\n7", "/w/7", 1],
    "refused_weights_loads": [18, 7, "step-7", "/w/7", 2],
    "weights_checked": [19, 7, -3, 1, 2, "another tokenizer"],
    "refused_weights_checked_short": [19, 7, 0, 1, 2],
    "sleep": [20, 7, 1],
    "sleep_future": [20, 7, 0] + FUTURE,
    "refused_sleep_short": [20, 7],
    "refused_sleep_sleeps": [20, 7, 2],
    "cache_reset": [21, 7],
    "cache_reset_future": [21, 7] + FUTURE,
    "refused_cache_reset_short": [21],
    "cache_is_empty": [22, 7, 4096],
    "cache_is_empty_future": [22, 7, 0] + FUTURE,
    "refused_cache_is_empty_short": [22, 7],
    "adapter": [23, 1, 1 << 63, 1, "sql", "/l/sql"],
    "adapter_bytes": [23, 1, 2, 1, "sql", "", 1 << 40],
    "adapter_future": [23, 1, 2, 0, "sql", "/l/sql", 0] + FUTURE,
    "refused_adapter_short": [23, 1, 2, 1, "sql"],
    "refused_adapter_loads": [23, 1, 2, 2, "sql", "/l/sql"],
    "refused_adapter_line_break": [23, 1, 2, 1, "s\nql", "/l/sql"],
    "adapter_ready": [24, 1, 2, -3, "another one"],
    "adapter_ready_future": [24, 1, 2, 0, ""] + FUTURE,
    "refused_adapter_ready_short": [24, 1, 2, 0],
    "adapter_want": [25, 1, 2, 1 << 40],
    "adapter_want_future": [25, 1, 2, 0] + FUTURE,
    "refused_adapter_want_short": [25, 1, 2],
    "adapter_part": [26, 1, 2, 1 << 40, b"abc"],
    "adapter_part_future": [26, 1, 2, 0, b""] + FUTURE,
    "refused_adapter_part_short": [26, 1, 2, 0],
    "later_type_wide": [0xFFFFFFFF, [], b""],
    "refused_type_0": [0, 1],
}


LINK_KEY = bytes(range(32))
FUZZ_KEY = bytes([1, 2, 3]) + bytes(29)  # fuzz_frame.c has the same
NONCE_R, NONCE_W = bytes([0xA0] * 32), bytes([0xB0] * 32)
INCARNATION_R, INCARNATION_W = 0x1112131415161718, 0x2122232425262728


def blake(key, *parts, size=32):
    return hashlib.blake2b(b"".join(parts), digest_size=size, key=key).digest()


def domain(text):
    return text.ljust(16, b"\0")


class Keys:
    """What is made of a cluster key (docs/WIRE.md, "Keys")."""

    def __init__(self, cluster_key):
        self.id = blake(cluster_key, domain(b"baton 4 key id"))[:8]
        self.join = blake(cluster_key, domain(b"baton 4 join"))
        self.open = blake(cluster_key, domain(b"baton 4 open"))
        self.session = blake(cluster_key, domain(b"baton 4 session"))


def intro(kind, fixed, rest, later=b""):
    return b"BTN4" + struct.pack("<II", kind, len(fixed) + len(later)) + fixed + later + rest


def join(keys, oldest, newest, incarnation, nonce, name, later=b""):
    fixed = struct.pack("<II", oldest, newest) + keys.id + struct.pack("<Q", incarnation)
    said = intro(1, fixed + nonce + struct.pack("<I", len(name)), name, later)
    return said + blake(keys.join, said)


def open_frame(keys, answered, oldest, newest, incarnation, nonce, name, later=b""):
    fixed = struct.pack("<II", oldest, newest) + keys.id + struct.pack("<Q", incarnation)
    said = intro(2, fixed + nonce + struct.pack("<I", len(name)), name, later)
    return said + blake(keys.open, answered, said)


def sealed(key, kind, sequence, body=b""):
    said = b"BTN4" + struct.pack("<IQ", kind, sequence) + body
    return said + blake(key, said, size=16)


def link(cluster_key):
    """A link from its first frame to its farewell."""
    keys = Keys(cluster_key)
    told = join(keys, 4, 5, INCARNATION_W, NONCE_W, b"decode-0", b"later")
    opened = open_frame(keys, told, 4, 6, INCARNATION_R, NONCE_R, b"the router", b"later fields")
    session = blake(keys.session, told, opened)
    to_worker = blake(session, domain(b"baton 4 r to w"))
    to_router = blake(session, domain(b"baton 4 w to r"))
    return {
        "join": told,
        "open": opened,
        "accept": sealed(to_router, 3, 1, struct.pack("<I", 5) + b"the worker"),
        "ready": sealed(to_worker, 4, 1, struct.pack("<I", 5) + b"the router"),
        "heartbeat": sealed(to_router, 5, 2),
        "messages": sealed(to_router, 5, 3, struct.pack("<I", 2) + b"hi" + struct.pack("<I", 0) + b"\x05\0"),
        "rest": sealed(to_router, 5, 4, b"\0\0" + b"hello"),
        "later": sealed(to_router, 200, 5, b"of a later version"),
        "bye": sealed(to_worker, 6, 2, b"model mismatch"),
    }


# What a version without later fields sends: byte by byte what this build does.
def plain(cluster_key):
    keys = Keys(cluster_key)
    told = join(keys, 4, 4, INCARNATION_W, NONCE_W, b"decode-0")
    return {"plain_join": told, "plain_open": open_frame(keys, told, 4, 4, INCARNATION_R, NONCE_R, b"the router")}


def main():
    if sys.argv[1:] == ["--golden"]:
        for name, message in GOLDEN.items():
            print(name, pack(message).hex())
        return
    if sys.argv[1:] == ["--golden-links"]:
        for name, data in {**link(LINK_KEY), **plain(LINK_KEY)}.items():
            print(name, data.hex())
        return
    corpus = Path(sys.argv[1])
    targets = {"wire": {k: pack(v) for k, v in WIRE.items()}, "frame": {**link(FUZZ_KEY), **plain(FUZZ_KEY)}}
    for folder, seeds in ((corpus / name, seeds) for name, seeds in targets.items()):
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
