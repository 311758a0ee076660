"""OpenAI's and Ollama's clients against a server of a model that embeds texts: PORT is its argument."""

import sys

import openai

client = openai.OpenAI(base_url=f"http://127.0.0.1:{sys.argv[1]}/v1", api_key="any", max_retries=0)
(model,) = [model.id for model in client.models.list().data]
# this client asks for base64 unless it is told otherwise
packed = client.embeddings.create(model=model, input=["hello", "the other"])
plain = client.embeddings.create(model=model, input=["hello", "the other"], encoding_format="float")
for a, b in zip(packed.data, plain.data, strict=True):
    assert a.index == b.index and len(a.embedding) == len(b.embedding) > 4
    assert max(abs(x - y) for x, y in zip(a.embedding, b.embedding, strict=True)) < 1e-6
    assert abs(sum(x * x for x in a.embedding) - 1) < 1e-4
short = client.embeddings.create(model=model, input="hello", dimensions=4)
assert len(short.data[0].embedding) == 4, short
try:
    client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])
except openai.BadRequestError as refused:
    assert "writes none" in refused.body["message"], refused
else:
    raise AssertionError("a model that embeds wrote a reply")
print("openai", openai.__version__, "embeddings are served")
