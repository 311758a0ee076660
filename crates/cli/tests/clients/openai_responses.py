"""OpenAI's own client against a server, in the words of its newer API: PORT is its argument."""

import json
import sys

import openai

client = openai.OpenAI(base_url=f"http://127.0.0.1:{sys.argv[1]}/v1", api_key="any", max_retries=0)
(model,) = [model.id for model in client.models.list().data]
asked = {"model": model, "input": "Tell me a story.", "max_output_tokens": 40, "temperature": 0}
whole = client.responses.create(**asked)
assert whole.output_text and whole.usage.output_tokens > 0, whole
assert whole.status in ("completed", "incomplete"), whole

with client.responses.stream(**asked) as stream:
    text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
assert text == whole.output_text, (text, whole.output_text)

# calls of a tool, one after another, each with its result
parameters = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}
tools = [{"type": "function", "name": "double", "parameters": parameters, "strict": True}]
talk = [{"role": "user", "content": "Double some numbers."}]
for streams in (False, True, False):
    call = {"model": model, "input": talk, "tools": tools, "tool_choice": "required", "parallel_tool_calls": False}
    call["max_output_tokens"] = 80
    if streams:
        with client.responses.stream(**call) as stream:
            reply = stream.get_final_response()
    else:
        reply = client.responses.create(**call)
    (called,) = [item for item in reply.output if item.type == "function_call"]
    assert called.name == "double" and 0 <= json.loads(called.arguments)["n"] <= 9, called
    talk.append({"type": "function_call", "call_id": called.call_id, "name": "double", "arguments": called.arguments})
    talk.append({"type": "function_call_output", "call_id": called.call_id, "output": "it is doubled"})

form = {"format": {"type": "json_schema", "name": "person", "schema": parameters, "strict": True}}
person = client.responses.create(model=model, input="A number.", max_output_tokens=60, text=form)
assert 0 <= json.loads(person.output_text)["n"] <= 9, person

scored = client.chat.completions.create(
    model=model, messages=[{"role": "user", "content": "Hello!"}], max_tokens=6, logprobs=True, top_logprobs=2
)
tokens = scored.choices[0].logprobs.content
assert len(tokens) == scored.usage.completion_tokens and all(len(token.top_logprobs) == 2 for token in tokens), scored

try:
    client.responses.create(model=model, input="x", previous_response_id="resp_1")
except openai.BadRequestError as refused:
    assert refused.body["param"] == "previous_response_id", refused
else:
    raise AssertionError("nothing is kept here")
print("openai", openai.__version__, "responses and scores are served")
