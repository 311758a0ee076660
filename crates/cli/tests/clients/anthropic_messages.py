"""Anthropic's own client against a server: PORT is its argument."""

import sys

import anthropic

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

try:
    client.messages.create(**{**settings, "model": "another"})
except anthropic.NotFoundError as refused:
    assert "another" in refused.message, refused
else:
    raise AssertionError("another model answered")
print("anthropic", anthropic.__version__, "is served")
