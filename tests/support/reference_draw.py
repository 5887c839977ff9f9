# SPDX-License-Identifier: Apache-2.0
"""Draws one token from a row of logits, written from the published formulas and not from Baton's code: the reference of
tests of sampling from outside.

Philox 4x32-10: Salmon et al., SC 2011. Weights, order of steps: docs/SAMPLING.md. no_repeat_ngram_size, typical_p: as
NoRepeatNGramLogitsProcessor and TypicalLogitsWarper of Hugging Face transformers; top_p decay: computeToppDecay of
TensorRT-LLM; DRY, XTC, top_n_sigma: the papers and texts that docs/SAMPLING.md names; presence and frequency penalty:
OpenAI's and TensorRT-LLM's documentation.
"""
import math
import struct

ONE = 2.0 ** 39


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def philox(seed, position, stream):
    """53 random bits as a number from 0 to 1."""
    key = [seed & 0xFFFFFFFF, seed >> 32]
    c = [position & 0xFFFFFFFF, position >> 32, stream, 0]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ key[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ key[1], p0 & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return ((c[0] << 32 | c[1]) >> 11) << 11


def penalized(logits, tokens, n_prompt, o):
    first = min(o.get("prompt_ignore_length", 0), n_prompt) if o.get("counts_prompt") else n_prompt
    counts = {}
    for i, token in enumerate(tokens):
        counts[token] = counts.get(token, 0) + (1 if i >= first else 0)
    repetition = f32(o.get("repetition_penalty", 1))
    presence, frequency = f32(o.get("presence_penalty", 0)), f32(o.get("frequency_penalty", 0))
    for token, n in counts.items():
        x = logits[token]
        x = f32(x / repetition) if x > 0 else f32(x * repetition)
        if n > 0:
            x = f32(x - f32(presence + f32(frequency * n)))
        logits[token] = x


def dry(logits, tokens, o):
    """For each token: the longest run that ends the tokens and stood before that token already."""
    last_n = o.get("dry_penalty_last_n", -1)
    window = tokens if last_n < 0 else tokens[max(0, len(tokens) - last_n):]
    unbroken = 0
    while unbroken < len(window) and window[-1 - unbroken] not in o["breakers"]:
        unbroken += 1
    longest = {}
    for i in range(1, len(window)):  # window[i] came after window[:i]
        n = 0
        while n < i and n < unbroken and window[i - 1 - n] == window[-1 - n]:
            n += 1
        longest[window[i]] = max(longest.get(window[i], 0), n)
    for token, n in longest.items():
        allowed = o.get("dry_allowed_length", 2)
        if n >= allowed:
            logits[token] = f32(logits[token] - f32(o["dry_multiplier"] * f32(o.get("dry_base", 1.75)) ** (n - allowed)))


def banned(tokens, size):
    before = tokens[len(tokens) - (size - 1):]
    return {tokens[i + size - 1] for i in range(len(tokens) - size + 1) if tokens[i:i + size - 1] == before}


def forced(tokens, n_prompt, o):
    """The token that the thinking budget forces, or None; the thinking part begins with the answer."""
    answer, close = tokens[n_prompt:], o["think_close"]
    if any(answer[i:i + len(close)] == close for i in range(len(answer))):
        return None
    if len(answer) < o["thinking_token_budget"]:
        return None
    n = next(n for n in range(len(close) - 1, -1, -1) if n == 0 or answer[-n:] == close[:n])
    return close[n]


def top_p_of(tokens, n_prompt, o):
    top_p, least = f32(o.get("top_p", 1)), f32(o.get("top_p_min", 1e-6))
    for token in tokens[n_prompt:]:
        top_p = f32(o.get("top_p", 1)) if token == o.get("top_p_reset_ids", -1) else \
            max(f32(top_p * f32(o["top_p_decay"])), least)
    return top_p


def prefix(ids, weights, share):
    """As many of the ids as reach this share of the weights."""
    need, total, kept = max(1, int(share * sum(weights.values()))), 0, []
    for i in ids:
        kept.append(i)
        total += weights[i]
        if total >= need:
            break
    return kept


def draw(row, tokens, n_prompt, seed, o):
    """@param row  the model's logits behind `tokens`, prompt and answer so far; o: fields of the request"""
    logits = [f32(x + f32(b)) for x, b in zip(row, o["embedding_bias"])] if "embedding_bias" in o else list(row)
    if "thinking_token_budget" in o and forced(tokens, n_prompt, o) is not None:
        return forced(tokens, n_prompt, o)
    if any(name in o for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")):
        penalized(logits, tokens, n_prompt, o)
    if o.get("dry_multiplier", 0) > 0:
        dry(logits, tokens, o)
    if "allowed_token_ids" in o:
        logits = [x if i in o["allowed_token_ids"] else -math.inf for i, x in enumerate(logits)]
    for i in banned(tokens, o["no_repeat_ngram_size"]) if o.get("no_repeat_ngram_size", 0) else ():
        logits[i] = -math.inf
    best = max(logits)
    if best == -math.inf:
        return min(o["allowed_token_ids"])
    temperature = f32(o.get("temperature", 1))
    if temperature == 0:
        return logits.index(best)
    weights = {i: round(math.exp((x - best) / temperature) * ONE) for i, x in enumerate(logits) if x > -math.inf}
    least = max(1, int(f32(o.get("min_p", 0)) * ONE))
    weights = {i: w for i, w in weights.items() if w >= least}
    if o.get("top_n_sigma", 0) > 0:
        finite = [x for x in logits if x > -math.inf]
        mean = sum(finite) / len(finite)
        sigma = math.sqrt(sum((x - mean) ** 2 for x in finite) / len(finite))
        weights = {i: w for i, w in weights.items() if logits[i] >= best - f32(o["top_n_sigma"]) * sigma}
    order = sorted(weights, key=lambda i: (-logits[i], i))
    if o.get("top_k", 0) > 0:
        order = order[:o["top_k"]]
    weights = {i: weights[i] for i in order}
    if 0 < o.get("typical_p", 1) < 1:
        total = sum(weights.values())
        entropy = -sum(w / total * math.log(w / total) for w in weights.values())
        near = sorted(weights, key=lambda i: (abs(-math.log(weights[i] / total) - entropy), i))
        weights = {i: weights[i] for i in prefix(near, weights, f32(o["typical_p"]))}
        order = [i for i in order if i in weights]
    top_p = top_p_of(tokens, n_prompt, o) if o.get("top_p_decay", 1) < 1 else f32(o.get("top_p", 1))
    if top_p < 1:
        order = prefix(order, weights, top_p)
        weights = {i: weights[i] for i in order}
    if philox(seed, len(tokens), 1) / 2 ** 64 < o.get("xtc_probability", 0):
        least = f32(o.get("xtc_threshold", 0.1)) * sum(weights.values())
        top = [i for i in order if weights[i] >= least]
        weights = {i: w for i, w in weights.items() if i not in top[:-1]}
    goal = philox(seed, len(tokens), 0) * sum(weights.values()) >> 64
    total = 0
    for i in sorted(weights):
        total += weights[i]
        if total > goal:
            return i
    raise AssertionError("no token has a weight")
