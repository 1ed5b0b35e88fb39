"""Training what a recipe describes, from text files to a translator."""

import itertools
import os
import sys

import keras

from keras_transformer.decoding import GreedySearch
from keras_transformer.models import Transformer
from keras_transformer.runs.recipe import SIDES, Recipe
from keras_transformer.runs.folder import Run, max_source_length
from keras_transformer.runs.log import WriteLog
from keras_transformer.text import parallel_dataset, read_lines
from keras_transformer.training import (
    Adam,
    BleuCallback,
    Cooldown,
    InverseSquareRootSchedule,
    Perplexity,
    SaveCheckpoints,
    StopAtNaN,
    StopTogether,
    TokenAccuracy,
    TokenCrossentropy,
    Workers,
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
            optimizer and the order of the sentences that it would have had. Workers
            on several machines share the folder; only the chief writes to it.

    Returns:
        The run, whose `translator()` is what came of it.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is faulty, settings do not go together, or the folder
            holds something else.
        FloatingPointError: If the loss is no longer a number.
        ConnectionError: If another worker has gone.
    """
    # First of all: workers must meet before TensorFlow does anything else.
    strategy = pick_strategy(recipe.training.strategy)
    workers = Workers(strategy)
    with workers.watched():
        return _train(recipe, Run(folder), workers)


def _train(recipe, run, workers):
    settings = recipe.training
    if workers.count > 1 and recipe.tokenizer.sampling:
        raise ValueError(
            "`tokenizer.sampling` must be 0 with several workers, which have to make "
            "the same batches: SentencePiece draws other subwords in every process. "
            f"Received: tokenizer.sampling={recipe.tokenizer.sampling}."
        )
    if workers.is_chief:
        run.begin(recipe)
        run.tokenizers()
    workers.wait()
    if not workers.is_chief:
        run.join(recipe)
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
    epochs_done = checkpoints.epoch_of(latest) if latest else 0
    if workers.is_chief:
        run.log.cut(epochs_done)
    seen = workers.gather(epochs_done)
    if len(set(seen)) > 1:
        raise ValueError(
            f"{checkpoints.folder} must be on a disk that all workers share. Received: "
            f"checkpoints of {seen} epochs."
        )
    num_replicas = workers.strategy.num_replicas_in_sync
    with workers.strategy.scope():
        model = checkpoints.load(latest) if latest else _new_model(recipe, tokenizers)
        # XLA compiles for one device, and cannot add up what several have.
        model.jit_compile = settings.jit_compile and num_replicas == 1
        # Anew each time, for it depends on the number of epochs.
        model.optimizer.learning_rate = _schedule(
            settings, int(train_data.cardinality())
        )
    if epochs_done < settings.epochs and not _has_stalled(run, settings):
        model.fit(
            split_evenly(train_data, num_replicas),
            validation_data=split_evenly(validation_data, num_replicas),
            epochs=settings.epochs,
            initial_epoch=epochs_done,
            shuffle=False,  # the dataset does it
            verbose=(1 if sys.stdout.isatty() else 2) if workers.is_chief else 0,
            callbacks=[
                keras.callbacks.LambdaCallback(
                    on_epoch_begin=lambda epoch, _: train_data.epoch.assign(epoch)
                ),
                StopAtNaN(),
                *(_writers(recipe, run, model, tokenizers) if workers.is_chief else []),
                StopTogether(workers),
            ],
        )
    if workers.is_chief:
        run.average(recipe.decoding.average)
    workers.wait()
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


def _writers(recipe, run, model, tokenizers):
    """Returns the callbacks that look at the model and write what they find."""
    return [
        *_bleu(recipe, model, tokenizers),
        WriteLog(run.log, recipe.training.early_stopping),
        keras.callbacks.TensorBoard(run.tensorboard_path),
        SaveCheckpoints(run.checkpoints()),
    ]


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
