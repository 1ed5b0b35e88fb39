"""The encoder as a model: ids in, one vector for each token out."""

import keras

from keras_transformer.checks import check_ids, check_positive_integers
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.layers.embeddings import TokenEmbedding
from keras_transformer.layers.encoder import Encoder
from keras_transformer.layers.positions import merge_positions
from keras_transformer.models.settings import (
    TokenModel,
    check_special_ids,
    name_of,
    policy_of,
)
from keras_transformer.models.stem import place_positions


@keras.saving.register_keras_serializable(package="keras_transformer")
class TextEncoder(TokenModel):
    """Reads a text in both directions: the body of models that understand text.

    A functional Keras model, with the sizes of BERT's base model as defaults.
    It takes ids `(batch, length)`, int32, and gives the states of the last
    layer, `(batch, length, hidden_dim)`, with the mask of the real tokens.
    `MaskedLanguageModel` trains one on plain text, and `TextClassifier` on
    labelled text; the same object can go from the one to the other.

    Args:
        vocabulary_size: Number of tokens.
        num_layers: Number of blocks.
        hidden_dim: Width of the states.
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward networks.
        dropout: Share dropped in training of each sub-layer's outputs and of
            the sums of embeddings and positions.
        normalize_first: Whether to normalise the inputs of each sub-layer
            (pre-norm) rather than the sum after it (BERT's post-norm).
        activation: Inner activation of the feed-forward networks.
        pad_id: Id of the padding.
        positions: How positions are told apart: `"sinusoidal"`, `"rotary"`,
            `"linear_bias"`, or a layer, such as
            `LearnedPositionalEncoding(max_length=512)`, taken as a pattern.
            None: they are not. A concatenated encoding takes its
            `encoding_dim` out of `hidden_dim`.
        dtype: Dtype policy of every layer, such as `"mixed_bfloat16"`.
        **kwargs: Base `Model` arguments, such as `name`.

    Raises:
        ValueError: If a size is not positive, `num_heads` does not divide
            `hidden_dim`, `pad_id` lies outside the vocabulary, or there is no
            such scheme of positions.

    Example:
        >>> encoder = TextEncoder(
        ...     vocabulary_size=17, num_layers=1, hidden_dim=8, num_heads=2,
        ...     intermediate_dim=16,
        ... )
        >>> encoder(np.array([[5, 7, 11, 0]])).shape
        TensorShape([1, 4, 8])

    Reference:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int = 12,
        hidden_dim: int = 768,
        num_heads: int = 12,
        intermediate_dim: int = 3072,
        dropout: float = 0.1,
        normalize_first: bool = False,
        activation="gelu",
        pad_id: int = 0,
        positions="sinusoidal",
        dtype=None,
        **kwargs,
    ):
        check_positive_integers(vocabulary_size=vocabulary_size, hidden_dim=hidden_dim)
        check_special_ids(vocabulary_size, pad_id)
        policy = policy_of(dtype)
        placed = place_positions(positions, hidden_dim, policy)
        embedding = TokenEmbedding(
            vocabulary_size,
            placed.embedding_dim,
            pad_id,
            name="embedding",
            dtype=policy,
        )
        encoder = Encoder(
            num_layers,
            num_heads,
            intermediate_dim,
            dropout=dropout,
            normalize_first=normalize_first,
            activation=activation,
            positions=placed.in_attention,
            name="encoder",
            dtype=policy,
        )
        ids = keras.Input((None,), dtype="int32", name="ids")
        states = merge_positions(placed.on_inputs, embedding(ids))
        states = Dropout(dropout, name="dropout", dtype=policy)(states)
        super().__init__(
            inputs=ids,
            outputs=encoder(states),
            settings={
                "vocabulary_size": vocabulary_size,
                "num_layers": num_layers,
                "hidden_dim": hidden_dim,
                "num_heads": num_heads,
                "intermediate_dim": intermediate_dim,
                "dropout": dropout,
                "normalize_first": normalize_first,
                "activation": name_of(activation),
                "pad_id": pad_id,
                "positions": placed.setting,
            },
            dtype=policy,
            **kwargs,
        )
        self.embedding = embedding
        self.positions = placed.on_inputs
        self.encoder = encoder

    def attention_scores(self, ids):
        """What every position looked at, in every layer and head.

        Args:
            ids: Integer tensor of shape `(batch, length)`.

        Returns:
            A dictionary with the key `"encoder"`: a float tensor of shape
            `(num_layers, batch, num_heads, query_length, key_length)`. Rows of
            real tokens sum to one, those of padding to zero.
        """
        check_ids(ids, "ids")
        states = merge_positions(self.positions, self.embedding(ids))
        return {"encoder": self.encoder(states, return_attention_scores=True)[1]}
