"""The values of config.json that Marian, Pegasus and M2M100 share."""

import numbers
from collections.abc import Mapping

from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    ForcedPrefix,
    GreedySearch,
    MinimumLength,
    NoRepeatNgram,
    PowerLengthPenalty,
    Processor,
    RepetitionPenalty,
    Sampling,
)
from keras_transformer.interop.config import Config

ACTIVATIONS = ("gelu", "relu", "sigmoid", "silu", "swish", "tanh")
# Values that older files have in config.json, and newer ones in generation_config.json.
_GENERATION = """
bad_words_ids do_sample forced_bos_token_id forced_eos_token_id length_penalty
min_length no_repeat_ngram_size num_beams num_return_sequences renormalize_logits
repetition_penalty temperature top_k top_p
"""
GENERATION = frozenset(_GENERATION.split())
# Values that change neither logits nor the search, or that only training reads. Lengths
# are arguments of `translate`, and our beam search never ends early.
_WITHOUT_EFFECT = """
_from_model_config _name_or_path _num_labels architectures bos_token_id classif_dropout
classifier_dropout dtype early_stopping encoder_layerdrop decoder_layerdrop
extra_pos_embeddings gradient_checkpointing id2label init_std label2id language_codes
max_length max_new_tokens max_position_embeddings model_type num_hidden_layers
num_labels output_attentions output_hidden_states output_past output_scores problem_type
return_dict return_dict_in_generate save_step task_specific_params tokenizer_class
torch_dtype transformers_version use_cache
"""
# Values that switch something off which is not here.
_OFF = {
    "add_cross_attention": False,
    "chunk_size_feed_forward": 0,
    "diversity_penalty": 0,
    "do_blenderbot_90_layernorm": False,
    "encoder_no_repeat_ngram_size": 0,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "num_beam_groups": 1,
    "pruned_heads": {},
    "remove_invalid_values": False,
    "tie_encoder_decoder": False,
    "torchscript": False,
    "typical_p": 1,
    "use_bfloat16": False,
}


def config_of(values: Mapping, path) -> Config:
    """Returns the values that have an effect; each of them must be used."""
    ignored = _WITHOUT_EFFECT.split()
    return Config(
        {k: v for k, v in values.items() if k not in ignored and v != _OFF.get(k)}, path
    )


def stack_arguments(config: Config, normalize_first: bool) -> dict:
    """Returns the arguments of a `Transformer` that all three families name alike."""
    num_heads = config.take_number("encoder_attention_heads")
    intermediate_dim = config.take_number("encoder_ffn_dim")
    config.expect("decoder_attention_heads", num_heads)
    config.expect("decoder_ffn_dim", intermediate_dim)
    activation = config.expect("activation_function", *ACTIVATIONS, default="")
    expected = {
        "is_encoder_decoder": True,
        "is_decoder": False,
        "tie_word_embeddings": True,
        "static_position_embeddings": True,
        "normalize_before": normalize_first,
        "add_final_layer_norm": normalize_first,
        "normalize_embedding": False,
        "add_bias_logits": False,
        "force_bos_token_to_be_generated": False,
    }
    for name, value in expected.items():
        config.expect(name, value)
    return {
        "normalize_first": normalize_first,
        "num_layers": config.take_number("encoder_layers"),
        "num_decoder_layers": config.take_number("decoder_layers"),
        "hidden_dim": config.take_number("d_model"),
        "num_heads": num_heads,
        "intermediate_dim": intermediate_dim,
        "activation": "silu" if activation == "swish" else activation,
        "dropout": config.take("dropout", 0.1),
        "attention_dropout": config.take("attention_dropout", 0.0),
        "activation_dropout": config.take("activation_dropout", 0.0),
        "scale_embeddings": config.take("scale_embedding", False),
        "epsilon": 1e-5,  # PyTorch's default, which config.json does not hold
        "pad_id": config.take_number("pad_token_id"),
        "start_id": config.take_number("decoder_start_token_id"),
        "end_id": config.take_number("eos_token_id"),
    }


def search_of(
    generation: Config,
    arguments: Mapping,
    first_id: int | None = None,
    wanted_id: int | None = None,
):
    """Returns the search that a checkpoint was published with.

    The first id of every translation, such as a language, is `wanted_id`, or else that
    in `generation`, or else `first_id`. `arguments` are the `Transformer`'s.
    """
    pad_id, end_id = arguments["pad_id"], arguments["end_id"]
    generation.expect("pad_token_id", pad_id)
    end_ids = generation.take("eos_token_id", end_id)
    generation.expect("decoder_start_token_id", arguments["start_id"])
    # transformers ends a cut translation with this token. Here it has no end token.
    generation.expect("forced_eos_token_id", end_id)
    forced_id = generation.take_number("forced_bos_token_id", first_id)
    first_id = forced_id if wanted_id is None else wanted_id
    banned = generation.take("bad_words_ids", [])
    if not isinstance(banned, list) or not all(
        isinstance(x, list) and [*map(type, x)] == [int] for x in banned
    ):
        raise ValueError(
            "`bad_words_ids` must forbid single tokens, such as [[5], [7]]. Received: "
            f"bad_words_ids={banned}."
        )
    banned = [ids[0] for ids in banned if ids != [pad_id]]
    processors: list[Processor] = []
    if banned:
        processors.append(BannedIds(banned))
    real = numbers.Real
    if (penalty := generation.take_number("repetition_penalty", 1.0, kind=real)) != 1:
        processors.append(RepetitionPenalty(penalty))
    if size := generation.take_number("no_repeat_ngram_size", 0):
        processors.append(NoRepeatNgram(size))
    if length := generation.take_number("min_length", 0):
        processors.append(MinimumLength(length))
    penalty = PowerLengthPenalty(generation.take_number("length_penalty", 1, kind=real))
    width = generation.take_number("num_beams", 1)
    count = generation.take_number("num_return_sequences", 1)
    settings = {
        "temperature": generation.take_number("temperature", 1.0, kind=real),
        "top_k": generation.take_number("top_k", 50) or None,  # 0 is off
        "top_p": generation.take_number("top_p", None, kind=real),
    }
    if end_ids in (end_id, [end_id]):
        end_ids = None
    if generation.take("renormalize_logits", False) and processors:
        raise ValueError(
            "`renormalize_logits` must be false where more is forbidden than padding. "
            f"Received: renormalize_logits=True, and {processors}."
        )
    if first_id is not None:
        processors.insert(0, ForcedPrefix([first_id], is_scored=False))
    is_drawn = generation.take("do_sample", False)
    generation.check_all_used()
    if is_drawn:
        if width > 1:
            raise ValueError(
                "Beam search cannot sample here. Received: do_sample=True, "
                f"num_beams={width}."
            )
        return Sampling(
            **settings, num_hypotheses=count, processors=processors, end_ids=end_ids
        )
    if width > 1 or count > 1:  # more results than the beam is wide are refused
        return BeamSearch(width, penalty, count, processors, end_ids)
    return GreedySearch(processors, end_ids)
