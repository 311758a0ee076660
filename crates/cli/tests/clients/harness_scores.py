"""Has lm-evaluation-harness score a local task of ten questions, with a local tokenizer, through a server's /v1/completions.

    python3 harness_scores.py PORT lm_eval MODEL.gguf

Its scores must equal the log probabilities of replies that are forced to give the same answers, token by token.
"""

import json
import os
import pathlib
import struct
import sys
import tempfile
import urllib.request

PORT, _, MODEL = sys.argv[1:4]
BASE = f"http://127.0.0.1:{PORT}"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="harness-"))
for name, value in {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HOME": str(FOLDER / "home"),
    "TOKENIZERS_PARALLELISM": "false",
}.items():
    os.environ[name] = value

QUESTIONS = [
    ("The light is", ["on", "off", "a thing"]),
    ("One and one is", ["two", "three"]),
    ("It is the end of the", ["day", "thing", "light"]),
    ("Hello", ["there", "light"]),
    ("The sea is", ["blue", "green", "on"]),
    ("Turn the light", ["on", "off"]),
    ("A cat is", ["an animal", "a thing"]),
    ("The sun", ["shines", "is dark"]),
    ("Water is", ["wet", "dry", "there"]),
    ("Who are", ["you", "it"]),
]


def post(path, body):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(BASE + path, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))


def metadata(path):
    """Returns the metadata of a GGUF file."""
    file = open(path, "rb")
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def number(kind):
        return struct.unpack("<" + kind, file.read(struct.calcsize("<" + kind)))[0]

    def text():
        return file.read(number("Q")).decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            kind, n = number("I"), number("Q")
            return [value(kind) for _ in range(n)]
        return number(sizes[kind])

    assert file.read(4) == b"GGUF"
    number("I"), number("Q")
    return {text(): value(number("I")) for _ in range(number("Q"))}


def local_tokenizer():
    """Returns a tokenizer with the vocabulary of the model's file, saved in a folder that transformers reads."""
    import tokenizers
    import transformers

    known = metadata(MODEL)
    tokens = known["tokenizer.ggml.tokens"]
    types = known.get("tokenizer.ggml.token_type", [1] * len(tokens))
    merges = [tuple(pair.split(" ", 1)) for pair in known["tokenizer.ggml.merges"]]
    vocab = {token: i for i, token in enumerate(tokens)}
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges))
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, types) if kind == 3]
    bpe.add_special_tokens(special)
    end = tokens[known["tokenizer.ggml.eos_token_id"]]
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=end)
    fast.save_pretrained(FOLDER / "tokenizer")
    return fast


def forced(prompt, answer):
    """Returns the log probability of `answer` after `prompt`, from replies that are forced to give its tokens."""
    total = 0.0
    for i, token in enumerate(answer):
        body = {"prompt": prompt + answer[:i], "max_tokens": 1, "logprobs": 0, "logit_bias": {str(token): 1000}}
        reply = post("/v1/completions", body)
        total += reply["choices"][0]["logprobs"]["token_logprobs"][0]
    return total


def main():
    import lm_eval
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    tokenizer = local_tokenizer()
    items = FOLDER / "items.jsonl"
    lines = [json.dumps({"q": q, "choices": c, "answer": i % len(c)}) for i, (q, c) in enumerate(QUESTIONS)]
    items.write_text("\n".join(lines) + "\n")
    task = {
        "task": "local_questions",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(items)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{q}}",
        "doc_to_target": "answer",
        "doc_to_choice": "choices",
        "metric_list": [{"metric": "acc"}],
    }
    model = LocalCompletionsAPI(
        model="rooflight-demo",
        base_url=BASE + "/v1/completions",
        tokenizer=str(FOLDER / "tokenizer"),
        max_length=512,
        num_concurrent=1,
    )
    result = lm_eval.simple_evaluate(model=model, tasks=[task], log_samples=True, bootstrap_iters=0)
    samples = sorted(result["samples"]["local_questions"], key=lambda sample: sample["doc_id"])
    assert len(samples) == len(QUESTIONS), len(samples)
    right = 0
    for i, (sample, (question, choices)) in enumerate(zip(samples, QUESTIONS)):
        prompt = tokenizer.encode(question)
        served = post("/tokenize", {"content": question, "parse_special": False})["tokens"]
        assert prompt == served, f"{question!r}: {prompt}, and {served} by the server"
        found = [float(response[0]) for response in sample["filtered_resps"]]
        want = [forced(prompt, tokenizer.encode(question + " " + choice)[len(prompt):]) for choice in choices]
        assert len(found) == len(want), sample
        for a, b in zip(found, want):
            assert abs(a - b) < 1e-2, f"{question!r}: {found} by the harness, {want} by replies"
        right += want.index(max(want)) == i % len(choices)
    accuracy = result["results"]["local_questions"]["acc,none"]
    assert abs(accuracy - right / len(QUESTIONS)) < 1e-9, (accuracy, right)
    print(f"lm_eval {lm_eval.__version__}: {len(samples)} questions, {right} answered right, as replies have it")


main()
