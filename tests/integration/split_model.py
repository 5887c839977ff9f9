# SPDX-License-Identifier: Apache-2.0
"""A GGUF file as several, as llama.cpp's gguf-split writes them (GGUF v3, tensors in the order of the file)."""
import os
import struct

U16, I32, STRING, ARRAY = 2, 5, 8, 9
SCALAR_BYTES = {0: 1, 1: 1, U16: 2, 3: 2, 4: 4, I32: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, code):
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize(code)
        return value

    def text(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def skip_value(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            kind, n = self.number("I"), self.number("Q")
            for _ in range(n):
                self.skip_value(kind)
        else:
            self.at += SCALAR_BYTES[kind]


def read(data):
    """@return (number of keys, their bytes, [(name, dims, type, bytes)])"""
    r = Reader(data)
    r.at = 8
    n_tensors, n_keys = r.number("Q"), r.number("Q")
    begin = r.at
    for _ in range(n_keys):
        r.text()
        r.skip_value(r.number("I"))
    keys = data[begin:r.at]
    tensors = []
    for _ in range(n_tensors):
        name, n_dims = r.text(), r.number("I")
        dims = [r.number("Q") for _ in range(n_dims)]
        tensors.append((name, dims, r.number("I"), r.number("Q")))
    start = -(-r.at // 32) * 32
    ends = sorted([t[3] for t in tensors] + [len(data) - start])
    return n_keys, keys, [(name, dims, kind, data[start + at:start + ends[ends.index(at) + 1]])
                          for name, dims, kind, at in tensors]


def key(name, kind, code, value):
    return struct.pack("<Q", len(name)) + name + struct.pack("<I" + code, kind, value)


def split(path, n):
    """@return paths of the n parts, beside the file; the first has no tensors"""
    with open(path, "rb") as f:
        n_keys, keys, tensors = read(f.read())
    per_part = -(-len(tensors) // (n - 1))
    paths = []
    for i in range(n):
        mine = tensors[(i - 1) * per_part:i * per_part] if i > 0 else []
        head = b"GGUF" + struct.pack("<IQQ", 3, len(mine), 3 + (n_keys if i == 0 else 0))
        head += keys if i == 0 else b""
        head += key(b"split.no", U16, "H", i) + key(b"split.count", U16, "H", n)
        head += key(b"split.tensors.count", I32, "i", len(tensors))
        body = b""
        for name, dims, kind, data in mine:
            head += struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
            head += struct.pack("<IQ", kind, len(body))
            body += data + bytes(-len(data) % 32)
        paths.append(f"{os.path.splitext(path)[0]}-{i + 1:05d}-of-{n:05d}.gguf")
        with open(paths[-1], "wb") as f:
            f.write(head + bytes(-len(head) % 32) + body)
    return paths
