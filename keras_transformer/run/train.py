"""Training what a recipe describes, from text files to a translator."""

import itertools
import os
import sys

import keras

from keras_transformer.decoding import GreedySearch
from keras_transformer.models import Transformer
from keras_transformer.recipe import SIDES, Recipe
from keras_transformer.run.folder import Run, max_source_length
from keras_transformer.run.log import WriteLog
from keras_transformer.text import parallel_dataset, read_lines
from keras_transformer.training import (
    Adam,
    BleuCallback,
    Cooldown,
    InverseSquareRootSchedule,
    Perplexity,
    SaveCheckpoints,
    StopAtNaN,
    TokenAccuracy,
    TokenCrossentropy,
    pick_strategy,
    split_evenly,
)
from keras_transformer.translator import Translator


def train(recipe: Recipe, folder: str | os.PathLike) -> Run:
    """Trains a translator, or goes on where its training was interrupted.

    Args:
        recipe: Files and settings.
        folder: Folder of the run; see `Run`. If it holds checkpoints of the same
            recipe, training goes on after the last whole one, with the weights, the
            optimizer and the order of the sentences that it would have had.

    Returns:
        The run, whose `translator()` is what came of it.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is faulty, settings do not go together, or the folder
            holds something else.
        FloatingPointError: If the loss is no longer a number.
    """
    settings = recipe.training
    run = Run(folder)
    run.begin(recipe)
    keras.utils.set_random_seed(settings.seed)
    tokenizers = run.tokenizers()
    validation_data = _dataset(recipe, tokenizers, "validation", shuffle=False)
    train_data = _dataset(
        recipe,
        tokenizers,
        "train",
        seed=settings.seed,
        sampling=recipe.tokenizer.sampling,
    )
    checkpoints = run.checkpoints()
    latest = checkpoints.latest()
    if latest is None and checkpoints.paths():
        raise ValueError(
            f"{checkpoints.folder} holds no whole checkpoint to go on from. Name "
            "another run folder."
        )
    strategy = pick_strategy(settings.strategy)
    num_replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        if latest:
            model = checkpoints.load(latest)
            model.jit_compile = settings.jit_compile
        else:
            model = _new_model(recipe, tokenizers)
        # Anew each time, for it depends on the number of epochs.
        model.optimizer.learning_rate = _schedule(
            settings, int(train_data.cardinality())
        )
    epochs_done = checkpoints.epoch_of(latest) if latest else 0
    run.log.cut(epochs_done)
    if epochs_done < settings.epochs and not _has_stalled(run, settings):
        model.fit(
            split_evenly(train_data, num_replicas),
            validation_data=split_evenly(validation_data, num_replicas),
            epochs=settings.epochs,
            initial_epoch=epochs_done,
            shuffle=False,  # the dataset does it
            verbose=1 if sys.stdout.isatty() else 2,
            callbacks=[
                keras.callbacks.LambdaCallback(
                    on_epoch_begin=lambda epoch, _: train_data.epoch.assign(epoch)
                ),
                StopAtNaN(),
                *_bleu(recipe, model, tokenizers),
                WriteLog(run.log, settings.early_stopping),
                keras.callbacks.TensorBoard(run.tensorboard_path),
                SaveCheckpoints(checkpoints),
            ],
        )
    run.average(recipe.decoding.average)
    return run


def _dataset(recipe, tokenizers, split, **order):
    return parallel_dataset(
        *(recipe.data.paths(split, side) for side in SIDES),
        *tokenizers,
        tokens_per_batch=recipe.training.tokens_per_batch,
        max_length=recipe.training.max_length,
        **order,
    )


def _new_model(recipe, tokenizers):
    settings = recipe.training
    source, target = (tokenizer.vocabulary_size for tokenizer in tokenizers)
    model = Transformer.from_preset(
        recipe.model.preset,
        source,
        target_vocabulary_size=None if recipe.tokenizer.shared else target,
        dtype=settings.precision,
        **recipe.model.overrides(),
    )
    model.compile(
        Adam(InverseSquareRootSchedule(hidden_dim=1)),
        TokenCrossentropy(settings.label_smoothing),
        metrics=[TokenAccuracy(), Perplexity()],
        jit_compile=settings.jit_compile,
    )
    return model


def _schedule(settings, steps_per_epoch):
    # The peak says it all, whatever the width.
    schedule = InverseSquareRootSchedule.with_peak(
        settings.learning_rate, hidden_dim=1, warmup_steps=settings.warmup_steps
    )
    if not settings.cooldown_epochs:
        return schedule
    start = (settings.epochs - settings.cooldown_epochs) * steps_per_epoch
    return Cooldown(schedule, max(start, 0), settings.cooldown_epochs * steps_per_epoch)


def _has_stalled(run, settings):
    patience = settings.early_stopping
    return patience is not None and run.log.epochs_without_gain() >= patience


def _bleu(recipe, model, tokenizers):
    """Returns the callback that translates while training, if one is wished for."""
    settings = recipe.training
    if settings.bleu_every is None:
        return []
    translator = Translator(model, *tokenizers, max_source_length(recipe))
    sources, references = (
        _first_lines(recipe.data.paths("validation", side), settings.bleu_sentences)
        for side in SIDES
    )
    return [
        BleuCallback(
            lambda texts: translator.translate(texts, GreedySearch()),
            sources,
            references,
            every=settings.bleu_every,
        )
    ]


def _first_lines(paths, count):
    lines = itertools.chain.from_iterable(map(read_lines, paths))
    return list(itertools.islice(lines, count))
