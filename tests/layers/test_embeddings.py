import keras
import numpy as np
import pytest
from gradients import gradients
from keras import ops
from layer_contract import ReadMask, check_layer

from keras_transformer.layers import EncoderBlock, TokenEmbedding
from keras_transformer.models import TextEncoder

BATCH, LENGTH, VOCABULARY, WIDTH = 2, 5, 11, 3
IDS = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, LENGTH)).astype("int32")
STATES = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
SETTINGS = {"vocabulary_size": VOCABULARY, "hidden_dim": WIDTH, "pad_id": 7}


def mask_of(tensor):
    probe = ReadMask()
    probe(tensor)
    return probe.mask


def test_embedding_keeps_the_contract_of_layers():
    check_layer(TokenEmbedding, SETTINGS, IDS, (BATCH, LENGTH, WIDTH))


def test_scoring_keeps_the_contract_of_layers():
    check_layer(
        TokenEmbedding,
        SETTINGS,
        {"inputs": STATES, "reverse": True},
        (BATCH, LENGTH, VOCABULARY),
        expected_output_dtype="float32",
    )


def test_vectors_are_rows_of_the_table_times_the_root_of_the_width():
    layer = TokenEmbedding(VOCABULARY, WIDTH)
    vectors = ops.convert_to_numpy(layer(IDS))
    (table,) = layer.get_weights()
    np.testing.assert_allclose(vectors, table[IDS] * np.sqrt(WIDTH), 1e-6)


def test_new_vectors_have_unit_variance():
    layer = TokenEmbedding(vocabulary_size=997, hidden_dim=101)
    vectors = ops.convert_to_numpy(layer(np.arange(997)[None]))
    np.testing.assert_allclose(np.var(vectors), 1, 0.05)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_scores_are_products_with_the_same_table(dtype):
    layer = TokenEmbedding(VOCABULARY, WIDTH, dtype=dtype)
    layer(IDS)
    (table,) = layer.get_weights()
    logits = layer(STATES, reverse=True)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    tolerance = {"float32": 1e-6, "mixed_float16": 1e-2, "mixed_bfloat16": 5e-2}
    np.testing.assert_allclose(logits, STATES @ table.T, 0, tolerance[dtype])


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("shape", [(BATCH, LENGTH, WIDTH), (LENGTH, WIDTH)])
def test_scores_slope_as_products_with_the_table_do(shape, dtype):
    random = np.random.default_rng(3)
    states = random.normal(size=shape).astype("float32")
    table = random.normal(size=(VOCABULARY, WIDTH)).astype("float32")
    upstream = random.normal(size=(*shape[:-1], VOCABULARY)).astype("float32")
    layer = TokenEmbedding(VOCABULARY, WIDTH, dtype=dtype)
    layer.build()

    def total(states, table):
        logits, _ = layer.stateless_call([table], [], states, reverse=True)
        return ops.sum(ops.multiply(logits, upstream))

    of_states, of_table = gradients(total, [states, table])
    tolerance = {"float32": 1e-5, "mixed_float16": 1e-2, "mixed_bfloat16": 1e-1}
    np.testing.assert_allclose(of_states, upstream @ table, 0, tolerance[dtype])
    expected = upstream.reshape(-1, VOCABULARY).T @ states.reshape(-1, WIDTH)
    np.testing.assert_allclose(of_table, expected, 0, tolerance[dtype])


def test_no_states_have_no_scores():
    layer = TokenEmbedding(VOCABULARY, WIDTH)
    assert layer(STATES[:0], reverse=True).shape == (0, LENGTH, VOCABULARY)


def test_the_mask_of_the_real_tokens_travels_with_the_vectors():
    ids = np.array([[5, 7, 7], [0, 1, 7]])
    mask = mask_of(TokenEmbedding(**SETTINGS)(ids))
    np.testing.assert_array_equal(mask, [[True, False, False], [True, True, False]])


def test_the_mask_travels_on_through_the_scores():
    layer = TokenEmbedding(VOCABULARY, WIDTH)
    ids = np.array([[5, 7, 0], [0, 1, 7]])
    np.testing.assert_array_equal(mask_of(layer(layer(ids), reverse=True)), ids != 0)


@pytest.mark.parametrize("dtype", ["float16", "bool"])
def test_ids_that_cannot_be_told_are_refused(dtype):
    with pytest.raises(ValueError, match="`ids` must be integers.* `keras.Input"):
        TokenEmbedding(VOCABULARY, WIDTH)(IDS.astype(dtype))


def test_a_sequential_model_begins_with_an_embedding():
    layer = TokenEmbedding(**SETTINGS)
    ids = np.array([[5, 7, 3], [7, 1, 7]])
    vectors = keras.Sequential([layer])(ids)  # which calls the layer with floats
    np.testing.assert_array_equal(mask_of(vectors), ids != 7)
    vectors = ops.convert_to_numpy(vectors)
    np.testing.assert_array_equal(vectors, ops.convert_to_numpy(layer(ids)))


@keras.saving.register_keras_serializable(package="keras_transformer_tests")
class Subclassed(keras.Model):
    """Is built by Keras when it is loaded, by calls with float32."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = TokenEmbedding(VOCABULARY, 8)
        self.block = EncoderBlock(2, 16)
        self.encoder = TextEncoder(VOCABULARY, 1, 8, 2, 16)
        self.head = keras.layers.Dense(3)

    def call(self, ids):
        return self.head(self.block(self.embedding(ids)) + self.encoder(ids))


@pytest.mark.filterwarnings("error:Model .* had a build config")
def test_a_subclassed_model_is_loaded_with_its_weights(tmp_path):
    model = Subclassed()
    expected = ops.convert_to_numpy(model(IDS))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(ops.convert_to_numpy(loaded(IDS)), expected)


@pytest.mark.quick("int4")
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_quantised_table_embeds_and_scores_nearly_as_before(mode):
    layer = TokenEmbedding(**SETTINGS)
    outputs = []
    for quantize in (layer.build, lambda: layer.quantize(mode)):
        quantize()
        states = layer(IDS), layer(STATES, reverse=True)
        outputs.append([ops.convert_to_numpy(x) for x in states])
        assert keras.backend.standardize_dtype(states[1].dtype) == "float32"
        np.testing.assert_array_equal(mask_of(states[0]), IDS != 7)
    largest = {"int8": 0.02, "int4": 0.3}[mode]
    for before, after in zip(*outputs, strict=True):
        error = np.max(np.abs(after - before)) / np.max(np.abs(before))
        assert 0 < error < largest


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("shape", [(3, 5, 7), (3, 7)])
def test_a_scorer_prepared_for_many_calls_scores_as_a_call_does(shape, dtype):
    embedding = TokenEmbedding(11, 7, dtype=dtype)
    embedding.build()
    states = np.random.default_rng(5).normal(size=shape).astype("float32")
    states = ops.cast(states, embedding.compute_dtype)
    expected, found = (
        embedding(states, reverse=True),
        embedding.logits_function()(states),
    )
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(
        ops.convert_to_numpy(found), ops.convert_to_numpy(expected), atol=1e-6
    )


class Scorer(keras.layers.Layer):
    def __init__(self, embedding):
        super().__init__(dtype=embedding.dtype_policy)
        self.embedding = embedding

    def call(self, states):
        return self.embedding(states, reverse=True)


def test_within_another_layer_the_products_have_the_same_precision():
    embedding = TokenEmbedding(VOCABULARY, WIDTH, dtype="mixed_bfloat16")
    states = ops.cast(STATES, "bfloat16")
    expected = ops.convert_to_numpy(embedding(states, reverse=True))
    found = ops.convert_to_numpy(Scorer(embedding)(states))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "name", ["tie_weights", "reverse_dtype", "logit_soft_cap", "mask_zero", "lora_rank"]
)
def test_what_it_has_not_is_refused(name):
    with pytest.raises(ValueError, match=f"`TokenEmbedding` has no `{name}`"):
        TokenEmbedding(VOCABULARY, WIDTH, **{name: 1})


def test_an_adaptation_that_would_not_be_loaded_is_refused():
    embedding = TokenEmbedding(VOCABULARY, WIDTH)
    embedding.build()
    with pytest.raises(ValueError, match="low-rank adaptation is for projections"):
        embedding.enable_lora(2)


def test_a_vocabulary_and_a_width_are_positive():
    with pytest.raises(ValueError, match="`hidden_dim` must be a positive integer"):
        TokenEmbedding(VOCABULARY, 0)


def test_a_table_is_loaded_with_the_settings_that_quantised_it(tmp_path):
    inputs = keras.Input((None, WIDTH))
    embedding = TokenEmbedding(VOCABULARY, WIDTH)
    embedding.build()
    model = keras.Model(inputs, embedding(inputs, reverse=True))
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    embedding.quantize(config=config)
    model.save(tmp_path / "model.keras")
    twin = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(twin(STATES), model(STATES))
