#!/usr/bin/env python3
"""Perplexity of the held-out texts by quantization type: writes each file with the project's own quantizers, measures it
with `rooflight perplexity` and prints a table. Every matrix has the type, the tied head too. Needs cargo."""
import argparse
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TYPES = ["F16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0", "Q3_K", "Q2_K"]


def measure(rooflight: list[str], file: Path, text: Path, context: int, special: bool) -> float:
    command = [*rooflight, "perplexity", "-m", str(file), "-f", str(text), "-c", str(context)] + ["--special"] * special
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return float(re.search(r"perplexity:?\s+([\d.]+)", done.stdout + done.stderr)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", nargs="?", type=Path, default=ROOT / "training/work/rooflight-demo-5m-f16.gguf", help="F16 file")
    parser.add_argument("--texts", nargs="+", type=Path, help="assets/heldout/*.txt by default")
    parser.add_argument("--work", type=Path, default=ROOT / "training/work", help="where the files go")
    parser.add_argument("--types", nargs="+", default=TYPES)
    parser.add_argument("-c", "--ctx-size", type=int, default=512)
    parser.add_argument("--special", action="store_true", help="read control tokens in the texts as tokens")
    parser.add_argument("--rooflight", help="the program; by default built and run by cargo")
    args = parser.parse_args()
    texts = args.texts or sorted((ROOT / "assets/heldout").glob("*.txt"))
    rooflight = [str(Path(args.rooflight).resolve())] if args.rooflight else ["cargo", "run", "--quiet", "--release", "--bin", "rooflight", "--"]
    quantize = ["cargo", "run", "--quiet", "--release", "-p", "rooflight-gguf", "--example", "quantize", "--"]
    print("| type | MB | " + " | ".join(t.stem for t in texts) + " |\n|---|" + "---:|" * (len(texts) + 1))
    for ty in args.types:
        file = args.work / f"table-{ty.lower()}.gguf"
        subprocess.run([*quantize, str(args.source.resolve()), str(file.resolve()), ty], check=True, cwd=ROOT)
        values = [measure(rooflight, file.resolve(), t.resolve(), args.ctx_size, args.special) for t in texts]
        print(f"| {ty} | {file.stat().st_size / 1e6:.2f} | " + " | ".join(f"{v:.3f}" for v in values) + " |", flush=True)
        file.unlink()


if __name__ == "__main__":
    main()
