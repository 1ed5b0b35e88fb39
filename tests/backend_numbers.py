"""Numbers that layers, searches, models and training compute on Keras's backend.

NumPy draws the weights, so that they are equal on every backend.
`python tests/backend_numbers.py FILE` saves all numbers;
`test_backend_numbers.py` compares them with those of another backend.
"""

import sys

import keras
import numpy as np
from gradients import gradients, sum_of_squares, weight_gradients
from keras import ops
from layer_cases import CASES

from keras_transformer import decoding, layers, models, training

VOCABULARY = 17
SIZES = {
    "num_layers": 2,
    "hidden_dim": 8,
    "num_heads": 2,
    "intermediate_dim": 11,
    "dropout": 0.0,
}
SOURCE_IDS = np.array(
    [[5, 7, 11, 13, 3, 0], [4, 6, 0, 0, 0, 0], [9, 9, 8, 16, 14, 3]], "int32"
)
TARGET_IDS = np.array([[2, 5, 9, 13], [2, 8, 0, 0], [2, 16, 7, 0]], "int32")
LABELS = np.array([[5, 9, 13, 3], [8, 3, 0, 0], [16, 7, 3, 0]], "int32")
PAIRS = {"source_ids": SOURCE_IDS, "target_ids": TARGET_IDS}
IMAGES = np.random.default_rng(3).normal(size=(3, 6, 9, 2)).astype("float32")

MODELS = {
    "transformer": (lambda: models.Transformer(VOCABULARY, **SIZES), PAIRS),
    "rotary transformer of two vocabularies": (
        lambda: models.Transformer(
            VOCABULARY, 19, normalize_first=True, positions="rotary", **SIZES
        ),
        PAIRS,
    ),
    "language model": (lambda: models.LanguageModel(VOCABULARY, **SIZES), TARGET_IDS),
    "biased language model": (
        lambda: models.LanguageModel(VOCABULARY, positions="linear_bias", **SIZES),
        TARGET_IDS,
    ),
    "masked language model": (
        lambda: models.MaskedLanguageModel(VOCABULARY, **SIZES),
        SOURCE_IDS,
    ),
    "text classifier": (
        lambda: models.TextClassifier(VOCABULARY, num_classes=5, **SIZES),
        SOURCE_IDS,
    ),
    "vision transformer": (
        lambda: models.VisionTransformer((6, 9, 2), 3, num_classes=5, **SIZES),
        IMAGES,
    ),
}
SEARCHES = {
    "greedy": decoding.GreedySearch(),
    "sampling": decoding.Sampling(0.7, top_k=5, top_p=0.9, seed=3, num_hypotheses=2),
    "beam": decoding.BeamSearch(3, num_hypotheses=3),
    "controlled beam": decoding.BeamSearch(
        2,
        length_penalty=1.0,
        processors=[
            decoding.MinimumLength(3),
            decoding.MaximumLength(1.5, 2),
            decoding.NoRepeatNgram(2),
            decoding.RepetitionPenalty(1.2),
            decoding.BannedIds([5]),
            decoding.ForcedPrefix([7]),
        ],
    ),
}


def fill(layer):
    """Assigns random numbers to every weight of a layer or model; returns it."""
    draw = np.random.default_rng(7)
    for weight in layer.weights:
        mean = float(weight.path.endswith("gamma"))
        weight.assign(draw.normal(mean, 0.4, weight.shape))
    return layer


def of_layer(name):
    settings, inputs, _ = CASES[name]
    layer = getattr(layers, name)(**settings)
    inputs = keras.tree.map_structure(ops.convert_to_tensor, inputs)
    layer(**inputs)
    fill(layer)
    return {
        "outputs": layer(**inputs),
        "weight gradients": weight_gradients(sum_of_squares, layer, **inputs),
    }


def of_residual():
    layer = layers.Residual()
    dense = keras.layers.Dense(6)
    states = CASES["EncoderBlock"][1]["inputs"]
    layer(states, sublayer=dense)
    fill(dense)
    fill(layer)
    return {
        "outputs": layer(states, sublayer=dense),
        "gradients": gradients(
            lambda x: sum_of_squares(layer(x, sublayer=dense)), [states]
        ),
    }


def of_masked_attention():
    """Uses every kind of mask, a query that may attend to nothing, and the scores."""
    draw = np.random.default_rng(5)
    states, memory = (draw.normal(size=(2, n, 6)).astype("float32") for n in (5, 7))
    layer = layers.MultiHeadAttention(num_heads=3, key_dim=5)
    layer(states, memory)
    fill(layer)
    may_attend = draw.random((2, 5, 7)) < 0.6
    may_attend[0, 3] = False
    masks = {
        "query_mask": np.arange(5) < [[5], [3]],
        "value_mask": np.arange(7) < [[4], [7]],
        "attention_mask": may_attend,
        "use_causal_mask": True,
    }
    return {
        "scored": layer(states, memory, return_attention_scores=True, **masks),
        "fused": layer(states, memory, **masks),
        "gradients": gradients(
            lambda *x: sum_of_squares(layer(*x, **masks)), [states, memory]
        ),
    }


def of_model(name):
    make, inputs = MODELS[name]
    model = fill(make())
    return {
        "outputs": model(inputs),
        "predictions": model.predict_on_batch(inputs),
        "weight gradients": weight_gradients(sum_of_squares, model, inputs),
    }


def of_search(name, search):
    # More than 8 sentences, so that they are searched in several batches.
    model = fill(MODELS[name][0]())
    prompts = TARGET_IDS if "language" in name else SOURCE_IDS
    ids, scores = model.generate(np.tile(prompts, (3, 1)), SEARCHES[search], 11)
    return {"ids": ids, "scores": scores}


def of_training(name, gradient_accumulation_steps=1):
    """Trains for three epochs; returns what `fit` and `evaluate` report."""
    make, inputs = MODELS[name]
    model = fill(make())
    model.compile(
        # A large epsilon, so that gradients of rounding errors change no weight.
        training.Adam(
            training.InverseSquareRootSchedule.with_peak(1e-2, 8, warmup_steps=3),
            epsilon=1e-3,
            gradient_accumulation_steps=gradient_accumulation_steps,
        ),
        training.TokenCrossentropy(label_smoothing=0.1),
        metrics=[training.TokenAccuracy(), training.Perplexity()],
    )
    how = {"shuffle": False, "batch_size": 2, "verbose": 0}
    history = model.fit(inputs, LABELS, epochs=3, **how)
    return {
        "history": history.history,
        "evaluation": model.evaluate(inputs, LABELS, verbose=0, return_dict=True),
        "weights": model.get_weights(),
    }


def of_loss():
    logits = np.random.default_rng(2).normal(size=(3, 4, VOCABULARY)).astype("float32")
    loss = training.TokenCrossentropy(label_smoothing=0.1)
    weights = np.array([0.5, 2.0, 1.0], "float32")
    return {
        "loss": loss(LABELS, logits, weights),
        "gradients": gradients(lambda x: loss(LABELS, x, weights), [logits]),
    }


NUMBERS = {
    **{name: (of_layer, name) for name in CASES},
    "Residual": (of_residual,),
    "masked attention": (of_masked_attention,),
    **{name: (of_model, name) for name in MODELS},
    **{
        f"{search} of the {name}": (of_search, name, search)
        for search in SEARCHES
        for name in ("transformer", "language model", "biased language model")
    },
    "loss": (of_loss,),
    "training": (of_training, "transformer"),
    "training of a language model": (of_training, "language model"),
    "training by two batches": (of_training, "transformer", 2),
}


def numbers(name):
    """Returns the arrays of one entry of `NUMBERS`, under their paths in it."""
    compute, *arguments = NUMBERS[name]
    arrays = keras.tree.flatten_with_path(compute(*arguments))
    return {
        "/".join(map(str, (name, *path))): np.asarray(ops.convert_to_numpy(array))
        for path, array in arrays
    }


if __name__ == "__main__":
    np.savez(
        sys.argv[1], **{k: v for name in NUMBERS for k, v in numbers(name).items()}
    )
