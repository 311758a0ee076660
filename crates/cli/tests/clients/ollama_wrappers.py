"""Tests libraries that wrap Ollama's API with a server. Arguments: PORT, and the name of the library."""

import json
import os
import sys

from beside import idle

port, which = sys.argv[1], sys.argv[2]
assert which == "litellm", which
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

model = "rooflight-demo"
# litellm sends no Content-Type header
plain = {"api_base": f"http://127.0.0.1:{port}", "model": f"ollama_chat/{model}", "num_retries": 0, "temperature": 0}
story = [{"role": "user", "content": "Tell me a story."}]
asked = {**plain, "messages": story, "max_tokens": 30}

whole = litellm.completion(**asked)
text = whole.choices[0].message.content
assert text and whole.usage.completion_tokens > 0, whole
pieces = litellm.completion(**asked, stream=True)
assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == text

number = {"type": "integer", "minimum": 0, "maximum": 9}
schema = {"type": "object", "properties": {"n": number}, "required": ["n"], "additionalProperties": False}
form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
person = litellm.completion(**asked, response_format=form)
assert 0 <= json.loads(person.choices[0].message.content)["n"] <= 9, person

try:
    litellm.completion(**{**asked, "model": "ollama_chat/another"})
except Exception as refused:
    assert "another" in str(refused), refused
else:
    raise AssertionError("another model answered")
idle(port)
print("litellm's ollama_chat is served")
