import io
import json
import random

import keras
import numpy as np
import pytest
from matplotlib.figure import Figure

from keras_transformer import plots
from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    GreedySearch,
    NoRepeatNgram,
)
from keras_transformer.layers import SinusoidalPositionalEncoding
from keras_transformer.models import Transformer
from keras_transformer.text import SubwordTokenizer
from keras_transformer.translator import Translator
from keras_transformer.translator.alignment import alignment_weights

QUERIES = ["ein", "Mann", "."]
KEYS = ["a", "man", "on", "it", "."]
LINES = ["a man rides a bike", "a dog rides a man", "a bike", "dogs and men ride"]
LOG = (
    "epoch,loss,perplexity,val_loss,val_bleu,val_chrf,learning_rate,seconds\n"
    "1,7,1100,6,,,0.1,13\n"
    "2,5,148,4,11,37,0.2,17\n"
    "3,4,,3,NA,,0.1,19\n"
)


def random_scores(*shape):
    scores = np.random.random((*shape, len(QUERIES), len(KEYS))).astype("float32")
    return scores / scores.sum(axis=-1, keepdims=True)


def image(axes):
    return axes.images[0].get_array()


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def map_of(tokens):
    return plots.attention_map(tokens, tokens, np.eye(len(tokens)))


def render(figure):
    """Draws a figure as it would be written; warnings of it are errors."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


@pytest.fixture(scope="module")
def translator():
    random.seed(7)  # of the model's weights, whichever tests ran before
    tokenizer = SubwordTokenizer.train(LINES, vocabulary_size=29)
    model = Transformer(
        29, num_layers=2, hidden_dim=12, num_heads=3, intermediate_dim=11
    )
    return Translator(model, tokenizer, max_source_length=17)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG, encoding="utf-8")
    return path


def test_a_matrix_of_scores_is_one_map():
    scores = random_scores()
    figure = plots.attention_map(QUERIES, KEYS, scores)
    axes, scale = figure.axes
    np.testing.assert_array_equal(image(axes), scores)
    assert labels(axes.yaxis) == QUERIES
    assert labels(axes.xaxis) == KEYS
    assert axes.get_title() == ""
    assert scale.get_ylim() == (0, pytest.approx(scores.max()))


@pytest.mark.parametrize("heads", [1, 2, 5, 8])
def test_the_scores_of_a_layer_are_a_map_for_each_head(heads):
    scores = random_scores(heads)
    *maps, _ = plots.attention_map(QUERIES, KEYS, scores).axes
    assert [axes.get_title() for axes in maps] == [f"head {i}" for i in range(heads)]
    np.testing.assert_array_equal([image(axes) for axes in maps], scores)


def test_the_scores_of_all_layers_are_a_row_of_maps_for_each_layer():
    scores = random_scores(2, 5)
    *maps, _ = plots.attention_map(QUERIES, KEYS, scores).axes
    drawn = np.reshape([image(axes) for axes in maps], scores.shape)
    np.testing.assert_array_equal(drawn, scores)
    rows = [axes.get_subplotspec().rowspan.start for axes in maps]
    assert rows == [0] * 5 + [1] * 5
    assert [axes.get_title() for axes in maps[:5]] == [f"head {i}" for i in range(5)]
    assert [maps[0].get_ylabel(), maps[5].get_ylabel()] == ["layer 0", "layer 1"]


def test_only_the_first_row_and_column_of_maps_have_labels():
    *maps, _ = plots.attention_map(QUERIES, KEYS, random_scores(2, 3)).axes
    assert [labels(axes.xaxis) for axes in maps] == [KEYS] * 3 + [[]] * 3
    assert [labels(axes.yaxis) for axes in maps] == [QUERIES, [], []] * 2


def test_all_maps_of_a_figure_share_one_scale():
    scores = random_scores(5)
    *maps, _ = plots.attention_map(QUERIES, KEYS, scores).axes
    assert {axes.images[0].get_clim() for axes in maps} == {(0, scores.max())}


def test_scores_may_be_a_tensor_of_half_precision():
    scores = keras.ops.cast(random_scores(), "bfloat16")
    axes, _ = plots.attention_map(QUERIES, KEYS, scores).axes
    np.testing.assert_array_equal(image(axes), keras.ops.cast(scores, "float32"))


def test_scores_of_nothing_but_zeros_are_drawn_as_zeros():
    axes, _ = plots.attention_map(QUERIES, KEYS, np.zeros((3, 5))).axes
    assert axes.images[0].norm(image(axes)).max() == 0


@pytest.mark.parametrize("shape", [(5, 3), (3,), (3, 7), (2, 5, 3), (1, 1, 1, 3, 5)])
def test_scores_that_do_not_go_with_the_tokens_are_refused(shape):
    with pytest.raises(ValueError, match=r"of tokens, \(3, 5\). Received: scores "):
        plots.attention_map(QUERIES, KEYS, np.zeros(shape))


def test_a_map_without_tokens_is_refused():
    with pytest.raises(ValueError, match=r"Received: scores of shape \(0, 5\)"):
        plots.attention_map([], KEYS, np.zeros((0, 5)))


def test_subwords_are_labelled_as_pieces_of_words():
    tokens = ["\u2581bi", "ke", "s", ".", "\u2581", "\u2581a\u2581b", "</s>"]
    shown = ["bi", "·ke", "·s", ".", "\u2423", "a b", "</s>"]
    assert labels(map_of(tokens).axes[0].yaxis) == shown


def test_words_are_labelled_as_they_are():
    tokens = ["bikes", "1", "<s>", "man"]
    assert labels(map_of(tokens).axes[0].xaxis) == tokens


@pytest.mark.parametrize("language", ["<s>", "arb_Arab", "__ar__", ">>ara<<", "ar_AR"])
@pytest.mark.parametrize(("word", "leftward"), [("שלום", True), ("Hund", False)])
def test_columns_run_as_the_text_of_the_keys_is_read(word, leftward, language):
    figure = plots.attention_map(["a"], [language, f"\u2581{word}"], [[1.0, 0.0]])
    assert figure.axes[0].xaxis_inverted() == leftward
    assert not plots.attention_map([word], ["a"], [[1.0]]).axes[0].xaxis_inverted()


def test_a_very_long_token_is_cut():
    figure = map_of(["a" * 1009, "a" * 20])
    assert labels(figure.axes[0].xaxis) == ["a" * 19 + "…", "a" * 20]
    assert render(figure)


@pytest.mark.parametrize(
    "token",
    [
        "我喜欢",
        "مرحبا",
        "हिन्दी",
        "🙂",
        "$\\frac{$",
        "a\nb\x00",
        "\ud800",
        "\u202e",
        "",
    ],
)
def test_any_script_is_drawn_without_a_warning(token):
    assert render(map_of(["a", token]))


def test_a_character_is_taken_from_whichever_font_has_it():
    arc = "\u2312"  # of the fonts that come with Matplotlib, not in the usual one
    figure = map_of([arc])
    assert labels(figure.axes[0].xaxis) == [arc]
    assert render(figure)


def test_a_character_that_no_font_has_is_a_box():
    assert labels(map_of(["a\U0010fff0"]).axes[0].xaxis) == ["a\u25a1"]


def test_a_figure_grows_with_its_tokens():
    sizes = [map_of(["token"] * count).get_size_inches() for count in (1, 7, 31, 503)]
    assert (np.diff(sizes, axis=0) > 0).all()
    assert np.min(sizes) > 2


@pytest.mark.quick("shape0", "shape1", "shape2")
@pytest.mark.parametrize("shape", [(503, 7), (7, 503), (5, 53, 53), (5, 2, 53, 53)])
def test_a_figure_of_much_is_no_larger_than_a_screen(shape):
    tokens = [["token"] * count for count in shape[-2:]]
    figure = plots.attention_map(*tokens, np.zeros(shape))
    assert figure.get_size_inches().max() < 18


def test_labels_that_are_too_many_are_left_out_evenly():
    tokens = [f"t{number}" for number in range(503)]
    axis = map_of(tokens).axes[0].xaxis
    places = axis.get_ticklocs()
    assert 100 < len(places) < 300
    assert len(set(np.diff(places))) == 1
    assert labels(axis) == [tokens[place] for place in places]
    assert all(5 <= label.get_fontsize() <= 10 for label in axis.get_ticklabels())


@pytest.mark.slow
@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(3)])
def test_the_attended_translation_is_the_translation(translator, search):
    text = "a dog rides"
    seen = plots.translate_with_attention(translator, text, search)
    assert seen.text == translator.translate([text], search)[0]
    assert "".join(seen.source_tokens) == "\u2581a\u2581dog\u2581rides</s>"
    written = [token for token in seen.target_tokens if not token.startswith("<")]
    assert "".join(written).replace("\u2581", " ").strip() == seen.text


def test_attention_is_kept_of_every_layer_and_head(translator):
    seen = plots.translate_with_attention(translator, "a dog rides")
    source, target = len(seen.source_tokens), len(seen.target_tokens)
    assert {name: scores.shape for name, scores in seen.scores.items()} == {
        "encoder": (2, 3, source, source),
        "decoder": (2, 3, target, target),
        "cross": (2, 3, target, source),
    }
    for scores in seen.scores.values():
        np.testing.assert_allclose(scores.sum(axis=-1), 1, rtol=1e-5)


def test_a_token_looks_at_the_source_with_what_was_written_before_it(translator):
    seen = plots.translate_with_attention(translator, "a dog rides", GreedySearch())
    tokenizer, model = translator.source_tokenizer, translator.model
    source_ids, _ = translator.encode(["a dog rides"])
    pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
    ids = [pieces.index(token) for token in ("<s>", *seen.target_tokens)]
    scores = model.attention_scores(source_ids, np.array([ids[:-1]]))
    np.testing.assert_allclose(seen.scores["cross"], scores["cross"][:, 0], atol=1e-6)


def test_the_attention_of_every_hypothesis_is_that_of_the_model(translator):
    text, search = "a dog rides", BeamSearch(3, num_hypotheses=3)
    found = plots.translate_n_best_with_attention(translator, text, search)
    (wanted,) = translator.translate_n_best([text], search)
    wanted = [(each.text, each.score) for each in wanted]
    assert [(each.text, each.score) for each in found] == wanted
    tokenizer, model = translator.source_tokenizer, translator.model
    source_ids, _ = translator.encode([text])
    pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
    page = plots.attention_html(*found)
    shown = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    for each, translation in zip(found, shown["translations"], strict=True):
        assert (translation["text"], translation["score"]) == (each.text, each.score)
        ids = [pieces.index(token) for token in ("<s>", *each.target_tokens)]
        scores = model.attention_scores(source_ids, np.array([ids[:-1]]))
        for kind in translation["kinds"]:
            weights = np.array(kind["layers"]) / 1000
            np.testing.assert_allclose(weights, scores[kind["name"]][:, 0], atol=5.1e-4)


@pytest.mark.quick("1")
@pytest.mark.parametrize("num_layers", [1, 3])
def test_a_translation_is_drawn_with_the_weights_that_align_compares(
    num_layers, translator
):
    tokenizer = translator.source_tokenizer
    sizes = {"hidden_dim": 12, "num_heads": 3, "intermediate_dim": 11}
    model = Transformer(29, num_layers=num_layers, **sizes)
    translator = Translator(model, tokenizer, max_source_length=17)
    seen = plots.translate_with_attention(translator, "a dog rides")
    figure = plots.translation_attention(translator, "a dog rides")
    axes, _ = figure.axes
    source_ids, _ = translator.encode(["a dog rides"])
    pieces = tokenizer.pieces(range(29))
    target_ids = np.array([[pieces.index(each) for each in seen.target_tokens]])
    (weights,) = alignment_weights(model, source_ids, target_ids)
    np.testing.assert_allclose(image(axes), weights, rtol=1e-4, atol=1e-6)
    assert labels(axes.xaxis)[-1] == "</s>"
    assert len(labels(axes.yaxis)) == len(seen.target_tokens)
    assert figure.get_supxlabel() == "source"
    assert figure.get_supylabel() == "translation"


@pytest.mark.parametrize("text", ["", " \t", "\u3000\u200b", None, ["a dog"]])
def test_a_text_without_a_word_is_refused(translator, text):
    with pytest.raises(ValueError, match="`text` must be a str with a word. Received:"):
        plots.translation_attention(translator, text)


@pytest.mark.filterwarnings("ignore:The model computes NaN, or the proc")
def test_a_search_that_finds_nothing_is_told(translator):
    every_token = range(translator.target_tokenizer.vocabulary_size)
    search = GreedySearch([BannedIds(every_token)])
    with pytest.raises(ValueError, match="forbid every token. Received: a Greedy"):
        plots.translation_attention(translator, "a dog rides", search)


@pytest.mark.filterwarnings("ignore:The model computes NaN, or the proc")
def test_a_hypothesis_that_ends_nowhere_is_left_out(translator):
    banned = [index for index in range(29) if index not in (7, 8)]
    search = GreedySearch([BannedIds(banned), NoRepeatNgram(1)])
    arguments = translator, "a dog rides", search, 6
    assert plots.translate_n_best_with_attention(*arguments) == []
    with pytest.raises(ValueError, match="forbid every token. Received: a Greedy"):
        plots.translate_with_attention(*arguments)


def test_attention_needs_a_translator(translator):
    with pytest.raises(ValueError, match="Received: a SubwordTokenizer"):
        plots.translate_with_attention(translator.source_tokenizer, "a dog")


def test_a_text_that_is_cut_is_told(translator):
    with pytest.warns(UserWarning, match="max_source_length=17 subwords and was cut"):
        seen = plots.translate_with_attention(translator, "a dog rides " * 13)
    assert len(seen.source_tokens) == 17


def test_a_position_table_shows_the_encoding():
    table = SinusoidalPositionalEncoding()(np.zeros((1, 13, 6)))[0]
    axes, _ = plots.position_table(table).axes
    np.testing.assert_array_equal(image(axes), table)
    low, high = axes.images[0].get_clim()
    assert -low == high == np.max(np.abs(table))


@pytest.mark.parametrize("shape", [(13,), (1, 13, 6), (0, 6)])
def test_a_position_table_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"must have the shape \(length, encoding_dim"):
        plots.position_table(np.zeros(shape))


def curves(axes):
    return {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}


def test_training_curves_show_the_log_of_a_run(log):
    loss, perplexity, bleu, chrf = plots.training_curves(log).axes
    assert curves(loss) == {
        "training": [[1, 7], [2, 5], [3, 4]],
        "validation": [[1, 6], [2, 4], [3, 3]],
    }
    assert curves(perplexity) == {"training": [[1, 1100], [2, 148]]}
    assert curves(bleu) == {"validation": [[2, 11]]}
    assert curves(chrf) == {"validation": [[2, 37]]}
    titles = [axes.get_title() for axes in (loss, perplexity, bleu, chrf)]
    assert titles == ["loss", "perplexity", "BLEU", "chrF"]
    assert loss.get_xlim() == bleu.get_xlim()


def test_training_curves_show_what_fit_returns():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    data = (np.ones((4, 3)), np.ones((4, 1)))
    history = model.fit(*data, epochs=5, validation_data=data, verbose=0)
    loss, error = plots.training_curves(history).axes
    assert error.get_title() == "mae"
    drawn = curves(loss)
    assert [value for _, value in drawn["training"]] == history.history["loss"]
    assert [epoch for epoch, _ in drawn["training"]] == [1, 2, 3, 4, 5]
    assert [epoch for epoch, _ in drawn["validation"]] == [1, 2, 3, 4, 5]


def test_a_history_that_lacks_epochs_is_refused():
    history = keras.callbacks.History()
    history.epoch = [0, 1, 2]
    history.history = {"loss": [3.0, 2.0, 1.0], "val_loss": [2.0]}
    with pytest.raises(ValueError, match="val_loss for every epoch.* 1 values in 3"):
        plots.training_curves(history)


@pytest.mark.parametrize("text", ["", "epoch,loss\n", "epoch,seconds\n1,3\n"])
def test_a_log_without_an_epoch_is_refused(log, text):
    log.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="`log` must hold an epoch. Received: log=/"):
        plots.training_curves(log)


def test_what_is_no_text_is_no_log(log):
    log.write_bytes(b"\xffPK\x03\x04\n\xec\xff")
    with pytest.raises(
        ValueError, match=r"log.csv:2 is not the log .* Pass the log.csv"
    ):
        plots.training_curves(log)


@pytest.mark.parametrize("row", ["2,low", "2,5,7", "two,5", "2"])
def test_a_faulty_row_of_a_log_is_named(log, row):
    log.write_text(f"epoch,loss\n1,7\n{row}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"log.csv:3 is not the log of an epoch"):
        plots.training_curves(log)


def test_a_table_without_epochs_is_refused(log):
    log.write_text("loss\n7\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"log.csv:2 is not the log of an epoch"):
        plots.training_curves(log)


def test_a_missing_log_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing.csv"):
        plots.training_curves(tmp_path / "missing.csv")


@pytest.mark.quick("positions")
@pytest.mark.parametrize(
    "draw",
    [
        lambda log, translator: plots.attention_map(QUERIES, KEYS, random_scores(2, 3)),
        lambda log, translator: plots.translation_attention(translator, "a dog"),
        lambda log, translator: plots.position_table(np.ones((3, 5))),
        lambda log, translator: plots.training_curves(log),
    ],
    ids=["attention", "translation", "positions", "training"],
)
def test_a_figure_can_be_written_and_touches_no_other(log, translator, draw, tmp_path):
    from matplotlib import pyplot, rcParams

    settings = dict(rcParams)
    figure = draw(log, translator)
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    assert pyplot.get_fignums() == []
    assert dict(rcParams) == settings
