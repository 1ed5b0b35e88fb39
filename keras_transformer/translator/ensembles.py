"""A translator of several translators."""

from collections.abc import Sequence

from keras_transformer.models import Ensemble
from keras_transformer.translator.translator import Translator


def ensemble(translators: Sequence[Translator]) -> Translator:
    """Returns a translator that averages the probabilities of several.

    It takes as long as all of them together.

    Args:
        translators: Translators with the same tokenizers, such as those of runs that
            differ in their seeds.

    Returns:
        A `Translator` with the search and the longest source of the first. It is
        saved, loaded and exported to TensorFlow Serving as any other.

    Raises:
        ValueError: If there is none, or if their tokenizers differ.

    Example:
        >>> lines = ["a man rides a bike", "a dog rides a man", "a bike"]
        >>> tokenizer = kt.text.SubwordTokenizer.train(lines, vocabulary_size=25)
        >>> settings = {"hidden_dim": 8, "num_heads": 2, "intermediate_dim": 16}
        >>> translators = [
        ...     kt.Translator(kt.models.Transformer(25, num_layers=1, **settings), x)
        ...     for x in (tokenizer, tokenizer)
        ... ]
        >>> len(kt.translator.ensemble(translators).translate(["a man"], max_length=5))
        1

    Reference:
        [Sutskever et al., 2014](https://arxiv.org/abs/1409.3215), section 3.6
    """
    if not translators:
        raise ValueError("`translators` must be one translator or more. Received: [].")
    first = translators[0]
    for number, other in enumerate(translators):
        for side in ("source_tokenizer", "target_tokenizer"):
            if not getattr(other, side).equals(getattr(first, side)):
                raise ValueError(
                    "`translators` must have the same tokenizers. Received: another "
                    f"{side} in translators[{number}]. Train runs on the same text, "
                    "with the same settings of `tokenizer`."
                )
    model = Ensemble([translator.model for translator in translators])
    tokenizers = first.source_tokenizer, first.target_tokenizer
    return Translator(model, *tokenizers, first.max_source_length, first.search)
