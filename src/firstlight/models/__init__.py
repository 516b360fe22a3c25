"""Models: loading, the attention hook and one adapter per family.

The only package that knows transformers' modules. transformers' code, processors, tokenizers and
chat templates are the model definitions; what is ours is how rows are merged, where positions come
from, and how the decoder's layers are called.
"""
