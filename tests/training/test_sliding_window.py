import numpy as np
import pytest
from keras import ops

from keras_transformer.models import LanguageModel
from keras_transformer.training import sliding_window_perplexity

VOCABULARY = 17
IDS = np.random.default_rng(0).integers(4, VOCABULARY, 53)


class Bigrams:
    """Logits that depend on nothing but the token itself."""

    pad_id = 0

    def __init__(self):
        self.table = np.random.default_rng(1).normal(size=(VOCABULARY, VOCABULARY))

    def predict_on_batch(self, ids):
        return self.table.astype("float32")[ids]

    def log_probabilities(self, ids):
        rows = self.table[ids[:-1]]
        normalizers = np.log(np.exp(rows).sum(axis=-1))
        return rows[np.arange(len(rows)), ids[1:]] - normalizers


@pytest.fixture(scope="module")
def model():
    model = LanguageModel(
        VOCABULARY, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=11
    )
    random = np.random.default_rng(2)
    for weight in model.weights:
        mean = float(weight.path.endswith("gamma"))
        weight.assign(random.normal(mean, 0.5, weight.shape))
    return model


@pytest.mark.parametrize("window", [1, 5, 52, 53, 97])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_every_token_but_the_first_counts_once(window, share):
    model = Bigrams()
    expected = np.exp(-model.log_probabilities(IDS).mean())
    stride = max(1, int(window * share))
    found = sliding_window_perplexity(model, IDS, window, stride, batch_size=3)
    np.testing.assert_allclose(found, expected, 1e-5)


@pytest.mark.parametrize(("window", "stride"), [(7, 1), (11, 3), (11, 11), (13, None)])
def test_every_token_has_the_context_that_its_window_gives(model, window, stride):
    found = sliding_window_perplexity(model, IDS, window, stride, batch_size=5)
    stride = stride or window // 2
    begin, num_scored = 0, len(IDS) - 1
    contexts, last = np.zeros((num_scored, window), "int32"), []
    for position, context in enumerate(contexts):
        if position >= begin + window:
            begin += stride
        last.append(position - begin)
        context[: last[-1] + 1] = IDS[begin : position + 1]
    logits = ops.convert_to_numpy(model(contexts))[np.arange(num_scored), last]
    normalizers = np.log(np.exp(logits.astype("float64")).sum(axis=-1))
    losses = normalizers - logits[np.arange(num_scored), IDS[1:]]
    np.testing.assert_allclose(found, np.exp(np.mean(losses)), 1e-4)


@pytest.mark.parametrize(
    ("ids", "sizes", "message"),
    [
        (IDS[:1], {"window": 5}, "`ids` must be one text of at least two tokens"),
        (IDS[None], {"window": 5}, r"Received: ids of shape \(1, 53\)"),
        (IDS / 2, {"window": 5}, "`ids` must be integers"),
        (IDS, {"window": 0}, "`window` must be a positive integer"),
        (IDS, {"window": 5, "stride": 6}, "`stride` must be .* stride=6, window=5"),
        (IDS, {"window": 5, "stride": 0}, "`stride` must be from 1 to `window`"),
        (IDS, {"window": 5, "batch_size": 0}, "`batch_size` must be a positive"),
    ],
    ids=lambda x: "+".join(x) if isinstance(x, dict) else "",
)
def test_what_cannot_be_scored_is_refused_in_one_line(ids, sizes, message):
    with pytest.raises(ValueError, match=message) as caught:
        sliding_window_perplexity(Bigrams(), ids, **sizes)
    assert "\n" not in str(caught.value)
