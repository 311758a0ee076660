"""Anthropic's own client against a server: PORT is its argument."""

import json
import sys

import anthropic
from beside import full, idle

client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{sys.argv[1]}", api_key="any", max_retries=0)
story = [{"role": "user", "content": "Tell me a story."}]
settings = {"model": "rooflight-demo", "messages": story, "max_tokens": 40, "extra_body": {"temperature": 0}}

whole = client.messages.create(**settings)
text = whole.content[0].text
assert text and whole.stop_reason in ("end_turn", "max_tokens"), whole
counted = client.messages.count_tokens(model="rooflight-demo", messages=story).input_tokens
assert counted == whole.usage.input_tokens + whole.usage.cache_read_input_tokens

with client.messages.stream(**settings) as stream:
    assert "".join(stream.text_stream) == text
    last = stream.get_final_message()
assert last.stop_reason == whole.stop_reason
assert last.usage.output_tokens == whole.usage.output_tokens

# calls of a tool, one after another, each with its result
schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"]}
tools = [{"name": "double", "description": "Twice a number.", "input_schema": schema}]
talk = [{"role": "user", "content": "Double some numbers."}]
for streams in (False, True, False):
    asked = {"model": "rooflight-demo", "messages": talk, "max_tokens": 80, "tools": tools}
    asked["tool_choice"] = {"type": "any", "disable_parallel_tool_use": True}
    if streams:
        with client.messages.stream(**asked) as stream:
            reply = stream.get_final_message()
    else:
        reply = client.messages.create(**asked)
    assert reply.stop_reason == "tool_use", reply
    (call,) = [block for block in reply.content if block.type == "tool_use"]
    assert call.name == "double" and 0 <= call.input["n"] <= 9, call
    talk.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in reply.content]})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": str(2 * call.input["n"])}
    talk.append({"role": "user", "content": [result]})

# what it says besides where it is told to
extra = {"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {**schema, "additionalProperties": False}}}}
extra["context_management"] = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
formed = client.messages.create(**{**settings, "extra_body": {"temperature": 0, **extra}, "max_tokens": 60})
assert 0 <= json.loads(formed.content[0].text)["n"] <= 9, formed

# who reads a little and leaves makes room
for _ in range(5):
    with client.messages.stream(**{**settings, "max_tokens": 800}) as stream:
        next(iter(stream.text_stream))
idle(sys.argv[1])

with full(sys.argv[1], 0.5):
    try:
        client.messages.create(**settings)
    except anthropic.APIStatusError as busy:
        assert busy.status_code == 503 and busy.body["error"]["type"] == "overloaded_error", busy
    else:
        raise AssertionError("the queue was full")
    patient = client.with_options(max_retries=5).messages.create(**settings)
assert patient.content[0].text == text and patient._request_id.startswith("req_")

try:
    client.messages.create(**{**settings, "model": "another"})
except anthropic.NotFoundError as refused:
    assert "another" in refused.message, refused
else:
    raise AssertionError("another model answered")
print("anthropic", anthropic.__version__, "is served")
