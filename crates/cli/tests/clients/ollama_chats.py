"""Ollama's own client against a server: PORT is its argument."""

import json
import sys

import ollama
from beside import idle

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

scored = client.chat(**settings, logprobs=True, top_logprobs=2)
assert len(scored.logprobs) == scored.eval_count and all(len(token.top_logprobs) == 2 for token in scored.logprobs), scored
pieces = list(client.chat(**settings, logprobs=True, top_logprobs=2, stream=True))
told = [token.token for piece in pieces for token in piece.logprobs or []]
assert told == [token.token for token in scored.logprobs], told


# calls of a tool, one after another, each with its result
def double(n: int) -> int:
    """Twice a number.

    Args:
        n: The number.
    """
    return 2 * n


talk = [{"role": "user", "content": "Double some numbers."}]
for streams in (False, True, False):
    asked = {"model": model, "messages": talk, "tools": [double], "options": {"num_predict": 300, "temperature": 0}}
    asked["think"] = False
    if streams:
        calls = [call for piece in client.chat(**asked, stream=True) for call in piece.message.tool_calls or []]
    else:
        calls = client.chat(**asked).message.tool_calls or []
    # this API cannot ask for a call: where there is one it is whole
    for call in calls:
        assert call.function.name == "double" and isinstance(call.function.arguments["n"], int), call
    talk.append({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "double", "arguments": {"n": 3}}}]})
    talk.append({"role": "tool", "tool_name": "double", "content": "6"})

# who reads a little and leaves makes room
for _ in range(5):
    stream = client.chat(**{**settings, "options": {"num_predict": 800}}, stream=True)
    next(iter(stream))
    stream.close()
idle(sys.argv[1])

text = client.generate(model=model, prompt="There was once a", raw=True, options={"num_predict": 12})
assert text.response and text.done_reason == "length", text

try:
    client.chat(model="another", messages=story)
except ollama.ResponseError as refused:
    assert refused.status_code == 404 and "another" in refused.error, refused
else:
    raise AssertionError("another model answered")
print("ollama is served")
