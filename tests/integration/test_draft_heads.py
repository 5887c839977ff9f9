# SPDX-License-Identifier: Apache-2.0
"""Draft heads through real processes: EAGLE-3 and multi-token prediction change no byte of an answer, and one that computes
the next token from the target's hidden states alone is right nearly always."""
import concurrent.futures
import json
import os
import random
import struct
import subprocess
import tempfile

import split_model
from harness import BUILD, Cluster, tiny_model, wait_until
from test_speculation import WORDS, ask, ask_all, assert_same, check_counters, fuzzed, start_fails

WIDTH = 288  # of the pairs below, and their vocabulary
FEW = 40


def target(d, **more):
    return tiny_model(d, **dict(dict(layers=3, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=7), **more))


def head(d, **more):
    """An EAGLE-3 head of random weights, with a third of the vocabulary."""
    return tiny_model(d, **dict(dict(architecture="eagle3", layers=1, dim=64, heads=4, kv_heads=2, ffn=96, context=512, seed=8,
                                     tied=True, draft_vocab=96, key=["target_layers=l:0,1,3", "target_hidden_size=u:64"]), **more))


def put(path, tensors):
    """Replaces F32 tensors: by a number in all places, or by {(row, column): number}, the others 0."""
    with open(path, "rb") as f:
        data = bytearray(f.read())
    _, _, all_tensors = split_model.read(bytes(data))
    at = len(data) - sum(-(-len(t[3]) // 32) * 32 for t in all_tensors)
    done = set()
    for name, dims, _, old in all_tensors:
        value = tensors.get(name.decode())
        if value is not None:
            n = len(dims) > 1 and dims[1] or 1
            numbers = [0.0] * (dims[0] * n)
            if isinstance(value, dict):
                for (row, column), number in value.items():
                    numbers[row * dims[0] + column] = number
            else:
                numbers = [float(value)] * len(numbers)
            new = struct.pack(f"<{len(numbers)}f", *numbers)
            data[at:at + len(new)] = new
            done.add(name.decode())
        at += -(-len(old) // 32) * 32
    assert done == set(tensors), set(tensors) - done
    with open(path, "wb") as f:
        f.write(data)
    return path


STORED = {"blk.0.attn_norm": "midlayer.input_layernorm", "blk.0.attn_norm_2": "midlayer.hidden_norm", "fc": "fc",
          "blk.0.attn_q": "midlayer.self_attn.q_proj", "blk.0.attn_k": "midlayer.self_attn.k_proj",
          "blk.0.attn_v": "midlayer.self_attn.v_proj", "blk.0.attn_output": "midlayer.self_attn.o_proj",
          "blk.0.ffn_norm": "midlayer.post_attention_layernorm", "blk.0.ffn_gate": "midlayer.mlp.gate_proj",
          "blk.0.ffn_up": "midlayer.mlp.up_proj", "blk.0.ffn_down": "midlayer.mlp.down_proj", "output_norm": "norm",
          "output": "lm_head"}


def as_folder(path, d, config):
    """The head of head() as its authors publish it: names, halves of heads in place of pairs, distances in place of ids."""
    with open(path, "rb") as f:
        _, _, tensors = split_model.read(f.read())
    header, body = {}, b""
    for name, dims, _, data in tensors:
        name, kind = name.decode(), "F32"
        shape = dims[::-1]
        data = data[:4 * dims[0] * (dims[1] if len(dims) > 1 else 1)] if name != "d2t" else data[:8 * dims[0]]
        if name == "d2t":
            kind, stored = "I64", name
            data = struct.pack(f"<{dims[0]}q", *(v - i for i, v in enumerate(struct.unpack(f"<{dims[0]}q", data))))
        else:
            stored = STORED[name.removesuffix(".weight")] + ".weight"
        if name in ("blk.0.attn_q.weight", "blk.0.attn_k.weight"):
            size, row = 16, 4 * dims[0]  # of a head
            order = [r - r % size + (r % (size // 2)) * 2 + r % size // (size // 2) for r in range(dims[1])]
            data = b"".join(data[r * row:(r + 1) * row] for r in order)
        header[stored] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(os.path.join(d, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)
    with open(os.path.join(d, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    return d


def cycle():
    """@return of each id the one behind it, in one cycle through all of them"""
    order = list(range(WIDTH))
    random.Random(5).shuffle(order)
    return {a: b for a, b in zip(order, order[1:] + order[:1])}


def still(layers):
    """Layers that add nothing to what passes through."""
    return {f"blk.{i}.{name}.weight": 0 for i in range(layers) for name in ("attn_output", "ffn_down")}


def counting_target(d, **more):
    """The residual stream is the token's own unit vector; the most likely token is that behind it in the cycle."""
    path = tiny_model(d, **dict(dict(layers=2, dim=WIDTH, heads=4, kv_heads=1, ffn=32, context=1024, seed=7), **more))
    return put(path, {"token_embd.weight": {(i, i): 1 for i in range(WIDTH)}, "output_norm.weight": 1, **still(2),
                      "output.weight": {(b, a): 0.6 for a, b in cycle().items()}})


def counting_head(d):
    """It reads hidden states alone: their mean, which its feed-forward turns to the token behind, and its own output so on."""
    path = tiny_model(d, architecture="eagle3", layers=1, dim=WIDTH, heads=4, kv_heads=1, ffn=WIDTH, context=512, seed=9, tied=True,
                      key=["target_layers=l:0,1,2", f"target_hidden_size=u:{WIDTH}", "norm_before_residual=b:true"])
    eye = {(i, i): 1 for i in range(WIDTH)}
    return put(path, {"fc.weight": {(i, i + k * WIDTH): 1 / 3 for i in range(WIDTH) for k in range(3)},
                      "blk.0.attn_norm_2.weight": 1, "blk.0.attn_output.weight": 0, "blk.0.ffn_norm.weight": 1, "output_norm.weight": 1,
                      "blk.0.ffn_gate.weight": eye, "blk.0.ffn_up.weight": eye,
                      "blk.0.ffn_down.weight": {(b, a): 4 for a, b in cycle().items()}})


def counting_nextn(d):
    """As counting_head(), of which the matrix behind the norms does all."""
    path = counting_target(d, layers=3, nextn=True)
    return put(path, {"blk.2.nextn.hnorm.weight": 1, "blk.2.attn_output.weight": 0, "blk.2.ffn_down.weight": 0,
                      "blk.2.nextn.eh_proj.weight": {(b, WIDTH + a): 1 for a, b in cycle().items()}})


def drafted(c):
    return tuple(c.total(f"baton_spec_decode_{what}_tokens_total", source="model") for what in ("draft", "accepted"))


def nearly_all_are_right(model, options):
    """The first drafts are of the second token that is drawn: before it the head has no hidden state."""
    bodies = [{"prompt": [i], "max_tokens": 200, "temperature": t, "seed": i, "ignore_eos": True, "return_token_ids": True}
              for i, t in enumerate([0, 0, 0.7, 0])]
    with Cluster(model, worker_args=["--draft", "off"]) as c:
        want = ask_all(c, bodies)
        ids = want[0][0]["token_ids"]
        assert all(cycle()[a] == b for a, b in zip(ids, ids[1:]))
    for path in (dict(prefill=1), dict(prefill=0, decode_args=["--local-prefill"])):
        with Cluster(model, worker_args=[*options, "--draft-corpus", "0", "--draft-tokens", "4"], **path) as c:
            assert_same(want, ask_all(c, bodies), bodies, path)
            n, right = wait_until("drafts are counted", lambda: (found := drafted(c)) and found[0] > 300 and found)
            print(f"    {options[0]} {path}: {n:.0f} drafts, {right:.0f} right", flush=True)
            assert right > 0.9 * n, (n, right)


def test_eagle3_head_that_reads_hidden_states_alone_is_right():
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other:
        nearly_all_are_right(counting_target(d), ["--draft-model", counting_head(other)])


def test_mtp_layer_that_reads_hidden_states_alone_is_right():
    with tempfile.TemporaryDirectory() as d:
        nearly_all_are_right(counting_nextn(d), ["--draft", "mtp"])


def same_bytes(model, options):
    ways = {"drafts where they pay": dict(worker_args=options), "4 drafts": dict(worker_args=[*options, "--draft-tokens", "4"]),
            "16 drafts, local": dict(prefill=0, decode_args=["--local-prefill"], worker_args=[*options, "--draft-tokens", "16"])}
    bodies = fuzzed(FEW, 4)
    with Cluster(model, worker_args=["--draft", "off"]) as c:
        want = ask_all(c, bodies)
    for way, more in ways.items():
        with Cluster(model, **more) as c:
            assert_same(want, ask_all(c, bodies), bodies, way)
            if "pay" not in way:
                wait_until("the head has drafted", lambda: drafted(c)[0] > FEW)


def test_same_bytes_with_an_eagle3_head():
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other:
        same_bytes(target(d), ["--draft-model", head(other)])


def chat(c):
    """Two equal answers at a time, then a turn behind them, whose first hidden state is behind K and V of both.
    @return ids of all answers"""
    body = {"prompt": list(range(40)), "max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    first = ask(c, {**body, "n": 2})
    ids = [choice["token_ids"] for choice in first]
    return ids + [ask(c, {**body, "prompt": [*body["prompt"], *ids[0], 5, 6, 7]})[0]["token_ids"]]


def test_next_turn_of_a_chat_whose_answers_were_equal():
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other:
        model = target(d)
        with Cluster(model, worker_args=["--draft", "off"]) as c:
            want = chat(c)
            assert want[0] == want[1]
        for path in (dict(prefill=1), dict(prefill=0, decode_args=["--local-prefill"])):
            with Cluster(model, worker_args=["--draft-model", head(other), "--draft-corpus", "0", "--draft-tokens", "4"], **path) as c:
                for _ in range(2):
                    assert chat(c) == want, path
                wait_until("the head has drafted", lambda: drafted(c)[0] > 100)


def test_quantized_head_drafts():
    """What ./baton convert makes of a head, whose ids stay as they are."""
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other:
        small = os.path.join(other, "small.gguf")
        subprocess.run([os.path.join(BUILD, "tools/baton-convert"), head(other), small, "--type", "q8_0"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        same_bytes(target(d), ["--draft-model", small])


def test_head_drafts_the_same_from_gguf_and_from_its_authors_folder():
    """AngelSlim's and SafeAILab's form of config.json."""
    config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
              "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": 288,
              "draft_vocab_size": 96, "tie_word_embeddings": False, "torch_dtype": "float32",
              "eagle_aux_hidden_state_layer_ids": [0, 1, 3]}
    bodies = [{"prompt": " ".join(WORDS[i:]), "max_tokens": 80, "temperature": t, "seed": i, "ignore_eos": True,
               "return_token_ids": True, "logprobs": 1} for i, t in enumerate([0, 0.7, 1.3] * 3)]
    seen = []
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other, tempfile.TemporaryDirectory() as folder:
        model, file = target(d), head(other)
        with Cluster(model, worker_args=["--draft", "off"]) as c:
            want = ask_all(c, bodies)
        for one in (file, as_folder(file, folder, config)):
            with Cluster(model, worker_args=["--draft-model", one, "--draft-corpus", "0", "--draft-tokens", "4"]) as c:
                assert_same(want, ask_all(c, bodies, parallel=1), bodies, one)
                # A worker's counters come together, with its next heartbeat.
                wait_until("all tokens are counted", lambda: c.total("baton_worker_generation_tokens_total") == 80 * len(bodies))
                seen.append(drafted(c))
    assert seen[0] == seen[1] and seen[0][0] > 1000, seen


def test_same_bytes_with_mtp():
    with tempfile.TemporaryDirectory() as d:
        same_bytes(target(d, nextn=True), ["--draft", "mtp"])


def test_mtp_layer_is_left_alone_where_it_is_not_asked_for():
    """The other layers' weights depend on their names alone."""
    bodies = fuzzed(8, 6)
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other:
        with Cluster(target(d, layers=2)) as c:
            want = ask_all(c, bodies)
        with Cluster(target(other, nextn=True)) as c:
            assert_same(want, ask_all(c, bodies), bodies, "nextn")


def same_bytes_when_a_decode_worker_dies(model, options):
    bodies = [{"prompt": " ".join(WORDS), "max_tokens": 400, "temperature": t, "seed": i, "ignore_eos": True,
               "return_token_ids": True, "logprobs": 2} for i, t in enumerate([0, 0.7, 1.3] * 4)]
    with Cluster(model, worker_args=["--draft", "off"]) as c:
        want = ask_all(c, bodies)
    with Cluster(model, decode=2, worker_args=[*options, "--draft-tokens", "4", "--simulate-step-us", "4000"]) as c:
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            answers = [pool.submit(ask, c, body) for body in bodies]
            wait_until("tokens come from both", lambda: all(
                c.total("baton_worker_generation_tokens_total", worker=f"decode-{i}") > 50 for i in (0, 1)))
            c.decodes[0].kill()
            assert_same(want, [a.result() for a in answers], bodies, "a worker died")
        wait_until("the head has drafted", lambda: check_counters(c)[0] > 0 and drafted(c)[0] > 0)


def test_same_bytes_with_an_eagle3_head_when_a_decode_worker_dies():
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other:
        same_bytes_when_a_decode_worker_dies(target(d), ["--draft-model", head(other)])


def test_same_bytes_with_mtp_when_a_decode_worker_dies():
    with tempfile.TemporaryDirectory() as d:
        same_bytes_when_a_decode_worker_dies(target(d, nextn=True), ["--draft", "mtp"])


def test_heads_that_cannot_be_are_refused_by_name():
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other:
        model = target(d)
        start_fails(model, ["--draft-model", head(other, key=["target_layers=l:0,1,9", "target_hidden_size=u:64"])], 78,
                    "it reads layer 9 of its target, and the model has 3 layers")
        start_fails(model, ["--draft-model", head(other, key=["target_layers=l:0,1,2", "target_hidden_size=u:96"])], 78,
                    "its target's width is 96, that of the model 64")
        start_fails(model, ["--draft-model", head(other, key=["target_layers=l:0,1,2"])], 78,
                    "key eagle3.target_hidden_size is missing")
        start_fails(model, ["--draft-model", head(other, vocab=320)], 78, "of different ids below 288")
        start_fails(model, ["--draft-model", head(other), "--tp", "2"], 78,
                    "a model over 2 ranks has no draft head; use --draft ngram")
        start_fails(model, ["--draft-model", head(other), "--reduction-parts", "2"], 78,
                    "with --reduction-parts 2 there is no draft head; use --draft ngram")
        start_fails(model, ["--draft", "mtp"], 78, "the file has no layers of multi-token prediction")
        start_fails(model, ["--draft", "mtp", "--draft-model", head(other)], 2, "contradicts --draft mtp")
        start_fails(head(other), [], 78, "this is a draft head (eagle3), not a model: give it to --draft-model")
        assert os.path.exists(model)


def test_heads_of_other_kinds_are_refused_by_name():
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as folder:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=512, seed=7)
        for architecture, name in (("MedusaModel", "Medusa"), ("HydraModel", "Hydra"), ("ReDrafter", "ReDrafter"),
                                   ("MLPSpeculatorPreTrainedModel", "MLP"), ("EagleLlamaForCausalLM", "EAGLE")):
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
                json.dump({"architectures": [architecture]}, f)
            start_fails(model, ["--draft-model", folder], 78, f"{name} heads are not supported; an EAGLE-3 head")
