#!/usr/bin/env python3
"""Take golden cases into this folder: one JSON file per model, one file of logits per case.

    pip install numpy gguf==0.19.0        # for vocabulary.json only
    take.py SHARED [NAME ...]             # SHARED: the folder with golden/archs; NAMEs: models, else those that are here

A model's file is the recipe of it (`arch`, `kv`, `tensors`, `emb`) and its `cases`: prompt, greedy ids, the file's SHA-256
and a bound where the other program is less exact. Of the logits the last ROWS positions are kept, as little-endian f32.
"""
import json, pathlib, sys

HERE, ROWS = pathlib.Path(__file__).resolve().parent, 4
shared = pathlib.Path(sys.argv[1]).resolve()
archs = shared / "golden/archs"
models, index = (json.loads((archs / f).read_text()) for f in ("models.json", "index.json"))
names = sys.argv[2:] or sorted(p.stem for p in HERE.glob("*.json") if p.stem != "vocabulary")


def lines(pairs):
    return "{\n    " + ",\n    ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in pairs) + "\n  }"


for name in names:
    m, cases = models[name], []
    for case, e in index.items():
        if e.get("model_name", case) == name:
            row = e["n_vocab"] * 4
            (HERE / f"{case}.f32").write_bytes((archs / e["file"]).read_bytes()[-ROWS * row:])
            cases.append((case, {k: e[k] for k in ("seed", "sha256", "nmse", "tokens", "greedy") if k in e}))
    head = "".join(f'  "{k}": {json.dumps(m[k])},\n' for k in ("arch", "emb") if k in m)
    text = f'{{\n{head}  "cases": {lines(cases)},\n  "kv": {lines(m["kv"].items())},\n'
    (HERE / f"{name}.json").write_text(text + f'  "tensors": {lines(m["tensors"].items())}\n}}\n')

vocabulary = HERE / "vocabulary.json"
if not vocabulary.exists():
    sys.path.insert(0, str(shared / "models"))
    sys.dont_write_bytecode = True
    import gguf, make_model
    w = gguf.GGUFWriter(None, "any")
    w.kv_data[0].clear()
    make_model.copy_tokenizer(w, shared / "models/vocab/ggml-vocab-qwen2.gguf", 512)
    kind = lambda v: v.type.name if v.sub_type is None else f"ARRAY:{v.sub_type.name}"
    array = lambda v: "STRING" if isinstance(v[0], str) else "INT32"
    full = lambda v: f"ARRAY:{array(v.value)}" if v.type.name == "ARRAY" and v.sub_type is None else kind(v)
    pairs = [(k, [full(v), v.value]) for k, v in w.kv_data[0].items()]
    vocabulary.write_text("{\n  " + ",\n  ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in pairs) + "\n}\n")
