"""Ollama's own client against a server: PORT is its argument."""

import json
import sys

import ollama

client = ollama.Client(host=f"http://127.0.0.1:{sys.argv[1]}")
(model,) = [model.model for model in client.list().models]
assert client.show(model).modelinfo["general.architecture"] == "qwen2"
assert [loaded.model for loaded in client.ps().models] == [model]
story = [{"role": "user", "content": "Tell me a story."}]
settings = {"model": model, "messages": story, "options": {"num_predict": 40, "temperature": 0}}

whole = client.chat(**settings)
assert whole.done and whole.eval_count > 0 and whole.message.content, whole
pieces = list(client.chat(**settings, stream=True))
assert "".join(piece.message.content for piece in pieces) == whole.message.content
assert pieces[-1].done and pieces[-1].eval_count == whole.eval_count

schema = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["age"],
    "additionalProperties": False,
}
person = client.chat(model=model, messages=story, format=schema, options={"num_predict": 60})
assert 0 <= json.loads(person.message.content)["age"] <= 99, person

text = client.generate(model=model, prompt="There was once a", raw=True, options={"num_predict": 12})
assert text.response and text.done_reason == "length", text

try:
    client.chat(model="another", messages=story)
except ollama.ResponseError as refused:
    assert refused.status_code == 404 and "another" in refused.error, refused
else:
    raise AssertionError("another model answered")
print("ollama is served")
