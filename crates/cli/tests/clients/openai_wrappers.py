"""Libraries that wrap OpenAI's client against a server: PORT is the first argument, which of them the second."""

import json
import sys

from beside import idle

port, which = sys.argv[1], sys.argv[2]
url, model = f"http://127.0.0.1:{port}/v1", "rooflight-demo"
story = [{"role": "user", "content": "Tell me a story."}]
number = {"type": "integer", "minimum": 0, "maximum": 9}
parameters = {"type": "object", "properties": {"n": number}, "required": ["n"], "additionalProperties": False}


def refused(call, *errors):
    """That a call raises one of these; what it raised."""
    try:
        call()
    except errors as error:
        return error
    raise AssertionError("it was not refused")


def by_litellm():
    from litellm_replies import check_replies, litellm

    plain = {"model": f"openai/{model}", "api_base": url, "api_key": "any", "num_retries": 0, "temperature": 0}
    asked = {**plain, "messages": story, "max_tokens": 30}
    check_replies(asked, {"name": "n", "schema": parameters, "strict": True})

    scored = litellm.completion(**asked, logprobs=True, top_logprobs=2)
    assert len(scored.choices[0].logprobs.content) == scored.usage.completion_tokens, scored

    tools = [{"type": "function", "function": {"name": "double", "parameters": parameters}}]
    talk = [{"role": "user", "content": "Double some numbers."}]
    for streams in (False, True, False):
        calls = {**plain, "messages": talk, "tools": tools, "tool_choice": "required", "max_tokens": 80}
        if streams:
            reply = litellm.stream_chunk_builder(list(litellm.completion(**calls, stream=True)))
        else:
            reply = litellm.completion(**calls)
        (call,) = reply.choices[0].message.tool_calls
        assert call.function.name == "double" and 0 <= json.loads(call.function.arguments)["n"] <= 9, reply
        talk.append(reply.choices[0].message.model_dump(include={"role", "content", "tool_calls"}))
        talk.append({"role": "tool", "tool_call_id": call.id, "content": "it is doubled"})

    refused(lambda: litellm.completion(**{**asked, "model": "openai/another"}), litellm.NotFoundError)
    refused(lambda: litellm.completion(**asked, extra_body={"top_k": "many"}), litellm.BadRequestError)
    for _ in range(3):
        pieces = litellm.completion(**{**asked, "max_tokens": 800}, stream=True)
        next(iter(pieces))
        pieces.completion_stream.close()


def by_langchain():
    import openai
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    asked = {"model": model, "base_url": url, "api_key": "any", "max_retries": 0, "temperature": 0}
    chat = ChatOpenAI(**asked, max_tokens=60)
    text = chat.invoke("Tell me a story.").content
    assert text and "".join(piece.content for piece in chat.stream("Tell me a story.")) == text

    person = ChatOpenAI(**asked, max_tokens=80).with_structured_output({"title": "n", **parameters}, method="json_schema")
    assert 0 <= person.invoke("A number.")["n"] <= 9

    scored = chat.bind(logprobs=True, top_logprobs=2).invoke("Hello!")
    tokens = scored.response_metadata["logprobs"]["content"]
    assert len(tokens) == scored.usage_metadata["output_tokens"] and len(tokens[0]["top_logprobs"]) == 2, scored

    tool = {"type": "function", "function": {"name": "double", "description": "Twice a number.", "parameters": parameters}}
    calls = ChatOpenAI(**asked, max_tokens=80).bind_tools([tool], tool_choice="double", parallel_tool_calls=False)
    talk = [HumanMessage("Double some numbers.")]
    for streams in (False, True, False):
        if streams:
            whole, *rest = calls.stream(talk)
            for piece in rest:
                whole += piece
        else:
            whole = calls.invoke(talk)
        (call,) = whole.tool_calls
        assert call["name"] == "double" and 0 <= call["args"]["n"] <= 9, whole
        talk += [whole, ToolMessage("it is doubled", tool_call_id=call["id"])]

    refused(lambda: ChatOpenAI(**{**asked, "model": "another"}).invoke("x"), openai.NotFoundError)
    refused(lambda: chat.invoke("x", extra_body={"top_k": "many"}), openai.BadRequestError)
    for _ in range(3):
        pieces = ChatOpenAI(**asked, max_tokens=800).stream("Tell me a story.")
        next(pieces)
        pieces.close()


def by_instructor():
    import instructor
    import openai
    import pydantic

    class Person(pydantic.BaseModel, extra="forbid"):
        age: int = pydantic.Field(ge=0, le=99)

    plain = openai.OpenAI(base_url=url, api_key="any", max_retries=0)
    asked = {"model": model, "messages": story, "max_tokens": 300, "max_retries": 0, "temperature": 0}
    for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
        client = instructor.from_openai(plain, mode=mode)
        for _ in range(3):
            person = client.chat.completions.create(**asked, response_model=Person)
            assert 0 <= person.age <= 99, person
        *_, last = client.chat.completions.create_partial(**asked, response_model=Person)
        assert last.age == person.age, last
    client = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)
    refused(lambda: client.chat.completions.create(**{**asked, "model": "another"}, response_model=Person), Exception)


{"litellm": by_litellm, "langchain_openai": by_langchain, "instructor": by_instructor}[which]()
idle(port)
print(which, "is served")
