"""OpenAI's own client against a server: PORT is its argument."""

import json
import sys

import openai
from beside import full, idle

client = openai.OpenAI(base_url=f"http://127.0.0.1:{sys.argv[1]}/v1", api_key="any", max_retries=0)
(model,) = [model.id for model in client.models.list().data]
assert client.models.retrieve(model).id == model
story = [{"role": "user", "content": "Tell me a story."}]
settings = {"model": model, "messages": story, "max_tokens": 40, "temperature": 0}

whole = client.chat.completions.create(**settings)
text = whole.choices[0].message.content
assert text and whole.usage.completion_tokens > 0, whole

chunks = list(client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True}))
assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason

schema = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["age"],
    "additionalProperties": False,
}
form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
person = client.chat.completions.create(model=model, messages=story, max_tokens=60, response_format=form)
assert 0 <= json.loads(person.choices[0].message.content)["age"] <= 99, person

# calls of a tool, one after another, each with its result
parameters = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"]}
tools = [{"type": "function", "function": {"name": "double", "description": "Twice a number.", "parameters": parameters}}]
talk = [{"role": "user", "content": "Double some numbers."}]
for streams in (False, True, False):
    asked = {"model": model, "messages": talk, "tools": tools, "tool_choice": "required", "parallel_tool_calls": False}
    if streams:
        with client.chat.completions.stream(**asked, max_tokens=80) as stream:
            reply = stream.get_final_completion().choices[0]
    else:
        reply = client.chat.completions.create(**asked, max_tokens=80).choices[0]
    assert reply.finish_reason == "tool_calls", reply
    (call,) = reply.message.tool_calls
    assert call.function.name == "double" and 0 <= json.loads(call.function.arguments)["n"] <= 9, call
    called = {"id": call.id, "type": "function", "function": {"name": "double", "arguments": call.function.arguments}}
    talk.append({"role": "assistant", "content": None, "tool_calls": [called]})
    talk.append({"role": "tool", "tool_call_id": call.id, "content": str(2 * json.loads(call.function.arguments)["n"])})

texts = client.completions.create(model=model, prompt="There was once a", max_tokens=12, n=2, seed=3)
assert len({choice.index for choice in texts.choices}) == 2 and texts.choices[0].text

for wrong, error in [
    ({"model": "another"}, openai.NotFoundError),
    ({"model": model, "extra_body": {"top_k": "many"}}, openai.BadRequestError),
    ({"model": model, "temperature": 7e9, "top_p": 3}, openai.BadRequestError),
]:
    try:
        client.chat.completions.create(messages=story, **wrong)
    except error as refused:
        assert refused.body["message"], refused
    else:
        raise AssertionError(wrong)

# who reads a little and leaves makes room for the next
for _ in range(10):
    stream = client.chat.completions.create(**{**settings, "max_tokens": 500}, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
assert client.chat.completions.create(**settings).choices[0].message.content == text
idle(sys.argv[1])

# a full queue says when to come again, and its client does; without it is told
with full(sys.argv[1], 0.5):
    try:
        client.chat.completions.create(**settings)
    except openai.InternalServerError as busy:
        assert busy.status_code == 503 and int(busy.response.headers["retry-after"]) >= 1, busy
    else:
        raise AssertionError("the queue was full")
    patient = client.with_options(max_retries=5).chat.completions.create(**settings)
assert patient.choices[0].message.content == text
assert patient._request_id.startswith("req_")

# what other servers' clients say by default
extra = {"cache_prompt": True, "samplers": "edskypmxt", "return_progress": True, "n_predict": None, "reasoning_format": "auto"}
extra["chat_template_kwargs"] = {"enable_thinking": False}
usual = list(client.chat.completions.create(**{**settings, "max_tokens": -1}, stream=True, extra_body={**extra, "stop": "."}))
assert any(getattr(chunk, "prompt_progress", None) for chunk in usual), usual[:3]
print("openai", openai.__version__, "is served")
