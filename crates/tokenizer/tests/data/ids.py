#!/usr/bin/env python3
"""Writes ids.json: made-up texts, and for each vocabulary the digests of the ids that llama.cpp gives them.

    pip install xllamacpp llama-cpp-py-sync regex; ./ids.py FOLDER/*.gguf > ids.json

The library is that of the one package, its declarations are those of the other. Control tokens are not read from text.
"""
import glob, hashlib, itertools, json, os, sys

import llama_cpp_py_sync._cffi_bindings as declarations
import xllamacpp

import splits

TEXTS = 400


def main(paths):
    ffi = declarations.ffi
    library = ffi.dlopen(glob.glob(os.path.dirname(xllamacpp.__file__) + "/*.so")[0])
    library.llama_backend_init()
    # Blocks that the test of splits does not take by itself.
    texts = list(itertools.islice(splits.texts(1000), TEXTS))
    files = {}
    for path in sorted(paths):
        params = library.llama_model_default_params()
        params.vocab_only = True
        model = library.llama_model_load_from_file(path.encode(), params)
        assert model != ffi.NULL, path
        vocab = library.llama_model_get_vocab(model)
        digests = []
        for text in texts:
            text = text.encode()
            room = len(text) + 16
            ids = ffi.new("llama_token[]", room)
            n = library.llama_tokenize(vocab, text, len(text), ids, room, False, False)
            assert n >= 0
            written = " ".join(str(ids[i]) for i in range(n))
            digests.append(hashlib.sha256(written.encode()).hexdigest()[:8])
        files[os.path.basename(path)] = digests
        library.llama_model_free(model)
    json.dump({"texts": texts, "files": files}, sys.stdout, ensure_ascii=True)
    print()


main(sys.argv[1:])
