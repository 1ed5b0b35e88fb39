"""The order of the tests, and the fixtures that several folders share."""

import gc
import os
from pathlib import Path

import pytest

# Programs that tests run in other processes; pytest must not import them.
collect_ignore = [
    "interop/make_fixtures.py",
    "interop/run_transformers.py",
    "serving/c_interface.py",
    "serving/fresh_process.py",
]

REPOSITORY = Path(__file__).parents[1]
VARIABLE = "KERAS_TRANSFORMER_MULTI30K"

# These files run first, so that all workers finish at about the same time.
SLOWEST_FILES = [
    "test_recipe.py",
    "test_training.py",
    "test_distribution.py",
    "test_tutorials.py",
    "test_exports.py",
    "test_older_files.py",
    "test_readme.py",
    "test_saved_model.py",
    "test_shell.py",
    "test_language_model.py",
    "test_transformer.py",
    "test_transformer_positions.py",
    "test_runner.py",
]

# Left to `make test-slow`: parts of ids of tests that take long and have a sibling
# that is quicker, here or in another file.
SLOW_TESTS = [
    "test_multi_worker.py",
    "test_the_tutorial_runs_to_its_end[02_positions",
    "test_the_tutorial_runs_to_its_end[04_looking",
    "test_the_tutorial_runs_to_its_end[06_a_language",
    "test_the_tutorial_runs_to_its_end[07_a_vision",
    "test_the_tutorial_runs_to_its_end[08_many",
    "test_a_training_step_never_holds_the_scores_of_a_long_input[jit_compile]",
    # test_saved_model.py
    "test_half_precision_is_exported_as_it_is_live",
    "test_a_drawn_translation_is_exported_with_its_seed",
    "test_an_export_ends_before_stop_strings_as_the_translator",
    "test_the_command_line_of_tensorflow_runs_an_export",
    "test_versions_stand_side_by_side_with_vocabularies",
    # decoding
    "test_batches_of_another_size_go_on_by_themselves_too",
    "test_memory_and_cache_go_on_as_they_were[language model]",
    "test_a_batch_stays_whole_until_enough_was_wasted",
    "test_any_controls_together_hold_in_what_is_drawn",
    "search_returns_the_same[True-Sampling(temperature=1.0",
    "search_returns_the_same[True-BeamSearch(beam_width=2",
    "search_returns_the_same[False-BeamSearch(beam_width=2",
    "find_what_they_find_together[Sampling(temperature=1.0, top_k=3",
    "find_what_they_find_together[BeamSearch(beam_width=2",
    # runs and the shell, whose kills test_kills.py repeats
    "test_ctrl_c_leaves_the_last_epoch_and_says_how_to_go_on",
    "test_the_same_command_goes_on_after_the_last_epoch",
    "test_two_vocabularies_and_a_training_that_ends_without_gain",
    "test_a_run_that_goes_on_cools_down_where_it_ends_now",
    "test_a_run_that_was_cut_off_goes_on_as_if_it_had_not",
    "test_options_control_what_is_produced[option1",
    "test_options_control_what_is_produced[option2",
    "test_options_control_what_is_produced[option3",
    "test_every_line_that_is_translated_has_a_picture_of_its_own",
    # models
    "train_a_step_and_generate[mixed_float16]",
    "test_any_mix_of_lengths_gives_what_each_sentence_gives_alone[sampling]",
    "test_exports.py::test_an_export_gives_the_live_numbers[openvino-L",
    "test_exports.py::test_an_export_gives_the_live_numbers[openvino-V",
    "test_exports.py::test_an_export_gives_the_live_numbers[litert-L",
    "test_exports.py::test_an_export_gives_the_live_numbers[litert-V",
    "test_exports.py::test_an_export_gives_the_live_numbers[onnx-L",
    "test_exports.py::test_an_export_gives_the_live_numbers[onnx-V",
    "test_greedy_with_a_cache_is_greedy_without[concatenated]",
    "test_greedy_with_a_cache_is_greedy_without[learned]",
    "test_a_seed_repeats_what_a_model_drops[LanguageModel",
    "test_a_seed_repeats_what_a_model_drops[MaskedLanguageModel",
    "test_a_seed_repeats_what_a_model_drops[TextEncoder",
    "test_a_seed_repeats_what_a_model_drops[VisionTransformer",
    "test_a_reloaded_model_gives_the_live_logits_and_texts[mixed_bfloat16]",
    "test_importing_the_package_is_enough_to_load_a_compiled_model[keras",
    "test_importing_the_package_is_enough_to_load_a_model[keras first",
    "test_sample_weights_weigh_the_slices",
    "test_a_step_in_slices_equals_that_of_keras[7-3]",
    "test_a_step_in_slices_equals_that_of_keras[1-2]",
    "test_scores_are_those_of_the_model_without_a_cache[pre-norm]",
    "test_scores_are_those_of_the_model_without_a_cache[two",
    "test_a_saved_model_keeps_its_slices[2]",
    "TextEncoder-int4]",
    "TextClassifier-int4]",
    "MaskedLanguageModel-int4]",
    "VisionTransformer-int4]",
    "test_a_reloaded_model_keeps_its_positions[concatenated]",
    "test_a_reloaded_model_keeps_its_positions[learned]",
    "test_a_reloaded_model_gives_the_live_logits_and_texts[other",
    # layers
    "test_the_decoder_keeps_the_contract_of_layers[True-Decoder]",
    "test_the_encoder_keeps_the_contract_of_layers[True-Encoder]",
    "test_stacks_with_positions_keep_the_contract_of_layers[Decoder-rotary]",
    "test_stacks_with_positions_keep_the_contract_of_layers[Decoder-sinusoidal]",
    "test_stacks_with_positions_keep_the_contract_of_layers[Decoder-linear",
    "test_stacks_with_positions_keep_the_contract_of_layers[Encoder-rotary]",
    # other systems
    "test_a_checkpoint_is_saved_and_served",
    "test_texts_are_translated_as_by_the_original[m2m_100]",
    "test_texts_are_translated_as_by_the_original[marian_separate]",
    "test_texts_are_translated_as_by_the_original[pegasus]",
    # data of other languages
    "test_every_phrase_has_one_answer[locales1]",
    "test_every_phrase_has_one_answer[locales2]",
    "test_no_phrase_is_drawn_twice[de-ja]",
    "test_no_phrase_is_drawn_twice[en-ar]",
    "test_no_phrase_is_drawn_twice[pt-sv]",
]


# First, so that the option `-m` sees the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if any(part in item.nodeid for part in SLOW_TESTS):
            item.add_marker(pytest.mark.slow)
    order = {name: i for i, name in enumerate(SLOWEST_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="session")
def multi30k():
    """Folder of the Multi30k corpus; skips the test if it is missing."""
    folder = Path(os.environ.get(VARIABLE, REPOSITORY / "../shared/data/multi30k"))
    if not folder.is_dir():
        pytest.skip(f"Multi30k is not in {folder}: set {VARIABLE} to its folder.")
    return folder.resolve()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Function from a name and `make` to a folder that one worker alone makes."""
    import fcntl

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def made_once(name, make):
        made = folder / name
        with open(folder / f"{name}.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = folder / f"{name}.done"
            if not done.exists():
                make(made)
                done.touch()
        return made

    return made_once


@pytest.fixture(scope="session")
def small_text(made_once):
    """Folder of the corpus and the recipe, small.yaml, of small_corpus.py."""
    from small_corpus import write_corpus, write_recipe

    def write(folder):
        folder.mkdir()
        write_corpus(folder)
        write_recipe(folder / "small.yaml")

    return made_once("small_text", write)


@pytest.fixture(scope="session")
def trained_by_the_shell(made_once, small_text):
    """Folder of a run of three epochs, and what the command printed, in `stdout`."""

    def train(folder):
        from typer.testing import CliRunner

        from keras_transformer.cli import app

        recipe, run = small_text / "small.yaml", folder / "run"
        options = ["--data", small_text, "--run", run, "--epochs", 3]
        result = CliRunner().invoke(app, list(map(str, ["train", recipe, *options])))
        assert result.exit_code == 0, result.stderr
        assert not result.stderr
        (folder / "stdout").write_text(result.stdout)

    return made_once("trained_by_the_shell", train)


@pytest.fixture
def few_objects_to_collect():
    """Keras collects all garbage of the process for each layer that it quantises."""
    gc.freeze()
    yield
    gc.unfreeze()
