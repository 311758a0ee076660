"""Hugging Face's library reads the cache that was filled without it: its folder is the argument."""

import sys

import huggingface_hub
from huggingface_hub import hf_hub_download, scan_cache_dir, try_to_load_from_cache

cache = sys.argv[1]
name = {"repo_id": "org/Model-GGUF", "filename": "m-Q4_K_M.gguf", "cache_dir": cache}
path = try_to_load_from_cache(**name)
assert isinstance(path, str), path
assert hf_hub_download(**name, local_files_only=True) == path
assert len(open(path, "rb").read()) == 100_000
report = scan_cache_dir(cache)
assert not report.warnings, report.warnings
(repo,) = report.repos
(revision,) = repo.revisions
assert repo.repo_id == "org/Model-GGUF" and revision.refs == {"main"}, report
assert repo.size_on_disk == 100_000 and [f.file_name for f in revision.files] == ["m-Q4_K_M.gguf"], report
print("huggingface_hub", huggingface_hub.__version__, "reads the same cache")
