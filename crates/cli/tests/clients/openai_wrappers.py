"""Libraries that wrap OpenAI's client against a server: PORT is the first argument, which of them the second."""

import os
import sys

url, which = f"http://127.0.0.1:{sys.argv[1]}/v1", sys.argv[2]
story = [{"role": "user", "content": "Tell me a story."}]


def by_litellm():
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    asked = {"model": "openai/rooflight-demo", "api_base": url, "api_key": "any", "messages": story, "max_tokens": 30}
    whole = litellm.completion(**asked, temperature=0)
    text = whole.choices[0].message.content
    assert text and whole.usage.completion_tokens > 0, whole
    pieces = litellm.completion(**asked, temperature=0, stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == text


def by_langchain():
    from typing import Annotated

    import pydantic
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="rooflight-demo", base_url=url, api_key="any", max_tokens=60, temperature=0)
    text = model.invoke("Tell me a story.").content
    assert text and "".join(piece.content for piece in model.stream("Tell me a story.")) == text

    def double(n: Annotated[int, pydantic.Field(ge=0, le=9)]) -> int:
        """Twice a number."""
        return 2 * n

    called = model.bind_tools([double], tool_choice="double").invoke("Double three.")
    (call,) = called.tool_calls
    assert call["name"] == "double" and isinstance(call["args"]["n"], int), called


def by_instructor():
    import instructor
    import openai
    import pydantic

    class Person(pydantic.BaseModel, extra="forbid"):
        age: int = pydantic.Field(ge=0, le=99)

    plain = openai.OpenAI(base_url=url, api_key="any", max_retries=0)
    client = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)
    person = client.chat.completions.create(
        model="rooflight-demo", messages=story, response_model=Person, max_tokens=300, max_retries=0, temperature=0
    )
    assert 0 <= person.age <= 99, person


{"litellm": by_litellm, "langchain_openai": by_langchain, "instructor": by_instructor}[which]()
print(which, "is served")
