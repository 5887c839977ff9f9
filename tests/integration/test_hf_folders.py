# SPDX-License-Identifier: Apache-2.0
"""A folder in the layout of the Hugging Face Hub answers as the GGUF file of the same model does."""
import bisect
import json
import math
import os
import shutil
import struct
import subprocess
import tempfile

from harness import BUILD, Cluster, Process, tiny_model

SHAPE = dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=128, vocab=288, context=256, seed=5)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
         "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
BODIES = [{"prompt": "the words and the", "max_tokens": 24, "temperature": 0, "ignore_eos": True, "logprobs": 2},
          {"prompt": [5, 70, 200, 33], "max_tokens": 24, "temperature": 1.5, "seed": 3, "ignore_eos": True}]


class Gguf:
    """Keys, and tensors as (dims, type, bytes). Source: the GGUF specification."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 8
        n_tensors, n_keys = self.take("Q"), self.take("Q")
        self.keys = {}
        for _ in range(n_keys):
            key = self.text()
            self.keys[key] = self.value(self.take("I"))
        described = []
        for _ in range(n_tensors):
            name = self.text()
            dims = [self.take("Q") for _ in range(self.take("I"))]
            described.append((name, dims, self.take("I"), self.take("Q")))
        start = -(-self.at // 32) * 32
        sizes = {0: 4, 1: 2, 30: 2}
        self.tensors = {}
        for name, dims, kind, offset in described:
            n = sizes[kind] * dims[0] * (dims[1] if len(dims) > 1 else 1)
            self.tensors[name] = (dims, kind, self.data[start + offset:start + offset + n])

    def take(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize(code)
        return value

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            of, n = self.take("I"), self.take("Q")
            return [self.value(of) for _ in range(n)]
        return self.take(SCALARS[kind])


def in_halves(data, rows, heads):
    """The rows of each head as the Hub has them: first those of even number, then the others."""
    row, dim = len(data) // rows, rows // heads
    order = [h * dim + i for h in range(heads) for i in [*range(0, dim, 2), *range(1, dim, 2)]]
    return b"".join(data[r * row:(r + 1) * row] for r in order)


E4M3 = [(1 + m / 8) * 2.0 ** (e - 7) if e else m * 2.0 ** -9 for e in range(16) for m in range(8)][:127]


def codes_of(values, scale):
    """The E4M3 codes nearest to values / scale."""
    out = bytearray()
    for value in values:
        size = abs(value) / scale
        i = min(bisect.bisect_left(E4M3, size), len(E4M3) - 1)
        i -= i > 0 and size - E4M3[i - 1] < E4M3[i] - size
        out.append(i | (value < 0) << 7)
    return bytes(out)


def in_e4m3(name, shape, data, block, short):
    """A matrix of F32 as codes and scales of blocks of so many inputs and rows; short: those are powers of two."""
    (rows, columns), (high, wide) = shape, block
    values = struct.unpack(f"<{rows * columns}f", data)
    grid = [[0.0] * -(-columns // wide) for _ in range(-(-rows // high))]
    for i, value in enumerate(values):
        r, c = i // columns // high, i % columns // wide
        grid[r][c] = max(grid[r][c], abs(value) / 448)
    if short:
        grid = [[2.0 ** math.ceil(math.log2(s)) for s in line] for line in grid]
    grid = [struct.unpack(f"<{len(line)}f", struct.pack(f"<{len(line)}f", *line)) for line in grid]
    codes = b"".join(codes_of(values[r * columns + c:r * columns + min(c + wide, columns)], grid[r // high][c // wide])
                     for r in range(rows) for c in range(0, columns, wide))
    yield name, ("F8_E4M3", shape, codes)
    yield name + "_scale_inv", ("F32", [len(grid), len(grid[0])], b"".join(struct.pack(f"<{len(g)}f", *g) for g in grid))


def fp8_folder(path, folder, block, short):
    """The model of a GGUF file of F32 as a folder whose layers' matrices are FP8."""
    folder_of(path, folder, 1)
    tensors = []
    for name, (kind, shape, data) in stored(Gguf(path)):
        is_matrix = name.startswith("model.layers.") and len(shape) == 2
        tensors += in_e4m3(name, shape, data, block, short) if is_matrix else [(name, (kind, shape, data))]
    write_shard(os.path.join(folder, "model.safetensors"), tensors)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config["quantization_config"] = dict(quant_method="fp8", fmt="e4m3", weight_block_size=list(block))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return folder


def read_shard(path):
    with open(path, "rb") as file:
        data = file.read()
    n, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n])
    return {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


def scales_as_powers(folder):
    """FP8 scales that are powers of two become bytes, F8_E8M0."""
    path = os.path.join(folder, "model.safetensors")
    tensors = read_shard(path)
    for name, (_, shape, data) in tensors.items():
        if name.endswith("_scale_inv"):
            scales = struct.unpack(f"<{len(data) // 4}f", data)
            tensors[name] = ("F8_E8M0", shape, bytes(127 + int(math.log2(s)) for s in scales))
    write_shard(path, tensors.items())


def numbers_folder(fp8, folder, block, short):
    """The weights of an FP8 folder as numbers: a code's value times its block's scale, rounded to float32. Of powers of
    two they are bfloat16."""
    shutil.copytree(fp8, folder)
    tensors = read_shard(os.path.join(fp8, "model.safetensors"))
    for name in [n for n in tensors if n.endswith("_scale_inv")]:
        kind, (_, across), data = tensors.pop(name)
        scales = [2.0 ** (b - 127) for b in data] if kind == "F8_E8M0" else struct.unpack(f"<{len(data) // 4}f", data)
        weight = name.removesuffix("_scale_inv")
        _, shape, codes = tensors[weight]
        values = struct.pack(f"<{len(codes)}f", *(
            (-1 if c & 128 else 1) * E4M3[c & 127] * scales[i // shape[1] // block[0] * across + i % shape[1] // block[1]]
            for i, c in enumerate(codes)))
        if short:
            halves = struct.unpack(f"<{len(codes) * 2}H", values)
            assert not any(halves[::2]), name
            values = struct.pack(f"<{len(codes)}H", *halves[1::2])
        tensors[weight] = ("BF16" if short else "F32", shape, values)
    write_shard(os.path.join(folder, "model.safetensors"), tensors.items())
    config_path = os.path.join(folder, "config.json")
    with open(config_path, encoding="utf-8") as file:
        config = json.load(file)
    del config["quantization_config"]
    with open(config_path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return folder


def stored(gguf):
    """Tensors by the Hub's names: (dtype, shape, bytes)."""
    heads = {"attn_q": gguf.keys["llama.attention.head_count"], "attn_k": gguf.keys["llama.attention.head_count_kv"]}
    for name, (dims, kind, data) in gguf.tensors.items():
        *blk, stem, rest = name.split(".")
        if stem in heads:
            data = in_halves(data, dims[1], heads[stem])
        prefix = f"model.layers.{blk[1]}." if blk else ""
        yield f"{prefix}{NAMES[stem]}.{rest}", ({0: "F32", 1: "F16", 30: "BF16"}[kind], dims[::-1], data)


def write_shard(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, (_, _, data) in tensors))


def write_tokenizer(folder, keys):
    tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    added = [{"id": i, "content": t, "special": True} for i, t in enumerate(tokens) if types[i] == 3]
    digits = [{"type": "Digits", "individual_digits": True}]
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump({"added_tokens": added, "normalizer": None,
                   "pre_tokenizer": {"type": "Sequence", "pretokenizers": digits + [
                       {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]},
                   "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)},
                             "merges": [m.split(" ") for m in keys["tokenizer.ggml.merges"]]}}, file)
    assert keys["tokenizer.ggml.pre"] == "smollm", keys["tokenizer.ggml.pre"]


def folder_of(path, folder, n_shards):
    """The model of a GGUF file as a folder of so many shards."""
    gguf = Gguf(path)
    keys, tensors = gguf.keys, list(stored(gguf))
    os.mkdir(folder)
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_act="silu",
                  hidden_size=keys["llama.embedding_length"], num_hidden_layers=keys["llama.block_count"],
                  intermediate_size=keys["llama.feed_forward_length"],
                  num_attention_heads=keys["llama.attention.head_count"],
                  num_key_value_heads=keys["llama.attention.head_count_kv"],
                  max_position_embeddings=keys["llama.context_length"],
                  rms_norm_eps=keys["llama.attention.layer_norm_rms_epsilon"],
                  rope_theta=keys["llama.rope.freq_base"], vocab_size=len(keys["tokenizer.ggml.tokens"]),
                  bos_token_id=keys["tokenizer.ggml.bos_token_id"], eos_token_id=keys["tokenizer.ggml.eos_token_id"],
                  tie_word_embeddings="output.weight" not in gguf.tensors)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(keys["tokenizer.chat_template"])
    write_tokenizer(folder, keys)
    if n_shards == 1:
        write_shard(os.path.join(folder, "model.safetensors"), tensors)
        return folder
    places = {}
    for i in range(n_shards):
        name = f"model-{i + 1:05}-of-{n_shards:05}.safetensors"
        write_shard(os.path.join(folder, name), tensors[i::n_shards])
        places.update({tensor: name for tensor, _ in tensors[i::n_shards]})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"weight_map": places}, file)
    return folder


GPT2 = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "attn_norm": "ln_1", "ffn_norm": "ln_2",
        "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}


def transposed(data, rows):
    """(rows, columns) of four bytes → (columns, rows)"""
    n = len(data) // 4 // rows
    words = struct.unpack(f"<{n * rows}I", data)
    return struct.pack(f"<{n * rows}I", *(words[r * n + c] for c in range(n) for r in range(rows)))


def gpt2_folder(path, folder):
    """GPT-2's matrices are stored as (in, out), so that each is made as the model is loaded."""
    gguf = Gguf(path)
    keys, tensors = gguf.keys, []
    for name, (dims, _, data) in gguf.tensors.items():
        *blk, stem, rest = name.split(".")
        if blk and rest == "weight" and len(dims) == 2:
            data, dims = transposed(data, dims[1]), dims[::-1]
        tensors.append((f"transformer.{f'h.{blk[1]}.' if blk else ''}{GPT2[stem]}.{rest}", ("F32", dims[::-1], data)))
    os.mkdir(folder)
    config = dict(model_type="gpt2", n_embd=keys["gpt2.embedding_length"], n_layer=keys["gpt2.block_count"],
                  n_head=keys["gpt2.attention.head_count"], n_inner=keys["gpt2.feed_forward_length"],
                  n_positions=keys["gpt2.context_length"], vocab_size=len(keys["tokenizer.ggml.tokens"]),
                  bos_token_id=keys["tokenizer.ggml.bos_token_id"], eos_token_id=keys["tokenizer.ggml.eos_token_id"])
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(keys["tokenizer.chat_template"])
    write_tokenizer(folder, keys)
    write_shard(os.path.join(folder, "model.safetensors"), tensors)
    return folder


def model_file(directory, kind, tied):
    path = os.path.join(directory, "tiny.gguf")
    args = [os.path.join(BUILD, "tests/support/baton-tiny-model"), path, *(["--tied"] if tied else [])]
    for name, value in dict(SHAPE, type=kind, embedding_type=kind).items():
        args += ["--" + name.replace("_", "-"), str(value)]
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL)
    return path


def answers(model):
    with Cluster(model) as c:
        found = []
        for body in BODIES:
            status, data = c.post("/v1/completions", body)
            assert status == 200, data
            found.append([(x["text"], x["logprobs"]) for x in data["choices"]])
        status, data = c.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "words"}],
                                                       "max_tokens": 12, "temperature": 0})
        assert status == 200, data
        found.append(data["choices"][0]["message"]["content"])
        c.wait_idle()
        return found


def test_hf_folder_answers_as_its_gguf_file():
    for kind, shards, tied in (("F32", 1, False), ("BF16", 3, True), ("F16", 2, False)):
        with tempfile.TemporaryDirectory() as d:
            path = model_file(d, kind, tied)
            assert answers(folder_of(path, os.path.join(d, "folder"), shards)) == answers(path), kind


def test_fp8_folder_answers_and_converts_as_its_numbers():
    block = (32, 16)
    for short in (False, True):
        with tempfile.TemporaryDirectory() as d:
            path = tiny_model(d, **dict(SHAPE, type="F32", embedding_type="F32"))
            fp8 = fp8_folder(path, os.path.join(d, "fp8"), block, short)
            if short:
                scales_as_powers(fp8)
            plain = numbers_folder(fp8, os.path.join(d, "plain"), block, short)
            want = answers(plain)
            assert answers(fp8) == want, short
            new = os.path.join(d, "new.gguf")
            subprocess.run([os.path.join(BUILD, "tools/baton-convert"), fp8, new, "--type", "same"], check=True,
                           capture_output=True)
            assert answers(new) == want, short
            text = os.path.join(d, "text")
            with open(text, "w", encoding="utf-8") as file:
                file.write("the words and the other words " * 40)
            said = subprocess.run([os.path.join(BUILD, "tools/baton-accuracy"), plain, fp8, "--text", text, "--window", "64"],
                                  check=True, capture_output=True, text=True).stdout
            assert "largest KL     0.000000" in said, said


def test_hf_folder_with_computed_matrices_answers_as_its_gguf_file():
    with tempfile.TemporaryDirectory() as d:
        path = tiny_model(d, **dict(SHAPE, architecture="gpt2", kv_heads=4, tied=True))
        assert answers(gpt2_folder(path, os.path.join(d, "folder"))) == answers(path)


def test_invalid_hf_folder_fails_the_start():
    with tempfile.TemporaryDirectory() as d:
        folder = folder_of(tiny_model(d, **SHAPE), os.path.join(d, "folder"), 2)
        os.unlink(os.path.join(folder, "model-00002-of-00002.safetensors"))
        args = ["--model", folder, "--join", f"ipc://{d}/r.ipc", "--run-dir", d, "--kv-memory", "16m"]
        worker = Process("decode", "decode", args, d)
        worker.popen.wait(60)
        log = worker.log()
        worker.close()
        assert worker.popen.returncode == 78, (worker.popen.returncode, log)
        assert f"model {folder}: the shard model-00002-of-00002.safetensors is missing from the folder" in log, log
