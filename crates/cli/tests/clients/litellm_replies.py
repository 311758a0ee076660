"""Checks of litellm's replies that are the same for every API it speaks."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm


def check_replies(asked, form):
    """Checks a whole reply, the same reply in pieces, and a reply that has the form of a number `n`."""
    whole = litellm.completion(**asked)
    text = whole.choices[0].message.content
    assert text and whole.usage.completion_tokens > 0, whole
    pieces = litellm.completion(**asked, stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == text

    form = {"type": "json_schema", "json_schema": form}
    person = litellm.completion(**asked, response_format=form)
    assert 0 <= json.loads(person.choices[0].message.content)["n"] <= 9, person
