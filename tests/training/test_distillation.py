import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels.rematerialization import seed_states
from keras_transformer.models import Ensemble, LanguageModel, Transformer
from keras_transformer.training import Checkpoints, Distillation, TokenCrossentropy

VOCABULARY, ROWS, LENGTH = 13, 5, 7
RANDOM = np.random.default_rng(0)
SIZES = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 16}


def sentences(rows=ROWS):
    """Inputs and labels; the rows are padded from a length of their own on."""
    source, target = RANDOM.integers(4, VOCABULARY, (2, rows, LENGTH + 1))
    for ids in (source, target):
        for row, kept in enumerate(ids):
            kept[3 + row % 5 :] = 0
    return {"source_ids": source, "target_ids": target[:, :-1]}, target[:, 1:]


def transformer(seed=3, vocabulary=VOCABULARY, dropout=0.0, **sizes):
    keras.utils.set_random_seed(seed)
    return Transformer(vocabulary, dropout=dropout, **SIZES | sizes)


def compiled(model, rate=0.5, **options):
    optimizer, loss = keras.optimizers.SGD(rate), TokenCrossentropy(0.1)
    model.compile(optimizer, loss, jit_compile=False, **options)
    return model


def probabilities(model, inputs):
    logits = ops.convert_to_numpy(model(inputs)).astype("float64")
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def test_it_adds_the_crossentropy_with_the_probabilities_of_the_teacher():
    inputs, labels = sentences()
    teacher, model = transformer(5, dropout=0.5, hidden_dim=6), compiled(transformer())
    targets, own = (probabilities(each, inputs) for each in (teacher, model))
    expected = -(targets * np.log(own)).sum(-1)[labels != 0].mean()
    found = Distillation(teacher, 3.0)(model, inputs, labels, model(inputs))
    assert float(found) == pytest.approx(3 * expected, rel=1e-4)


def test_sample_weights_count_as_in_the_loss():
    inputs, labels = sentences()
    model, term = compiled(transformer()), Distillation(transformer(5), 1.0)
    logits = model(inputs)
    weights = np.eye(1, ROWS, 2)[0]  # the third sentence alone
    found = term(model, inputs, labels, logits, weights)
    one = {name: ids[2:3] for name, ids in inputs.items()}
    expected = term(model, one, labels[2:3], logits[2:3])
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_several_teachers_are_an_ensemble():
    inputs, labels = sentences()
    model, teachers = compiled(transformer()), [transformer(5), transformer(7)]
    targets = np.mean([probabilities(each, inputs) for each in teachers], axis=0)
    expected = -(targets * np.log(probabilities(model, inputs))).sum(-1)
    found = Distillation(Ensemble(teachers), 1.0)(model, inputs, labels, model(inputs))
    assert float(found) == pytest.approx(expected[labels != 0].mean(), rel=1e-4)


@pytest.mark.parametrize(
    "make", [transformer, lambda seed: LanguageModel(VOCABULARY, dropout=0.0, **SIZES)]
)
def test_the_model_comes_closer_to_a_teacher_that_stays_as_it_is(make):
    inputs, labels = sentences()
    model, teacher = make(3), make(5)
    if isinstance(model, LanguageModel):
        inputs = inputs["target_ids"]

    def distance():
        found, wanted = probabilities(model, inputs), probabilities(teacher, inputs)
        return np.abs(found - wanted)[labels != 0].mean()

    before, weights = distance(), teacher.get_weights()
    compiled(model, 0.03, consistency=Distillation(teacher, 10.0))
    model.fit(inputs, labels, epochs=31, batch_size=ROWS, verbose=0)
    assert distance() < 0.7 * before
    for found, expected in zip(teacher.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_evaluation_leaves_it_out():
    data = sentences()
    distilled = compiled(transformer(), consistency=Distillation(transformer(5)))
    found = distilled.evaluate(*data, verbose=0)
    plain = compiled(transformer()).evaluate(*data, verbose=0)
    assert found == pytest.approx(plain, rel=1e-5)


@pytest.mark.needs_tensorflow
def test_slices_of_a_batch_learn_what_the_whole_batch_does():
    data = sentences()
    ends = []
    for slices in (1, 2):
        term = Distillation(transformer(5), 2.0)
        model = compiled(transformer(), consistency=term, batch_slices=slices)
        losses = [model.train_on_batch(*data) for _ in range(2)]
        ends.append((losses, model.get_weights()))
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-4)
    for one, other in zip(ends[0][1], ends[1][1], strict=True):
        np.testing.assert_allclose(one, other, 1e-3, 1e-5)


def test_a_saved_model_does_not_hold_its_teacher(tmp_path):
    model = compiled(transformer(), consistency=Distillation(transformer(5)))
    model.fit(*sentences(), verbose=0)
    count = model.count_params()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.consistency is None
    assert loaded.count_params() == count == transformer().count_params()
    loaded.fit(*sentences(), verbose=0)


def test_a_checkpoint_restores_the_states_of_dropout(tmp_path):
    teacher = Distillation(transformer(5))
    model = compiled(transformer(dropout=0.3), consistency=teacher)
    model.fit(*sentences(), verbose=0)
    checkpoints = Checkpoints(tmp_path)
    loaded = checkpoints.load(checkpoints.save(model, 1))
    loaded.consistency = teacher
    states = [
        [ops.convert_to_numpy(x).tolist() for x in seed_states(encoder)]
        for encoder in (model.encoder, loaded.encoder)
    ]
    assert len(states[0]) > 1
    assert states[0] == states[1]
    text = sentences()
    losses = [x.fit(*text, verbose=0).history["loss"] for x in (model, loaded)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_teacher_that_is_no_model_is_refused():
    with pytest.raises(ValueError, match=r"such as `translator.model`. .*: a str\."):
        Distillation("runs/en-de")


def test_a_teacher_of_another_vocabulary_is_refused():
    teacher = transformer(5, vocabulary=VOCABULARY + 4)
    model = compiled(transformer(), consistency=Distillation(teacher))
    with pytest.raises(ValueError, match="of 13 tokens. Received: one of 17"):
        model.fit(*sentences(), verbose=0)


def test_negative_weights_are_refused():
    with pytest.raises(ValueError, match="`weight` must be zero or positive. .*=-1"):
        Distillation(transformer(), -1)
