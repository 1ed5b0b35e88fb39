import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.models import LanguageModel, TextClassifier, Transformer
from keras_transformer.training import Adam, RDrop, SimCut, TokenCrossentropy

VOCABULARY, ROWS, LENGTH = 13, 5, 7
START, END = 2, 3
RANDOM = np.random.default_rng(0)
SIZES = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 16}
TERMS = [RDrop(2.0), SimCut(2.0, 0.3)]


def sentences(rows=ROWS):
    """Inputs and labels; the rows are padded from a length of their own on."""
    source, target = RANDOM.integers(4, VOCABULARY, (2, rows, LENGTH + 1))
    for ids in (source, target):
        ids[:, 0] = START
        for row, kept in enumerate(ids):
            kept[3 + row % 5 :] = 0
    return {"source_ids": source, "target_ids": target[:, :-1]}, target[:, 1:]


def transformer(dropout=0.0, **compiling):
    keras.utils.set_random_seed(3)
    model = Transformer(VOCABULARY, dropout=dropout, **SIZES)
    settings = {"optimizer": keras.optimizers.SGD(0.5), "loss": TokenCrossentropy(0.1)}
    model.compile(**settings | {"jit_compile": False} | compiling)
    return model


def language_model(**compiling):
    model = LanguageModel(VOCABULARY, dropout=0.0, **SIZES)
    model.compile(Adam(), TokenCrossentropy(), **compiling)
    return model


def divergence(logits, other_logits, labels):
    """The mean over real tokens, in float64."""
    p, q = (np.exp(np.asarray(x, "float64")) for x in (logits, other_logits))
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    return (p * np.log(p / q)).sum(-1)[labels != 0].mean()


def test_rdrop_adds_the_loss_and_the_divergence_of_a_second_pass():
    inputs, labels = sentences()
    model = transformer(dropout=0.3)
    passes = []

    def recorded(x, training):
        passes.append(model(x, training=training))
        return passes[-1]

    recorded.loss = model.loss
    first = model(inputs, training=True)
    found = RDrop(2.0)(recorded, inputs, labels, first)
    [second] = passes
    both = divergence(first, second, labels) + divergence(second, first, labels)
    expected = float(model.loss(labels, second)) + 2.0 * both / 2
    assert both > 0.01
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_simcut_adds_the_divergence_of_a_pass_with_cut_tokens():
    inputs, labels = sentences()
    term = SimCut(2.0, 0.5)
    model = transformer(consistency=term)
    state = ops.convert_to_numpy(model.consistency_seed.state)
    first = model(inputs, training=True)
    found = term(model, inputs, labels, first)
    model.consistency_seed.state.assign(state)
    kept = {
        name: (keras.random.uniform(ids.shape, seed=model.consistency_seed) >= 0.5)
        | (ids == START)
        | (ids == END)
        for name, ids in inputs.items()
    }
    second = model.logits_with_cutoff(inputs, kept)
    expected = 2.0 * divergence(first, second, labels)
    assert expected > 0.01
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_cut_tokens_do_not_matter_and_others_do():
    inputs, _ = sentences()
    model = transformer()
    kept = {name: np.ones(ids.shape, bool) for name, ids in inputs.items()}
    uncut = ops.convert_to_numpy(model.logits_with_cutoff(inputs, kept))
    np.testing.assert_allclose(uncut, model(inputs), 1e-5, 1e-6)
    for name in inputs:
        cut = {**kept, name: kept[name].copy()}
        cut[name][:, 1] = False
        logits = ops.convert_to_numpy(model.logits_with_cutoff(inputs, cut))
        changed = {**inputs, name: inputs[name].copy()}
        changed[name][:, 1] = 5
        others = model.logits_with_cutoff(changed, cut)
        np.testing.assert_array_equal(logits, others)
        assert not np.allclose(logits, uncut)
        changed[name][:, 0] = 5
        assert not np.allclose(logits, model.logits_with_cutoff(changed, cut))


def test_a_language_model_cuts_tokens_too():
    inputs, labels = sentences()
    ids = inputs["target_ids"]
    model = language_model(consistency=SimCut(2.0, 0.5))
    uncut = model.logits_with_cutoff(ids, np.ones(ids.shape, bool))
    np.testing.assert_allclose(uncut, model(ids), 1e-5, 1e-6)
    assert float(model.consistency(model, ids, labels, uncut)) > 0.001


@pytest.mark.parametrize("term", TERMS)
def test_symbols_at_the_ends_and_padding_are_as_without_a_cutoff(term):
    model = transformer(consistency=SimCut(1.0, 1.0))
    ids = np.array([[START, END, 0]])
    inputs = {"source_ids": ids, "target_ids": ids}
    logits = model(inputs)
    found = model.consistency(model, inputs, np.array([[END, 5, 0]]), logits)
    assert float(found) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("term", TERMS)
def test_fit_minimises_it_and_evaluation_leaves_it_out(term):
    inputs, labels = sentences()
    model = transformer(dropout=0.1, consistency=term)
    plain = transformer(dropout=0.1)
    first = model.evaluate(inputs, labels, verbose=0)
    assert first == pytest.approx(plain.evaluate(inputs, labels, verbose=0), rel=1e-5)
    history = model.fit(inputs, labels, epochs=13, verbose=0, batch_size=ROWS)
    assert history.history["loss"][0] > first
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert model.evaluate(inputs, labels, verbose=0) < first


class CutEven(SimCut):
    """Cuts tokens of even ids, whatever the slice of the batch or the replica."""

    def kept(self, model, ids):
        return ids % 2 == 1


@pytest.mark.needs_tensorflow
def test_slices_of_a_batch_learn_what_the_whole_batch_does():
    data = sentences()
    ends = []
    for slices in (1, 2):
        model = transformer(consistency=CutEven(2.0), batch_slices=slices)
        losses = [model.train_on_batch(*data) for _ in range(2)]
        ends.append((losses, model.get_weights()))
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-4)
    for one, other in zip(ends[0][1], ends[1][1], strict=True):
        np.testing.assert_allclose(one, other, 1e-3, 1e-5)


@pytest.mark.parametrize("term", TERMS)
def test_a_saved_model_continues_with_it(term, tmp_path):
    model = transformer(consistency=term)
    model.fit(*sentences(), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.consistency) is type(term)
    assert loaded.consistency.get_config() == term.get_config()
    loaded.fit(*sentences(), verbose=0)


def test_weights_of_losses_are_refused():
    with pytest.raises(ValueError, match="`loss_weights` must be left out"):
        transformer(consistency=RDrop(), loss_weights=10.0)


def test_losses_without_weights_are_refused():
    with pytest.raises(
        ValueError, match="must have a method `weights`.*Received: loss"
    ):
        transformer(consistency=RDrop(), loss="mse")


def test_models_without_embeddings_to_cut_are_refused():
    model = TextClassifier(VOCABULARY, num_classes=3, **SIZES)
    model.compile(Adam(), TokenCrossentropy(), consistency=SimCut())
    with pytest.raises(ValueError, match="needs a `Transformer` .* a TextClassifier"):
        model.consistency(model, np.array([[5, 7]]), np.array([1]), None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RDrop(-1), "`weight` must be zero or positive. .*weight=-1"),
        (lambda: SimCut(cutoff=2), "`cutoff` must be a number from 0 to 1"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
