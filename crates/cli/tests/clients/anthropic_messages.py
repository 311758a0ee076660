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

try:
    client.messages.create(**{**settings, "model": "another"})
except anthropic.NotFoundError as refused:
    assert "another" in refused.message, refused
else:
    raise AssertionError("another model answered")
print("anthropic", anthropic.__version__, "is served")
