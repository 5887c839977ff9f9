# SPDX-License-Identifier: Apache-2.0
"""What is asked, and when: arrivals, lengths and prompts, all drawn from one seed.

Times, lengths and texts have random numbers of their own, so that another rate
asks the same prompts, and another length comes at the same times.
"""
import json
import random

from words import Trouble

ARRIVALS = ("constant", "poisson", "bursts")
# Short and common, so that most vocabularies have each as one token.
WORDS = ("time year people way day man thing woman life child world school state family student group country "
         "problem hand part place case week company system program question work government number night point "
         "home water room mother area money story fact month lot right study book eye job word business issue side "
         "kind head house service friend father power hour game line end member law car city name team minute idea "
         "body back parent face level office door health person art war history party result change morning "
         "reason research girl guy moment air teacher force").split()
FIRST_ID, N_IDS = 40, 200  # in nearly every vocabulary, behind the special ones
TEXT_KEYS = ("prompt", "text", "question", "input", "instruction")
LENGTH_KEYS = ("output_tokens", "max_tokens", "output_len", "output_length")


class Length:
    """"128": always; "128:16": normally distributed with that deviation, never below 1."""

    def __init__(self, text):
        mean, colon, deviation = text.partition(":")
        self.mean = int(mean)
        self.deviation = float(deviation) if colon else 0.0
        if self.mean < 1 or not 0 <= self.deviation < float("inf"):
            raise ValueError(text)

    def draw(self, chance):
        if self.deviation == 0:
            return self.mean
        return max(1, round(chance.gauss(self.mean, self.deviation)))

    def __str__(self):
        return f"{self.mean}" + (f" (deviation {self.deviation:g})" if self.deviation else "")


Length.__name__ = "length, N or MEAN:DEVIATION,"


def arrival_times(kind, rate, burst, chance):
    """Seconds from the start, without end."""
    at, n = 0.0, 0
    while True:
        if kind == "constant":
            yield n / rate
        elif kind == "poisson":
            at += chance.expovariate(rate)
            yield at
        else:
            yield (n // burst) * burst / rate
        n += 1


def text_of(record):
    """@return (prompt text or messages, or None; output length or None) of a line of a data set"""
    if isinstance(record, str):
        return record, None
    if not isinstance(record, dict):
        return None, None
    length = next((record[key] for key in LENGTH_KEYS
                   if isinstance(record.get(key), int) and not isinstance(record[key], bool) and record[key] > 0), None)
    if isinstance(record.get("messages"), list) and record["messages"]:
        return record["messages"], length
    turns = record.get("conversations")
    if isinstance(turns, list) and turns and isinstance(turns[0], dict) and isinstance(turns[0].get("value"), str):
        return turns[0]["value"], length
    return next((record[key] for key in TEXT_KEYS if isinstance(record.get(key), str) and record[key]), None), length


def read_dataset(path):
    """@return [(text or messages, output length or None)]"""
    found = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except ValueError as error:
                    raise Trouble(f"{path}:{number}: no JSON: {error}") from None
                text, length = text_of(record)
                if text is None:
                    raise Trouble(f"{path}:{number}: has none of {', '.join(TEXT_KEYS)}, messages, conversations")
                found.append((text, length))
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble(f"cannot read {path}: {error}") from None
    if not found:
        raise Trouble(f"{path} has no line")
    return found


class Prompts:
    """Bodies of requests, one after the other."""

    def __init__(self, options, model):
        self.options, self.model = options, model
        self.lengths = random.Random(f"{options.seed} lengths")
        self.texts = random.Random(f"{options.seed} texts")
        self.dataset = read_dataset(options.dataset) if options.dataset else None
        if self.dataset and options.shuffle:
            random.Random(f"{options.seed} order").shuffle(self.dataset)
        if self.dataset and not options.chat and any(not isinstance(text, str) for text, _ in self.dataset):
            raise Trouble(f"{options.dataset} has messages: they need --chat")
        self.n = 0

    def next_text(self):
        """@return (text, messages or ids; output length)"""
        if self.dataset:
            text, length = self.dataset[self.n % len(self.dataset)]
            return text, length or self.options.output_tokens.draw(self.lengths)
        n = self.options.prompt_tokens.draw(self.lengths)
        output = self.options.output_tokens.draw(self.lengths)
        if self.options.prompt_ids:
            return [FIRST_ID + self.texts.randrange(N_IDS) for _ in range(n)], output
        return " ".join(self.texts.choices(WORDS, k=n)), output

    def next_body(self):
        options = self.options
        text, length = self.next_text()
        self.n += 1
        body = {"model": self.model, "stream": True, "max_tokens": length}
        if options.chat:
            body["messages"] = text if isinstance(text, list) else [{"role": "user", "content": text}]
        else:
            body["prompt"] = text
        if not options.no_usage:
            body["stream_options"] = {"include_usage": True}
        if options.ignore_eos:
            body["ignore_eos"] = True
        if options.temperature is not None:
            body["temperature"] = options.temperature
        body.update(options.extra)
        return json.dumps(body).encode()
