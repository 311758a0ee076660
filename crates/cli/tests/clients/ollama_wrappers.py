"""Tests libraries that wrap Ollama's API with a server. Arguments: PORT, and the name of the library."""

import sys

from beside import idle
from litellm_replies import check_replies, litellm

port, which = sys.argv[1], sys.argv[2]
assert which == "litellm", which
model = "rooflight-demo"
# litellm sends no Content-Type header
plain = {"api_base": f"http://127.0.0.1:{port}", "model": f"ollama_chat/{model}", "num_retries": 0, "temperature": 0}
story = [{"role": "user", "content": "Tell me a story."}]
asked = {**plain, "messages": story, "max_tokens": 30}

number = {"type": "integer", "minimum": 0, "maximum": 9}
schema = {"type": "object", "properties": {"n": number}, "required": ["n"], "additionalProperties": False}
check_replies(asked, {"name": "n", "schema": schema})

try:
    litellm.completion(**{**asked, "model": "ollama_chat/another"})
except Exception as refused:
    assert "another" in str(refused), refused
else:
    raise AssertionError("another model answered")
idle(port)
print("litellm's ollama_chat is served")
