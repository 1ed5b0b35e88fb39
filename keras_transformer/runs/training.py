"""Training what a recipe describes, from text files to a translator."""

import itertools
import os
import sys
from pathlib import Path

import keras

from keras_transformer import training
from keras_transformer.kernels import target
from keras_transformer.kernels.attention import no_blocks
from keras_transformer.models import Transformer
from keras_transformer.runs.distillation import read_teacher
from keras_transformer.runs.diversification import student_recipe, teachers_of
from keras_transformer.runs.folder import Run, with_beam
from keras_transformer.runs.log import WriteLog, WriteTensorBoard
from keras_transformer.runs.prepare import (
    check_recipe,
    check_run,
    check_settings,
    prepare,
)
from keras_transformer.runs.pretrained import pretrained_model
from keras_transformer.runs.recipe import Recipe
from keras_transformer.runs.text_files import SIDES
from keras_transformer.text import read_lines


def train(recipe: Recipe, folder: str | os.PathLike) -> Run:
    """Trains a translator, or resumes a training that was interrupted.

    With `recipe.diversification`, models of both directions are trained first, and
    translate the training text; see `settings.DiversificationSettings`.

    Args:
        recipe: Files and settings.
        folder: Folder of the run; see `Run`. If it holds checkpoints of the same
            recipe, training resumes after the last complete one, with the weights, the
            optimizer and the order of sentences that it would have had. Workers on
            several machines share the folder; only the chief writes to it.

    Returns:
        The run; its `translator()` is the result.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is invalid, settings contradict each other, or the folder
            holds something else.
        FloatingPointError: If the loss becomes NaN.
        ConnectionError: If another worker is lost.
    """
    run = Run(folder)
    if recipe.diversification is not None:
        recipe = _diversify(recipe, run)
    settings = recipe.training
    # Workers must connect before TensorFlow does anything else.
    workers = training.Workers(training.pick_strategy(settings.strategy))
    with workers.watched():
        data = prepare(recipe, run, workers)
        checkpoint, epochs_done = _find_checkpoint(run, workers)
        keras.utils.set_random_seed(settings.seed)
        with workers.strategy.scope():
            model = _build_or_restore(recipe, run, checkpoint, data, workers)
        has_stalled = run.log.has_stalled(settings.early_stopping)
        if epochs_done < settings.epochs and not has_stalled:
            if settings.teachers:
                with workers.strategy.scope():
                    teacher = read_teacher(recipe, data.tokenizers)
                model.consistency = training.Distillation(
                    teacher, settings.distillation
                )
            _fit(model, recipe, run, epochs_done, data, workers)
        if workers.is_chief:
            save_average(run, recipe.decoding.average)
        workers.wait()
    return run


def _diversify(recipe, run):
    """Trains the teachers, lets them translate, and returns the recipe to go on by."""
    student, teachers = student_recipe(recipe, run), teachers_of(recipe, run)
    check_settings(student, run)
    if run.has_trained():
        return student
    # Before anything is trained. A model of 8 subwords has every other setting.
    check_recipe(student)
    _random_model(student, [8, 8])
    for teacher in teachers:
        check_run(teacher.recipe, teacher.run)
    for teacher in teachers:
        if teacher.has_translated():
            continue
        if not teacher.run.has_trained():
            teacher.remove_texts()  # of a model that was removed
        data, seed = teacher.recipe.data, teacher.recipe.training.seed
        model = f"the model {data.source}-{data.target} with seed {seed}"
        print(f"Training {model}.", flush=True)
        train(teacher.recipe, teacher.run.folder)
        print(f"Translating the training text by {model}.", flush=True)
        teacher.translate()
    print("Training with all translations.", flush=True)
    return student


def save_best(run: Run) -> Path:
    """Saves the run's translator with the weights of the best checkpoint.

    Returns the path of the checkpoint.
    """
    checkpoints = run.checkpoints()
    best = checkpoints.best()
    if best is None:
        raise FileNotFoundError(
            f"{checkpoints.folder} holds no complete checkpoint with "
            f"{checkpoints.monitor}. Train first, or average the last ones."
        )
    run.translator(best).save(run.translator_path)
    return best


def save_average(run: Run, last: int) -> list[Path]:
    """Saves the run's translator with the mean weights of its last checkpoints.

    It averages `last` checkpoints, or all if there are fewer, and returns their paths.
    """
    checkpoints = run.checkpoints()
    paths = checkpoints.newest(last)
    if not paths:
        raise FileNotFoundError(
            f"{checkpoints.folder} holds no complete checkpoint. Train first."
        )
    model = training.average_checkpoints(paths)
    run.translator_of(model).save(run.translator_path)
    return paths


def _find_checkpoint(run, workers):
    """Returns the last complete checkpoint, if there is any, and its epochs."""
    checkpoints = run.checkpoints()
    latest = checkpoints.latest()
    if latest is None and run.has_trained():
        raise ValueError(
            f"{checkpoints.folder} holds no complete checkpoint to resume from. Name "
            "another run folder."
        )
    epochs_done = checkpoints.epoch_of(latest) if latest else 0
    if workers.is_chief:
        run.log.truncate(epochs_done)
        checkpoints.keep_best()
    found = workers.gather(epochs_done)
    if len(set(found)) > 1:
        raise ValueError(
            f"{checkpoints.folder} must be on a disk that all workers share. Received: "
            f"checkpoints of {found} epochs."
        )
    return latest, epochs_done


def _build_or_restore(recipe, run, checkpoint, data, workers):
    settings = recipe.training
    schedule = _schedule(settings, int(data.train.cardinality()))
    # XLA compiles the step for one device, and cannot sum gradients over several.
    num_replicas = workers.strategy.num_replicas_in_sync
    jit_compile = settings.jit_compile
    if jit_compile is None:
        jit_compile = not target.xla_would_compile_for_cpu()
    how = {
        "jit_compile": jit_compile and num_replicas == 1,
        "steps_per_execution": settings.steps_per_execution,
    }
    if checkpoint:
        model = run.checkpoints().load(checkpoint)
        # The number of epochs may have changed, on which the schedule depends.
        model.optimizer.learning_rate = schedule
        for name, value in how.items():
            setattr(model, name, value)
        return model
    if recipe.model.pretrained:
        model = pretrained_model(recipe, run)
    else:
        _, tokenizer = data.tokenizers
        model = _random_model(
            recipe,
            [tokenizer.vocabulary_size for tokenizer in data.tokenizers],
            pad_id=tokenizer.pad_id,
            start_id=tokenizer.start_id,
            end_id=tokenizer.end_id,
        )
    pad_id = model.pad_id
    model.compile(
        _optimizer(settings, schedule),
        training.TokenCrossentropy(settings.label_smoothing, pad_id=pad_id),
        metrics=[training.TokenAccuracy(pad_id), training.Perplexity(pad_id)],
        consistency=_consistency(settings),
        **how,
    )
    return model


def _random_model(recipe, vocabulary_sizes, **ids):
    source, target = vocabulary_sizes
    return Transformer.from_preset(
        recipe.model.preset,
        source,
        target_vocabulary_size=None if recipe.tokenizer.shared else target,
        dtype=recipe.training.precision,
        **recipe.model.overrides(),
        **ids,
    )


def _optimizer(settings, schedule):
    weight_decay = settings.weight_decay or None
    if settings.optimizer == "muon":
        # What is no matrix is trained as by `training.Adam`.
        return keras.optimizers.Muon(
            schedule,
            adam_beta_2=0.98,
            adam_lr_ratio=0.5,
            adam_weight_decay=None,
            epsilon=1e-9,
            weight_decay=weight_decay,
        )
    return training.Adam(schedule, weight_decay=weight_decay)


def _consistency(settings):
    if settings.simcut:
        return training.SimCut(settings.simcut, settings.cutoff)
    return training.RDrop(settings.rdrop) if settings.rdrop else None


def _schedule(settings, steps_per_epoch):
    # With the peak given, the width cancels out.
    schedule = training.InverseSquareRootSchedule.with_peak(
        settings.learning_rate, hidden_dim=1, warmup_steps=settings.warmup_steps
    )
    if not settings.cooldown_epochs:
        return schedule
    cooldown_epochs = min(settings.cooldown_epochs, settings.epochs)
    start = (settings.epochs - cooldown_epochs) * steps_per_epoch
    return training.Cooldown(schedule, start, cooldown_epochs * steps_per_epoch)


def _fit(model, recipe, run, epochs_done, data, workers):
    num_replicas = workers.strategy.num_replicas_in_sync
    train, validation = (
        training.split_evenly(dataset, num_replicas, model.pad_id)
        for dataset in (data.train, data.validation)
    )
    set_epoch = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, _: data.train.epoch.assign(epoch)
    )
    writers = _writers(recipe, run, model) if workers.is_chief else []
    stop_at_nan, stop_together = training.StopAtNaN(), training.StopTogether(workers)
    with no_blocks(recipe.training.max_length):
        model.fit(
            train,
            validation_data=validation,
            epochs=recipe.training.epochs,
            initial_epoch=epochs_done,
            shuffle=False,  # the dataset does it
            verbose=(1 if sys.stdout.isatty() else 2) if workers.is_chief else 0,
            callbacks=[set_epoch, stop_at_nan, *writers, stop_together],
        )


def _writers(recipe, run, model):
    """Returns the callbacks that measure the model and write to the folder."""
    settings = recipe.training
    writers = [
        WriteLog(run.log, settings.early_stopping),
        # Keras has no graph to write of such a model, but writes at the start for it.
        WriteTensorBoard(run.tensorboard_path, write_graph=False),
        training.SaveCheckpoints(run.checkpoints()),
    ]
    if settings.bleu_every is not None:
        translator = run.translator_of(model)
        search = with_beam(translator.search, beam_width=1)
        files = (recipe.data.paths("validation", side) for side in SIDES)
        bleu = training.BleuCallback(
            lambda texts: translator.translate(texts, search),
            *(_first_lines(paths, settings.bleu_sentences) for paths in files),
            every=settings.bleu_every,
        )
        writers.insert(0, bleu)  # The others write what it adds to the logs.
    return writers


def _first_lines(paths, count):
    lines = itertools.chain.from_iterable(map(read_lines, paths))
    return list(itertools.islice(lines, count))
