"""The settings that a recipe holds, section by section, with their defaults."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

LARGEST_SEED = 2**32 - 1  # of NumPy's generators


def setting(default, least=None, most=None, above=None, below=None, fixed=True):
    """A setting with a default and, if given, bounds of the values allowed.

    If it is `fixed`, a resumed run must keep the value that it began with.
    """
    bounds = {"at least": least, "above": above, "at most": most, "below": below}
    bounds = {kind: bound for kind, bound in bounds.items() if bound is not None}
    return field(default=default, metadata={"bounds": bounds, "fixed": fixed})


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """How text is split into subwords; see `text.SubwordTokenizer.train`.

    Attributes:
        vocabulary_size: Number of subwords, for each language unless shared.
        model_type: `"bpe"` or `"unigram"`.
        shared: Whether both languages share one vocabulary and its embeddings.
        split_digits: Whether every digit is a separate subword.
        character_coverage: Fraction of the text's characters that get an id.
        byte_fallback: Whether other characters are bytes rather than unknown.
        sampling: Strength of BPE-dropout or subword regularization in training.
    """

    vocabulary_size: int = setting(8000, least=5)
    model_type: str = "bpe"
    shared: bool = True
    split_digits: bool = False
    character_coverage: float = setting(1.0, above=0, most=1)
    byte_fallback: bool = False
    sampling: float = setting(0.0, least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """A preset of `models.Transformer`, and the arguments that override it.

    An argument that is left out or null keeps the preset's value. Without a `seed`,
    dropout depends on `training.seed`, as the weights do.

    With `pretrained`, training continues from the weights, tokenizers and search of a
    translator: a run, or what `Translator.from_preset` reads. Other settings of the
    model and of the tokenizers must then agree with it, or be left out; `dropout` and
    its like may differ. `frozen` names its layers that are not trained, such as
    `encoder` or `decoder/block_0`; with `lora_rank`, only low-rank adaptations of that
    rank are, see `Transformer.enable_lora`.
    """

    preset: str = "base"
    num_layers: int | None = setting(None, least=1)
    hidden_dim: int | None = setting(None, least=1)
    num_heads: int | None = setting(None, least=1)
    intermediate_dim: int | None = setting(None, least=1)
    dropout: float | None = setting(None, least=0, most=1)
    normalize_first: bool | None = None
    activation: str | None = None
    positions: str | None = None
    attention_dropout: float | None = setting(None, least=0, most=1)
    activation_dropout: float | None = setting(None, least=0, most=1)
    seed: int | None = setting(None, least=0, most=LARGEST_SEED)
    pretrained: str | None = None
    frozen: tuple[str, ...] = ()
    lora_rank: int | None = setting(None, least=1)

    def overrides(self) -> dict[str, Any]:
        """Returns the arguments that override the preset."""
        arguments = dataclasses.asdict(self)
        for name in ("preset", "pretrained", "frozen", "lora_rank"):
            del arguments[name]
        return {name: value for name, value in arguments.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How the model is trained.

    Attributes:
        epochs: Passes over the training text.
        tokens_per_batch: Tokens of a batch on each side, padding included.
        max_length: Maximum subwords with the end token; longer pairs are left out.
        learning_rate: Peak of the learning rate, reached after `warmup_steps`.
        warmup_steps: Steps of linear warm-up; then the rate falls as 1 / sqrt(step).
        cooldown_epochs: Last epochs, over which the learning rate is scaled down to 0.
        optimizer: `"adam"`, or `"muon"`: `keras.optimizers.Muon` for matrices, Adam at
            half the learning rate for embeddings, biases and normalization.
        weight_decay: What a step subtracts of each weight, as a multiple of the
            learning rate; with `"muon"` only of matrices.
        label_smoothing: Probability that each target spreads over the vocabulary.
        rdrop: Weight of `training.RDrop`, such as 5; 0 for none.
        simcut: Weight of `training.SimCut`, such as 3; 0 for none.
        cutoff: Fraction of the tokens that `simcut` cuts.
        teachers: Translators whose probabilities the model learns, by
            `training.Distillation` from all of them together: runs, or what
            `Translator.from_preset` reads. The tokenizers are theirs.
        distillation: Weight of that term.
        seed: Seed of the weights, dropout and the order of the sentences.
        jit_compile: Whether XLA compiles the training step, if there is one device; by
            default where that is a GPU. It compiles one for every length of sentences.
        steps_per_execution: Steps that TensorFlow takes at a time.
        precision: `"float32"`, `"mixed_bfloat16"` or, on one device,
            `"mixed_float16"`.
        strategy: Devices to train on; see `training.pick_strategy`.
        keep: Number of last checkpoints to keep, beside the best one.
        best: What the best checkpoint is chosen by: a metric of the validation text, as
            in log.csv, such as `val_loss` or, with `bleu_every`, `val_bleu` or
            `val_chrf`.
        early_stopping: Epochs without a lower validation loss after which training
            stops, without its `cooldown_epochs`; null for never.
        bleu_every: Epochs from one validation BLEU and chrF to the next; null for
            never.
        bleu_sentences: Sentences translated for them, from the start of the text.
    """

    epochs: int = setting(30, least=1, fixed=False)
    tokens_per_batch: int = setting(4096, least=1)
    max_length: int = setting(64, least=2)
    learning_rate: float = setting(1e-3, above=0)
    warmup_steps: int = setting(4000, least=1)
    cooldown_epochs: int = setting(0, least=0, fixed=False)
    optimizer: str = "adam"
    weight_decay: float = setting(0.0, least=0)
    label_smoothing: float = setting(0.1, least=0, below=1)
    rdrop: float = setting(0.0, least=0)
    simcut: float = setting(0.0, least=0)
    cutoff: float = setting(0.05, least=0)
    teachers: tuple[str, ...] = ()
    distillation: float = setting(4.0, above=0)
    seed: int = setting(1, least=0, most=LARGEST_SEED)
    jit_compile: bool | None = setting(None, fixed=False)
    steps_per_execution: int = setting(1, least=1, fixed=False)
    precision: str = "float32"
    strategy: str = setting("auto", fixed=False)
    keep: int = setting(10, least=1, fixed=False)
    best: str = setting("val_loss", fixed=False)
    early_stopping: int | None = setting(None, least=1, fixed=False)
    bleu_every: int | None = setting(None, least=1, fixed=False)
    bleu_sentences: int = setting(500, least=1, fixed=False)


@dataclass(frozen=True, kw_only=True)
class DecodingSettings:
    """How the trained model translates.

    Attributes:
        beam_width: Hypotheses that beam search keeps; 1 is greedy search.
        length_penalty: Exponent of the length penalty; larger favours longer
            translations.
        average: Number of last checkpoints whose weights are averaged.
    """

    beam_width: int = setting(4, least=1, fixed=False)
    length_penalty: float = setting(0.6, least=0, fixed=False)
    average: int = setting(5, least=1, fixed=False)

    def search(self):
        """Returns the search with these settings."""
        from keras_transformer.decoding import BeamSearch, GreedySearch

        if self.beam_width == 1:
            return GreedySearch()
        return BeamSearch(self.beam_width, self.length_penalty)


@dataclass(frozen=True, kw_only=True)
class DiversificationSettings:
    """Data diversification: models of both directions translate the training text.

    First, models of each direction are trained by the other settings of the recipe,
    and translate the training text. Then the first model of the direction that
    is wanted goes on from all of it: the text, the targets with their
    back-translations, and the sources with their translations.

    Attributes:
        seeds: Number of models of each direction: with `training.seed`, the next
            integer, and so on.
        translations: Number of translations of the text by each model. The first is
            made greedily; the others are sampled, with a temperature of 0.5.
        epochs: Passes over all of the text, in place of `training.epochs`.
        cooldown_epochs: In place of `training.cooldown_epochs`.
        learning_rate: In place of `training.learning_rate`; null keeps it.
        dropout: In place of `model.dropout`; null keeps it. The more text there is,
            the less is needed.
        average: In place of `decoding.average`.
        distillation: Weight of `training.Distillation` from all models of the direction
            that is wanted, such as 4; 0 for none.
        hidden_dim: In place of `model.hidden_dim`; null keeps it. A model of another
            size begins from random weights, not from the first model.
        intermediate_dim: In place of `model.intermediate_dim`, likewise.

    Reference:
        [Nguyen et al., 2020](https://arxiv.org/abs/1911.01986), who train the last
        model from scratch; distillation: [Kim and Rush,
        2016](https://arxiv.org/abs/1606.07947)
    """

    seeds: int = setting(1, least=1)
    translations: int = setting(1, least=1)
    epochs: int = setting(10, least=1)
    cooldown_epochs: int = setting(5, least=0)
    learning_rate: float | None = setting(None, above=0)
    dropout: float | None = setting(None, least=0, most=1)
    average: int = setting(3, least=1)
    distillation: float = setting(0.0, least=0)
    hidden_dim: int | None = setting(None, least=1)
    intermediate_dim: int | None = setting(None, least=1)
