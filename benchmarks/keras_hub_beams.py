"""How often KerasHub's BeamSampler does not return the best of its own candidates.

    python benchmarks/keras_hub_beams.py

Trains a small GPT-2 of KerasHub on characters of the built-in task. Then its sampler
continues beginnings of phrases. Each candidate is cut after its stop token, and scored
by the model without a cache.
"""

import keras
import keras_hub
import numpy as np

import keras_transformer as kt
from keras_transformer.interop.keras_hub import SearchSampler

LENGTH, PROMPT, PHRASES, PROMPTS = 40, 4, 6000, 200
END = 1
keras.utils.set_random_seed(7)
lines = kt.datasets.locale_phrases().train.source
lines = [line for line in dict.fromkeys(lines) if PROMPT < len(line) < LENGTH]
characters = sorted(set("".join(lines)))
id_of = {character: index for index, character in enumerate(characters, 2)}


def encode(line):
    ids = [*(id_of[character] for character in line), END]
    return ids + [0] * (LENGTH - len(ids))


np.random.default_rng(7).shuffle(lines)
ids = np.array([encode(line) for line in lines[: PHRASES + PROMPTS]])
trained, held_out = ids[:PHRASES], ids[PHRASES:]
backbone = keras_hub.models.GPT2Backbone(
    len(id_of) + 2,
    num_layers=2,
    num_heads=4,
    hidden_dim=64,
    intermediate_dim=256,
    max_sequence_length=LENGTH,
)
lm = keras_hub.models.GPT2CausalLM(backbone)
crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
lm.compile(keras.optimizers.Adam(2e-3), crossentropy)
inputs = {"token_ids": trained[:, :-1], "padding_mask": trained[:, :-1] > 0}
weights = (trained[:, 1:] > 0).astype("float32")
data = {"x": inputs, "y": trained[:, 1:], "sample_weight": weights}
lm.fit(**data, batch_size=64, epochs=4, verbose=2)


def scores(rows):
    """Log-probabilities of what follows the prompts, up to the stop token."""
    inputs = {"token_ids": rows, "padding_mask": np.ones_like(rows, bool)}
    logits = lm.predict(inputs, batch_size=200, verbose=0)
    known = keras.ops.convert_to_numpy(keras.ops.log_softmax(logits))[:, :-1]
    known = np.take_along_axis(known, rows[:, 1:, None], axis=-1)[..., 0]
    is_end = rows[:, 1:] == END
    is_added = np.arange(1, rows.shape[1]) >= PROMPT
    is_added = is_added & (np.cumsum(is_end, axis=1) - is_end == 0)
    return (known * is_added).sum(axis=1)


mask = np.arange(LENGTH) < PROMPT
prompts = {"token_ids": held_out * mask, "padding_mask": (held_out > 0) & mask}
prompts = keras.tree.map_structure(keras.ops.convert_to_tensor, prompts)


def search(sampler):
    lm.compile(sampler=sampler, run_eagerly=True)  # so that a sampler can keep tensors
    found = lm.make_generate_function()(prompts, (END,))
    return keras.ops.convert_to_numpy(found["token_ids"])


class Recorded(keras_hub.samplers.BeamSampler):
    """Keeps all candidates beside the winner that the model returns."""

    def __call__(self, *arguments, **named):
        self.candidates, _ = super().__call__(*arguments, **named)
        return self.candidates[:, 0]


print("| beam | winner is not its best candidate | ours scores better | worse |")
print("| --: | --: | --: | --: |")
for width in (2, 4, 8):
    recorded = Recorded(width, return_all_beams=True)
    search(recorded)
    candidates = keras.ops.convert_to_numpy(recorded.candidates)
    theirs = scores(candidates.reshape(-1, LENGTH)).reshape(-1, width)
    lost = theirs.max(axis=1) - theirs[:, 0] > 1e-4
    ours = scores(search(SearchSampler(kt.decoding.BeamSearch(width, 0.0))))
    better, worse = ours - theirs[:, 0] > 1e-4, theirs[:, 0] - ours > 1e-4
    shares = (f"{100 * x.mean():.0f}%" for x in (lost, better, worse))
    print(f"| {width} | {' | '.join(shares)} |", flush=True)
