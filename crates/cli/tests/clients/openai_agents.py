"""Tests libraries that run agents with a server. Arguments: PORT, and the name of the library."""

import sys

from beside import idle

port, which = sys.argv[1], sys.argv[2]
url, model = f"http://127.0.0.1:{port}/v1", "rooflight-demo"


def by_agents():
    import asyncio
    from typing import Annotated

    import agents
    import openai
    import pydantic

    agents.set_tracing_disabled(True)
    doubled = []

    @agents.function_tool
    def double(n: Annotated[int, pydantic.Field(ge=0, le=9)]) -> str:
        """Twice a number."""
        doubled.append(n)
        return "it is doubled"

    async def of(kind):
        client = openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0)
        settings = {"temperature": 0, "max_tokens": 400}
        served = kind(model=model, openai_client=client)
        plain = agents.Agent(name="a", model=served, model_settings=agents.ModelSettings(**settings))
        text = (await agents.Runner.run(plain, "Who are you?")).final_output
        assert text, text
        streamed = agents.Runner.run_streamed(plain, "Who are you?")
        events = [event async for event in streamed.stream_events()]
        assert events and streamed.final_output == text, streamed.final_output
        # a tool call, its result, and the reply to the result
        settings = agents.ModelSettings(**settings, tool_choice="required", parallel_tool_calls=False)
        calls = agents.Agent(name="b", model=served, tools=[double], model_settings=settings)
        before = len(doubled)
        await agents.Runner.run(calls, "Double some numbers.", max_turns=8)
        assert len(doubled) > before

    for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
        asyncio.run(of(kind))


def by_pydantic_ai():
    import pydantic
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Person(pydantic.BaseModel, extra="forbid"):
        age: int = pydantic.Field(ge=0, le=99)

    served = OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key="any"))
    settings = {"temperature": 0, "max_tokens": 400}
    told = Agent(served, model_settings=settings).run_sync("Tell me a story.")
    assert told.output and told.usage.output_tokens > 0, told
    for output in (Person, NativeOutput(Person)):
        person = Agent(served, output_type=output, model_settings=settings).run_sync("Who are you?")
        assert 0 <= person.output.age <= 99, person


{"agents": by_agents, "pydantic_ai": by_pydantic_ai}[which]()
idle(port)
print(which, "is served")
