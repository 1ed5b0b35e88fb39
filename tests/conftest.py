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
    "test_training.py",
    "test_saved_model.py",
    "test_pipeline.py",
    "test_language_model.py",
    "test_translator.py",
    "test_shell.py",
    "test_adam.py",
    "test_older_files.py",
    "test_readme.py",
    "test_transformer.py",
    "test_generation.py",
    "test_distribution.py",
    "test_tutorials.py",
    "test_masked_language_model.py",
    "test_copy_task.py",
    "test_hugging_face.py",
    "test_exports.py",
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
    "test_the_c_interface_gives_the_live_translations",
    "test_a_compiled_export_gives_the_live_translations",
    "test_an_export_translates_the_same_without_the_package",
    "test_a_full_disk_leaves_no_export",
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
    "find_what_they_find_together[GreedySearch(processors=(ForcedPrefix",
    "find_what_they_find_together[Sampling(temperature=1.0, top_k=None",
    "search_returns_the_same[False-",
    "search_returns_the_same[True-Sampling(temperature=0.7",
    "what_it_gets_alone[Sampling(temperature=1.0",
    "what_it_gets_alone[BeamSearch(beam_width=2",
    "test_where_xla_compiles_the_rows_of_one_sentence_are_parted[False]",
    "test_memory_and_cache_go_on_as_they_were[transformer]",
    "test_halves_of_a_batch_side_by_side_find_what_it_finds",
    "[True-BeamSearch(beam_width=3, length_penalty=0.6, num_hypotheses=1",
    "together[BeamSearch(beam_width=3, length_penalty=0.6, num_hypotheses=1",
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
    "test_the_demo_trains_translates_and_exports",
    "test_options_choose_the_search[options2",
    "test_invalid_settings_are_reported[options4",
    "test_invalid_settings_are_reported[options5",
    "test_training_goes_on_with_the_weights_and_tokenizers",
    "test_the_translator_is_the_mean_of_the_last_checkpoints[7]",
    "test_a_kill_in_the_middle_of_a_checkpoint_leaves_the_last_whole_one",
    "test_a_kill_while_writing_leaves_a_complete_file[replace_file-",
    # models
    "train_a_step_and_generate[mixed_float16]",
    "test_any_mix_of_lengths_gives_what_each_sentence_gives_alone[sampling]",
    "test_any_mix_of_lengths_gives_what_each_sentence_gives_alone[greedy]",
    "test_prompts_of_mixed_lengths_give_what_each_gives_alone[greedy]",
    "test_prompts_of_mixed_lengths_give_what_each_gives_alone[sampling]",
    "test_a_beam_as_wide_as_the_space_finds_what_enumeration_finds[0]",
    "test_a_beam_as_wide_as_the_space_finds_what_enumeration_finds[2]",
    "train_a_step_and_generate[mixed_bfloat16]",
    "test_copies_of_a_model_that_generates_have_no_programs",
    "test_a_model_compiled_again_does_not_keep_its_old_programs",
    "test_generate_follows_new_weights_and_leaves_the_model_as_it_was",
    "test_what_is_compiled_finds_what_is_not[linear bias]",
    "test_a_beam_of_one_finds_what_greedy_search_finds",
    "test_any_kind_of_integers_in_arrays_or_tensors_will_do",
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
    "test_language_model.py::test_scores_are_those_of_the_model_without_a_cache[mixed_float16",
    "test_language_model.py::test_scores_are_those_of_the_model_without_a_cache[mixed_bfloat16",
    "test_language_model.py::test_neither_padding_nor_the_future_changes_a_logit[mixed_float16",
    "test_language_model.py::test_neither_padding_nor_the_future_changes_a_logit[post",
    "test_language_model.py::test_scores_are_those_of_the_model_without_a_cache[post-norm",
    "test_language_model.py::test_scores_are_those_of_the_model_without_a_cache[pre-norm-greedy",
    "a_cache_in_every_scheme_of_positions[none-mixed",
    "a_cache_in_every_scheme_of_positions[learned-mixed",
    "a_cache_in_every_scheme_of_positions[sinusoidal-mixed",
    "a_cache_in_every_scheme_of_positions[concatenated-mixed",
    "a_cache_in_every_scheme_of_positions[linear bias-mixed",
    "test_beams_in_half_precision_are_scored_as_without_a_cache[none",
    "test_beams_in_half_precision_are_scored_as_without_a_cache[learned",
    "test_beams_in_half_precision_are_scored_as_without_a_cache[sinusoidal",
    "test_beams_in_half_precision_are_scored_as_without_a_cache[concatenated",
    "test_beams_in_half_precision_are_scored_as_without_a_cache[linear bias",
    "test_every_scheme_trains[none]",
    "test_every_scheme_trains[sinusoidal]",
    "test_every_scheme_trains[linear bias]",
    "test_every_scheme_trains[learned]",
    "test_greedy_with_a_cache_is_greedy_without[none]",
    "test_learned_positions_end_where_they_say[concatenated]",
    "test_transformer_positions.py::test_a_reloaded_model_keeps_its_positions[none]",
    "test_transformer_positions.py::test_a_reloaded_model_keeps_its_positions[sinusoidal]",
    "test_transformer_positions.py::test_a_reloaded_model_keeps_its_positions[rotary]",
    "test_transformer.py::test_neither_padding_nor_the_future_changes_a_logit[rotary",
    "test_transformer.py::test_neither_padding_nor_the_future_changes_a_logit[learned",
    "test_transformer.py::test_neither_padding_nor_the_future_changes_a_logit[pre-norm",
    "test_transformer.py::test_neither_padding_nor_the_future_changes_a_logit[two",
    "test_transformer.py::test_neither_padding_nor_the_future_changes_a_logit[linear",
    "test_transformer.py::test_neither_padding_nor_the_future_changes_a_logit[concat",
    "test_transformer.py::test_neither_padding_nor_the_future_changes_a_logit[mixed_b",
    "test_transformer.py::test_a_reloaded_model_gives_the_live_logits[mixed_float16",
    "test_transformer.py::test_a_reloaded_model_gives_the_live_logits[pre-norm",
    "test_transformer.py::test_a_reloaded_model_gives_the_live_logits[rotary",
    "test_transformer.py::test_a_reloaded_model_gives_the_live_logits[learned",
    "test_transformer.py::test_a_reloaded_model_gives_the_live_logits[linear",
    "test_transformer.py::test_a_reloaded_model_gives_the_live_logits[concatenated",
    "test_logits_are_float32_for_every_target_token[rotary",
    "test_logits_are_float32_for_every_target_token[pre-norm",
    "test_an_exported_model_keeps_its_positions[source of a transformer]",
    "test_text_classifier.py::test_an_export_gives_the_live_logits",
    "test_language_model.py::test_an_export_gives_the_live_logits",
    "test_exports.py::test_an_export_gives_the_live_numbers[litert-Transformer",
    "test_masked_language_model.py::test_an_export_gives_the_live_logits",
    "test_exports.py::test_an_export_gives_the_live_numbers[litert-Text",
    "test_exports.py::test_an_export_gives_the_live_numbers[litert-Masked",
    "test_exports.py::test_an_export_gives_the_live_numbers[onnx-Text",
    "test_exports.py::test_an_export_gives_the_live_numbers[onnx-Masked",
    "test_exports.py::test_an_export_gives_the_live_numbers[openvino-Transformer",
    "test_a_quantised_model_comes_back[Transformer-int4]",
    "test_a_quantised_model_comes_back[TextEncoder-int8]",
    "test_a_quantised_model_comes_back[MaskedLanguageModel-int8]",
    "test_a_quantised_model_comes_back[TextClassifier-int8]",
    "test_a_seed_repeats_what_a_model_drops[TextClassifier",
    "test_a_saved_model_keeps_its_slices[1]",
    "test_layers_train_in_a_graph",
    "test_a_compiled_model_continues_with_its_optimizer_state[layers]",
    "test_a_model_generates_the_same_ids_and_scores[transformer_two_vocabularies]",
    "test_the_dtype_of_the_weights_is_kept[mixed_bfloat16]",
    "test_what_was_read_without_labels_helps_to_classify",
    "test_it_tells_languages_apart_by_their_words",
    "test_importing_the_package_is_enough_to_load_a_compiled_model[one",
    "test_a_model_with_all_options_trains",
    "where_there_are_positions[source of",
    "where_there_are_positions[decoder",
    "test_stem.py::test_a_reloaded_model_keeps_its_positions[pooled",
    "test_stem.py::test_a_reloaded_model_keeps_its_positions[masked",
    "test_stem.py::test_a_reloaded_model_keeps_its_positions[text classifier",
    "test_stem.py::test_a_reloaded_model_keeps_its_positions[source of a transformer-n",
    "test_a_language_model_learns_from_it",
    # layers
    "test_the_decoder_keeps_the_contract_of_layers[True-Decoder]",
    "test_the_encoder_keeps_the_contract_of_layers[True-Encoder]",
    "test_stacks_with_positions_keep_the_contract_of_layers[Decoder-rotary]",
    "test_stacks_with_positions_keep_the_contract_of_layers[Decoder-sinusoidal]",
    "test_stacks_with_positions_keep_the_contract_of_layers[Decoder-linear",
    "test_stacks_with_positions_keep_the_contract_of_layers[Encoder-rotary]",
    "test_stacks_with_positions_keep_the_contract_of_layers[Encoder-sinusoidal]",
    "test_stacks_with_positions_keep_the_contract_of_layers[Encoder-concatenated]",
    "test_the_decoder_keeps_the_contract_of_layers[True-DecoderBlock]",
    "test_the_decoder_keeps_the_contract_of_layers[False-DecoderBlock]",
    "test_the_encoder_keeps_the_contract_of_layers[True-EncoderBlock]",
    "test_the_encoder_keeps_the_contract_of_layers[False-EncoderBlock]",
    "test_a_block_keeps_the_contract_of_layers",
    "test_decoder.py::test_the_contract_holds_with_scores",
    "test_encoder.py::test_the_contract_holds_with_scores",
    "test_lengths_may_be_unknown_until_they_are_read[True]",
    "test_variants_keep_the_contract_of_layers[one head",
    "test_variants_keep_the_contract_of_layers[grouped",
    "test_variants_keep_the_contract_of_layers[soft",
    "test_variants_keep_the_contract_of_layers[window",
    "test_heads_with_a_score_keep_the_contract_of_layers[multiplicative]",
    "test_score_functions_keep_the_contract_of_layers[MultiplicativeAttention-settings1",
    "test_attention_keeps_the_contract_of_layers[init_kwargs0",
    "under_every_combination_of_masks[self-attention-False]",
    "under_every_combination_of_masks[cross-attention-True]",
    "what_the_decoder_makes_of_the_past[float16]",
    "what_the_decoder_makes_of_the_past[bfloat16]",
    "what_the_encoder_makes_of_the_rest[float16]",
    "test_cached_steps_equal_the_whole_call[float16",
    "test_cached_steps_equal_the_whole_call[bfloat16",
    "test_cached_steps_equal_the_whole_call_in_every_scheme_of_positions[float16",
    "test_cached_steps_equal_the_whole_call_in_every_scheme_of_positions[bfloat16-0.15-s",
    "test_cached_steps_equal_the_whole_call_in_every_scheme_of_positions[bfloat16-0.15-l",
    "test_cached_steps_equal_the_whole_call_in_every_scheme_of_positions[bfloat16-0.15-c",
    "test_steps_after_a_prompt_give_what_the_call_gives[rotary-1",
    "test_steps_after_a_prompt_give_what_the_call_gives[sinusoidal-4",
    "test_steps_after_a_prompt_give_what_the_call_gives[sinusoidal-1",
    "test_steps_after_a_prompt_give_what_the_call_gives[linear bias-1",
    "test_steps_after_a_prompt_give_what_the_call_gives[learned-1",
    "test_steps_after_a_prompt_give_what_the_call_gives[concatenated-1",
    "test_steps_after_a_prompt_give_what_the_call_gives[none-4",
    "test_given_positions_are_symbols_of_a_model_that_is_saved[scaled]",
    "test_given_positions_are_symbols_of_a_model_that_is_saved[linear_bias]",
    "test_given_positions_are_symbols_of_a_model_that_is_saved[learned]",
    "test_given_positions_are_symbols_of_a_model_that_is_saved[sinusoidal]",
    "test_a_seed_repeats_all_dropout[Encoder-",
    "test_a_seed_repeats_all_dropout[Decoder-",
    "test_positions_counted_from_zero_are_the_default[CausalDecoder",
    "test_positions_counted_from_zero_are_the_default[Decoder-learned",
    "test_packed_sentences_have_the_states_of_each_alone[CausalDecoder-s",
    "test_packed_sentences_have_the_states_of_each_alone[CausalDecoder-l",
    "test_packed_sentences_have_the_states_of_each_alone[Encoder-s",
    "test_a_layer_passes_the_checks_of_keras[CausalDecoder]",
    "test_a_layer_passes_the_checks_of_keras[Encoder]",
    # other systems
    "test_a_checkpoint_is_saved_and_served",
    "test_texts_are_translated_as_by_the_original[m2m_100]",
    "test_texts_are_translated_as_by_the_original[marian_separate]",
    "test_texts_are_translated_as_by_the_original[pegasus]",
    "test_texts_are_translated_as_by_the_original[nllb]",
    "test_languages_are_chosen",
    "translations_and_scores_are_those_of_the_translator[learned]",
    "translations_and_scores_are_those_of_the_translator[rotary]",
    "translations_and_scores_are_those_of_the_translator[concatenated]",
    "translations_and_scores_are_those_of_the_translator[halves",
    "translations_and_scores_are_those_of_the_translator[pre-norm",
    "given_translations_have_the_log_probabilities_of_the_model[rotary]",
    "given_translations_have_the_log_probabilities_of_the_model[concatenated]",
    "given_translations_have_the_log_probabilities_of_the_model[halves",
    "given_translations_have_the_log_probabilities_of_the_model[post-norm]",
    "given_translations_have_the_log_probabilities_of_the_model[none]",
    "test_least_lengths_and_repeated_ngrams_are_those_of_the_search[learned]",
    "test_an_export_is_read_back[pre-norm]",
    "test_an_export_is_read_back[post-norm, separate]",
    "test_an_export_is_read_back[post-norm]",
    "translations_and_scores_are_those_of_the_translator[none]",
    "given_translations_have_the_log_probabilities_of_the_model[pre-norm",
    "test_beams_are_those_of_the_original[marian_separate]",
    "test_beams_are_those_of_the_original[m2m_100]",
    "test_greedy_ids_are_those_of_the_original[marian_separate]",
    "test_greedy_ids_are_those_of_the_original[pegasus]",
    "test_numbers_and_searches_are_those_of_ctranslate2[pre]",
    # training on two replicas
    "test_two_replicas_learn_what_one_does[case0]",
    "test_two_replicas_learn_what_one_does[case2]",
    "test_two_replicas_learn_what_one_does[case3]",
    "test_two_replicas_learn_what_one_does[case4]",
    "test_two_replicas_learn_what_one_does_in_half_precision[case2]",
    "test_two_replicas_show_what_one_does[case0]",
    "test_rows_of_padding_count_for_nothing_in_the_metrics",
    # text
    "test_windows.py::test_memory_does_not_grow_with_the_text",
    "test_windows.py::test_two_replicas_share_the_batches_of_one",
    "test_one_saved_model_holds_two_tokenizers",
    "test_a_translation_ends_before_a_stop_string[<lambda>-[' f'",
    "test_a_translation_ends_before_a_stop_string[<lambda>-['.'",
    "test_a_translation_ends_before_a_stop_string[<lambda>-['ein'",
    "test_a_translation_ends_before_a_stop_string[GreedySearch-['.'",
    "test_a_translation_ends_before_a_stop_string[GreedySearch-['ein'",
    "test_sampling_drops_no_sentence_that_fits_without_it",
    "test_sampling_depends_only_on_seed_and_epoch",
    "test_an_interrupted_epoch_continues_with_the_same_batches",
    "test_texts_are_translated_in_their_order_as_each_is_alone",
    # data of other languages
    "test_every_phrase_has_one_answer[locales1]",
    "test_every_phrase_has_one_answer[locales2]",
    "test_no_phrase_is_drawn_twice[de-ja]",
    "[en-ar",
    "[pt-sv",
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
