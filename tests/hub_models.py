"""Small language models of KerasHub, with tokenizers made here."""

import io
import warnings

import keras
import numpy as np
import pytest
import sentencepiece

hub = pytest.importorskip("keras_hub")
LETTERS = ["a", "b", "c", "d", "Ġ", "Ġa", "Ġb", "Ġc", "Ġd"]
MERGES = ["Ġ a", "Ġ b", "Ġ c", "Ġ d"]
SIZES = {"num_layers": 2, "hidden_dim": 16, "intermediate_dim": 32}
GROUPED = {"num_query_heads": 4, "num_key_value_heads": 2}


def vocabulary(*tokens):
    return {token: index for index, token in enumerate(tokens)}


def drawn(backbone, seed):
    """Gives a backbone weights that make some tokens far likelier than others.

    A seed that is None leaves it the weights that KerasHub begins a training with.
    """
    if seed is None:
        return backbone
    draw = np.random.default_rng(seed)
    for weight in backbone.trainable_variables:
        weight.assign(0.5 * draw.standard_normal(weight.shape).astype("float32"))
    return backbone


def gpt2(seed=1, dtype=None):
    """A decoder with learned positions, its tokenizer and its preprocessor."""
    tokenizer = hub.models.GPT2Tokenizer(vocabulary(*LETTERS, "<|endoftext|>"), MERGES)
    preprocessor = hub.models.GPT2CausalLMPreprocessor(tokenizer, sequence_length=12)
    backbone = hub.models.GPT2Backbone(
        10, num_heads=2, max_sequence_length=16, dtype=dtype, **SIZES
    )
    return hub.models.GPT2CausalLM(drawn(backbone, seed), preprocessor)


def llama(seed=1):
    """A decoder with rotary positions and grouped heads, without a tokenizer."""
    backbone = hub.models.LlamaBackbone(10, **GROUPED, **SIZES)
    return hub.models.LlamaCausalLM(drawn(backbone, seed))


def gemma(seed=1):
    backbone = hub.models.GemmaBackbone(10, head_dim=4, **GROUPED, **SIZES)
    return hub.models.GemmaCausalLM(drawn(backbone, seed))


def bart(seed=1):
    """An encoder-decoder, its tokenizer and its preprocessor."""
    special = ["<s>", "<pad>", "</s>", "<mask>"]
    tokenizer = hub.models.BartTokenizer(vocabulary(*special, *LETTERS), MERGES)
    preprocessor = hub.models.BartSeq2SeqLMPreprocessor(
        tokenizer, encoder_sequence_length=9, decoder_sequence_length=10
    )
    backbone = hub.models.BartBackbone(13, num_heads=2, max_sequence_length=16, **SIZES)
    return hub.models.BartSeq2SeqLM(drawn(backbone, seed), preprocessor)


def characters(**ids):
    """A SentencePiece model of characters, 13 pieces with those of `ids`."""
    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d", "e f g h i"]),
        model_writer=proto,
        vocab_size=13,
        model_type="char",
        minloglevel=2,
        **ids,
    )
    return proto.getvalue()


def t5(seed=1):
    """An encoder-decoder with relative positions and a SentencePiece tokenizer."""
    proto = characters(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    preprocessor = hub.models.T5Seq2SeqLMPreprocessor(
        hub.models.T5Tokenizer(proto),
        encoder_sequence_length=9,
        decoder_sequence_length=10,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its layers have no `build`
        backbone = hub.models.T5Backbone(13, num_heads=2, **SIZES)
    return hub.models.T5Seq2SeqLM(drawn(backbone, seed), preprocessor)


def moonshine(seed=1):
    """An encoder-decoder whose encoder reads waveforms, and its tokenizer of texts."""
    preprocessor = hub.models.MoonshineAudioToTextPreprocessor(
        hub.layers.MoonshineAudioConverter(),
        hub.models.MoonshineTokenizer(characters()),
        decoder_sequence_length=10,
    )
    backbone = hub.models.MoonshineBackbone(
        13,
        filter_dim=16,
        encoder_num_layers=2,
        decoder_num_layers=2,
        hidden_dim=16,
        intermediate_dim=32,
        encoder_num_heads=2,
        decoder_num_heads=2,
        partial_rotary_factor=0.5,
    )
    return hub.models.MoonshineAudioToText(drawn(backbone, seed), preprocessor)


FAMILIES = {
    "gpt2": gpt2,
    "llama": llama,
    "gemma": gemma,
    "bart": bart,
    "t5": t5,
    "moonshine": moonshine,
}


def trained(make):
    """A model that has learned to count: after a token comes the next id, or one more.

    It is trained until its mean loss is 0.7 nats. Uniform guesses would have 2.3 and
    more, and the texts themselves have 0.5.
    """
    keras.utils.set_random_seed(3)
    lm = make(seed=None)
    for weight in lm.trainable_variables:  # T5's begin too small to learn fast
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.2))
    draw = np.random.default_rng(7)
    steps = draw.choice([1, 2], (32, 9), p=[0.8, 0.2])
    ids = 3 + np.cumsum(steps, axis=1) % 7
    inputs = prompts(lm, lengths=[8] * len(ids))
    inputs[f"{part(lm)}token_ids"] = ids[:, :-1]
    # The model without its preprocessor, which would read texts.
    model = keras.Model(lm.input, lm.output)
    model.compile(
        keras.optimizers.SGD(0.4, momentum=0.9, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=keras.backend.backend() == "jax",  # TensorFlow would compile longer
    )
    for _ in range(300):
        if model.train_on_batch(inputs, ids[:, 1:]) < 0.7:
            return lm
    raise AssertionError("The model has not learned to count.")


def waveforms(rows):
    """Noise of 0.1 seconds and more, `(rows, samples, 1)`, and where it is padding."""
    noise = np.random.default_rng(3).standard_normal((rows, 2000, 1)).astype("float32")
    mask = np.arange(2000) < np.resize([2000, 1700, 1900], (rows, 1))
    return noise * mask[..., None], mask


def prompts(lm, lengths=(2, 4, 1), length=8):
    """Ids of prompts of several lengths, for models with and without an encoder."""
    draw = np.random.default_rng(5)
    mask = np.arange(length) < np.array(lengths)[:, None]
    ids = draw.integers(3, 10, mask.shape) * mask
    if not isinstance(lm, hub.models.Seq2SeqLM):
        return {"token_ids": ids, "padding_mask": mask}
    if isinstance(lm, hub.models.MoonshineAudioToText):
        encoder, encoder_mask = waveforms(len(lengths))
        encoder = {"encoder_input_values": encoder}
    else:
        encoder = {"encoder_token_ids": draw.integers(4, 13, (len(lengths), 5))}
        encoder_mask = np.arange(5) < np.resize([5, 3, 4], (len(lengths), 1))
    return {
        **encoder,
        "encoder_padding_mask": encoder_mask,
        "decoder_token_ids": ids,
        "decoder_padding_mask": mask,
    }


def part(lm):
    return "decoder_" if isinstance(lm, hub.models.Seq2SeqLM) else ""


def log_probabilities(lm, ids, rows):
    """Log-probabilities of the token after each position, without a cache.

    Args:
        lm: The model.
        ids: What `prompts` returns, of one row.
        rows: Sequences that begin with its prompt, of shape `(rows, length)`.
    """
    rows = np.array(rows)
    name = part(lm)
    inputs = {key: np.repeat(value, len(rows), axis=0) for key, value in ids.items()}
    inputs[f"{name}token_ids"] = rows
    inputs[f"{name}padding_mask"] = np.ones_like(rows)
    logits = keras.ops.cast(lm(inputs), "float32")
    return keras.ops.convert_to_numpy(keras.ops.log_softmax(logits))
