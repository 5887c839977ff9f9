# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters for tests: PEFT folders and GGUF files with random matrices, and a model with an adapter merged into its
weights, all from the formats' descriptions alone, for what Baton computes to be compared with."""
import array
import json
import os
import random
import struct

# Module of a Hugging Face llama, tensor of GGUF, and how many inputs and outputs it has by the model's sizes.
MODULES = {
    "self_attn.q_proj": ("attn_q", "dim", "dim"),
    "self_attn.k_proj": ("attn_k", "dim", "kv"),
    "self_attn.v_proj": ("attn_v", "dim", "kv"),
    "self_attn.o_proj": ("attn_output", "dim", "dim"),
    "mlp.gate_proj": ("ffn_gate", "dim", "ffn"),
    "mlp.up_proj": ("ffn_up", "dim", "ffn"),
    "mlp.down_proj": ("ffn_down", "ffn", "dim"),
}
ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")


def f32(values):
    return array.array("f", values).tobytes()


def safetensors(path, tensors):
    """tensors: {name: (shape, floats)}"""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        raw = f32(values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


class Adapter:
    """Random matrices for some modules of each layer of a llama with these sizes, or of a model whose query and key rows
    are as in Hugging Face's files (turns=False)."""

    def __init__(self, rank, seed, shape, modules=tuple(MODULES), alpha=None, size=0.4, turns=True):
        self.turns = turns
        self.rank, self.modules, self.shape = rank, modules, shape
        self.alpha = 2 * rank if alpha is None else alpha
        sizes = {"dim": shape["dim"], "ffn": shape["ffn"], "kv": shape["dim"] // shape["heads"] * shape["kv_heads"]}
        rng = random.Random(seed)
        self.parts = {}  # (layer, module): ((rank, n_in) values, (n_out, rank) values, n_in, n_out)
        for layer in range(shape["layers"]):
            for module in modules:
                _, n_in, n_out = MODULES[module]
                n_in, n_out = sizes[n_in], sizes[n_out]
                # Numbers that float32 has exactly.
                a = [rng.randrange(-1024, 1025) / 1024 * size / 4 for _ in range(rank * n_in)]
                b = [rng.randrange(-1024, 1025) / 1024 * size for _ in range(n_out * rank)]
                self.parts[layer, module] = (a, b, n_in, n_out)

    def peft(self, folder, **settings):
        os.makedirs(folder, exist_ok=True)
        config = dict({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": self.rank, "lora_alpha": self.alpha, "bias": "none",
                       "target_modules": [m.split(".")[1] for m in self.modules], "use_dora": False, "use_rslora": False,
                       "modules_to_save": None, "lora_dropout": 0.05, "fan_in_fan_out": False, "init_lora_weights": True,
                       "base_model_name_or_path": "tiny", "rank_pattern": {}, "alpha_pattern": {}}, **settings)
        with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        tensors = {}
        for (layer, module), (a, b, n_in, n_out) in self.parts.items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            tensors[name + ".lora_A.weight"] = ((self.rank, n_in), a)
            tensors[name + ".lora_B.weight"] = ((n_out, self.rank), b)
        safetensors(os.path.join(folder, "adapter_model.safetensors"), tensors)
        return folder

    def rows(self, module, values, width):
        """Rows in GGUF's order: of a llama's query and key heads the halves of rotary pairs are interleaved."""
        heads = {"self_attn.q_proj": self.shape["heads"], "self_attn.k_proj": self.shape["kv_heads"]}.get(module)
        rows = [values[i * width:(i + 1) * width] for i in range(len(values) // width)]
        if heads is None or not self.turns:
            return rows
        dim = len(rows) // heads
        return [rows[h * dim + half * (dim // 2) + i] for h in range(heads) for i in range(dim // 2) for half in (0, 1)]

    def gguf(self, path, **keys):
        """As convert_lora_to_gguf.py of llama.cpp writes it."""
        def text(s):
            return struct.pack("<Q", len(s)) + s.encode()

        values = dict({"general.type": "adapter", "adapter.type": "lora", "general.architecture": "llama",
                       "adapter.lora.alpha": float(self.alpha)}, **keys)
        tensors = []
        for (layer, module), (a, b, n_in, n_out) in self.parts.items():
            name = f"blk.{layer}.{MODULES[module][0]}.weight"
            tensors.append((name + ".lora_a", (n_in, self.rank), f32(a)))
            ordered = [v for row in self.rows(module, b, self.rank) for v in row]
            tensors.append((name + ".lora_b", (self.rank, n_out), f32(ordered)))
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
        for key, value in values.items():
            head += text(key)
            head += struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<I", 8) + text(value)
        at, data = 0, b""
        for name, dims, raw in tensors:
            head += text(name) + struct.pack("<I", 2) + struct.pack("<QQ", *dims) + struct.pack("<IQ", 0, at)
            padded = raw + b"\0" * (-len(raw) % 32)
            data += padded
            at += len(padded)
        with open(path, "wb") as f:
            f.write(head + b"\0" * (-len(head) % 32) + data)
        return path

    def merge(self, model, path):
        """Writes the model, whose matrices are F32, with W + alpha / rank * B A in place of each W."""
        with open(model, "rb") as f:
            data = bytearray(f.read())
        places = tensor_places(data)
        scale = self.alpha / self.rank
        for (layer, module), (a, b, n_in, n_out) in self.parts.items():
            at = places[f"blk.{layer}.{MODULES[module][0]}.weight"]
            w = array.array("f", bytes(data[at:at + 4 * n_in * n_out]))
            for o, row in enumerate(self.rows(module, b, self.rank)):
                for j, factor in enumerate(row):
                    for k in range(n_in):
                        w[o * n_in + k] += scale * factor * a[j * n_in + k]
            data[at:at + 4 * n_in * n_out] = w.tobytes()
        with open(path, "wb") as f:
            f.write(data)
        return path


def read_head(data):
    """@return ({name: (kind, offset in the file)}, {key: value} of numbers and texts) of a GGUF file"""
    at = 8
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def number(fmt):
        nonlocal at
        value, = struct.unpack_from("<" + fmt, data, at)
        at += struct.calcsize("<" + fmt)
        return value

    def text():
        nonlocal at
        n = number("Q")
        at += n
        return bytes(data[at - n:at]).decode(errors="replace")

    def value(kind):
        nonlocal at
        if kind == 8:
            return text()
        if kind == 9:
            kind, n = number("I"), number("Q")
            for _ in range(n):
                value(kind)
            return None
        at += sizes[kind]
        return int.from_bytes(data[at - sizes[kind]:at], "little")

    n_tensors, n_keys = number("Q"), number("Q")
    keys = {}
    for _ in range(n_keys):
        key = text()
        keys[key] = value(number("I"))
    places = {}
    for _ in range(n_tensors):
        name = text()
        for _ in range(number("I")):
            number("Q")
        kind, offset = number("I"), number("Q")
        places[name] = (kind, offset)
    start = at + -at % 32
    return {name: (kind, start + offset) for name, (kind, offset) in places.items()}, keys


def tensor_places(data):
    """@return {name: offset in the file} of a GGUF file's F32 tensors"""
    return {name: at for name, (kind, at) in read_head(data)[0].items() if kind == 0}


def model_shape(path):
    """@return sizes of a model of the llama family: layers, dim, ffn, kv (width of keys)"""
    with open(path, "rb") as f:
        _, keys = read_head(f.read())
    get = {name: keys["llama." + name] for name in ("block_count", "embedding_length", "feed_forward_length",
                                                     "attention.head_count", "attention.head_count_kv")}
    dim = get["embedding_length"]
    return {"layers": get["block_count"], "dim": dim, "ffn": get["feed_forward_length"],
            "kv": dim // get["attention.head_count"] * get["attention.head_count_kv"]}
