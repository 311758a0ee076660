"""OpenAI's client, and what wraps it, against a server of a model that embeds texts: PORT is the first argument, which of them
the second."""

import os
import sys

import openai

url, which = f"http://127.0.0.1:{sys.argv[1]}/v1", sys.argv[2]
texts = ["hello", "the other"]
client = openai.OpenAI(base_url=url, api_key="any", max_retries=0)
(model,) = [model.id for model in client.models.list().data]
plain = [one.embedding for one in client.embeddings.create(model=model, input=texts, encoding_format="float").data]


def are_alike(vectors):
    for a, b in zip(vectors, plain, strict=True):
        assert len(a) == len(b) > 4
        assert max(abs(x - y) for x, y in zip(a, b, strict=True)) < 1e-6
        assert abs(sum(x * x for x in a) - 1) < 1e-4


def by_openai():
    # this client asks for base64 unless it is told otherwise
    packed = client.embeddings.create(model=model, input=texts)
    assert [one.index for one in packed.data] == [0, 1]
    are_alike([one.embedding for one in packed.data])
    short = client.embeddings.create(model=model, input="hello", dimensions=4)
    assert len(short.data[0].embedding) == 4, short
    try:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])
    except openai.BadRequestError as refused:
        assert "writes none" in refused.body["message"], refused
    else:
        raise AssertionError("a model that embeds wrote a reply")


def by_litellm():
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    asked = {"model": f"openai/{model}", "api_base": url, "api_key": "any", "input": texts}
    are_alike([one["embedding"] for one in litellm.embedding(**asked).data])


def by_langchain():
    from langchain_openai import OpenAIEmbeddings

    asked = {"model": model, "base_url": url, "api_key": "any", "max_retries": 0}
    are_alike(OpenAIEmbeddings(**asked, check_embedding_ctx_length=False).embed_documents(texts))


{"openai": by_openai, "litellm": by_litellm, "langchain_openai": by_langchain}[which]()
print(which, "has its embeddings")
