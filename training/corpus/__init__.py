"""The procedural corpus of the small demo model: no downloaded text.

`documents(seed, split, max_tokens)` is an endless stream of documents,
`tasks(seed, n)` gives held-out recall questions, `heldout_texts(seed)`
texts for perplexity.  A document is a list of segments with loss weights
and ends with the end-of-text token.
"""

from .core import Item, Segment, text_of
from .mixture import MIXTURE, TUNING, documents, heldout_texts, tagged_documents, tasks

__all__ = ["MIXTURE", "TUNING", "Item", "Segment", "documents", "heldout_texts", "tagged_documents", "tasks", "text_of"]
