"""Training as a recipe describes."""

import contextlib
import dataclasses
import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras

from keras_transformer import training
from keras_transformer.keras_private import all_layers
from keras_transformer.kernels import target
from keras_transformer.kernels.attention import no_blocks
from keras_transformer.models import Transformer
from keras_transformer.runs.log import WriteLog, WriteTensorBoard
from keras_transformer.runs.preparing import open_prepared
from keras_transformer.runs.recipe import Recipe, Settings, names_from_text, settings_of
from keras_transformer.runs.run import Finished, New, Run, State, with_beam
from keras_transformer.runs.settings import TextSize
from keras_transformer.runs.start import FREE_SETTINGS, begin
from keras_transformer.runs.survey import Survey, survey
from keras_transformer.text import parallel_dataset, prepared_dataset, read_lines
from keras_transformer.text.pipeline import Counted, count_batches

IS_JAX = target.BACKEND == "jax"


def train(recipe: Recipe, folder: str | os.PathLike) -> Run:
    """Trains a translator, or resumes a training that was interrupted.

    A resumed training ends with the weights, the optimizer and the order of sentences
    of an uninterrupted one. Workers on several machines share the folder; only the
    chief writes to it.

    Args:
        recipe: Files and settings. Settings that it leaves out are chosen from the
            training text or, in a resumed run, stay as they were.
        folder: A new folder, or one to resume. If it holds checkpoints of the same
            settings, training resumes after the last complete one.

    Returns:
        The run; its `translator()` is the result.

    Raises:
        FileNotFoundError: If a file is missing.
        BlockingIOError: If another process trains in the folder.
        ValueError: If the text is invalid or has changed, the folder holds something
            else, or settings contradict each other.
        FloatingPointError: If the loss becomes NaN.
        ConnectionError: If another worker is lost.

    Example:
        >>> from keras_transformer.runs import Recipe, train
        >>> recipe = Recipe.load("demo", {"data.folder": "runs/demo-data"})
        >>> train(recipe, "runs/demo")
        Traceback (most recent call last):
        FileNotFoundError: runs/demo-data/train.en does not exist, ...
    """
    if not recipe.data.prepared:
        recipe.data.check_files("train")
    if recipe.data.validation:
        recipe.data.check_files("validation")
    Run(folder).check_kind("training")
    # Workers must connect before TensorFlow does anything else.
    workers = training.Workers(training.pick_strategy(recipe.training.strategy))
    with (
        workers.watched(),
        training.all_devices(recipe.training.model_devices) as num_models,
        contextlib.ExitStack() as stack,
    ):
        workers.num_replicas *= num_models
        check_precision(recipe.training.precision, workers.num_replicas)
        if workers.is_chief:
            state = stack.enter_context(begun(recipe, folder))
        workers.wait()
        if not workers.is_chief:
            state = join(recipe, folder)
        found = workers.gather(state.epoch)
        if len(set(found)) > 1:
            raise ValueError(
                f"{folder} must be on a disk that all workers share. Received: "
                f"checkpoints of {found} epochs."
            )
        if not isinstance(state, Finished):
            _fit(recipe, state, workers)
        if workers.is_chief:
            save_average(state.run, state.run.settings.decoding.average)
        workers.wait()
    return state.run


@contextlib.contextmanager
def begun(recipe: Recipe, folder: str | os.PathLike) -> Iterator[State]:
    """Locks a folder, and writes what `train` needs there before its first step.

    What a killed process left beyond the last checkpoint is removed.
    """
    text, asked, run = None, recipe, Run(folder)
    if recipe.data.prepared:
        recipe, size = open_prepared(recipe)
        text = Survey(size, [], [])
    if run.has_trained():
        settings = settings_of(recipe, begun=run.settings)
    else:
        text = text or survey(*recipe.data.check_files("train"))
        settings = settings_of(recipe, text.size)
    with Run.open(folder, settings) as state:
        run = state.run
        if isinstance(state, New):
            text = text or survey(*recipe.data.check_files("train"))
            begin(run, settings, text, recipe.tokenizer.vocabulary_size is None)
            print(table_of(asked, run.settings, text.size))
            if (pairs := text.size.pairs) < 300 and not settings.model.pretrained:
                print(
                    f"A model learns little from only {pairs} pairs. Start from a "
                    "pretrained translator (--from), or find more text."
                )
        else:
            run.remove_unfinished()
            validation = run.checksum(settings, "validation")
            record = dataclasses.replace(run.record, validation_text=validation)
            run.write(record, settings)
            run.log.truncate(state.epoch)
            run.checkpoints().keep_best()
        del text  # up to two million lines
        if not settings.data.prepared:
            training_text = _training_text(run)
            sides = training_text["source_files"], training_text["target_files"]
            if len({*zip(*sides, strict=True)}) != len(run.record.pairs or ()):
                counted = count_batches(**training_text)
                run.update(pairs=counted.pairs, batches_per_epoch=counted.batches)
        yield state


def join(recipe: Recipe, folder: str | os.PathLike) -> State:
    """Returns the state of a run that the chief of several workers has begun."""
    run = Run(folder)
    if not run.settings_path.is_file():
        raise FileNotFoundError(
            f"{run.folder} holds no run that another worker has begun. All workers "
            "must share the folder: choose one on a disk that all of them can read."
        )
    settings = settings_of(recipe, begun=run.settings)
    run.check_same(settings)
    return run.state(settings)


def _training_text(run) -> dict[str, Any]:
    """Returns the arguments of `parallel_dataset` that determine its batches."""
    settings, (source, target) = run.settings, run.tokenizers()
    sides = settings.data.check_files("train", run.record.min_hash)
    sources, targets = (side * settings.training.passes_per_epoch for side in sides)
    return {
        "source_files": sources,
        "target_files": targets,
        "source_tokenizer": source,
        "target_tokenizer": target,
        "tokens_per_batch": settings.training.tokens_per_batch,
        "max_length": settings.training.max_length,
        "sampling": settings.tokenizer.sampling,
    }


def table_of(recipe: Recipe, settings: Settings, text: TextSize) -> str:
    """Returns a table of the settings chosen from the text where a recipe has none."""
    rows = [("setting", "value", "from")]
    for name in names_from_text():
        is_named, value = recipe.get(name) is not None, settings.get(name)
        if value is not None:
            shown = f"{value:,}" if isinstance(value, int) else f"{value}"
            origin = "recipe" if is_named else f"chosen for {text.pairs:,} pairs"
            rows.append((name, shown, origin))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{a:{widths[0]}}  {b:>{widths[1]}}  {c}" for a, b, c in rows)


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
    After early stopping, the last one is of the epoch with the lowest validation loss,
    or the best checkpoint alone if that epoch's is not kept.
    """
    checkpoints, best_epoch = run.checkpoints(), None
    waited = run.log.epochs_without_improvement()
    if waited >= (run.settings.training.early_stopping or math.inf):
        best_epoch = int(run.log.rows()[-1]["epoch"]) - waited
    paths = checkpoints.newest(last, best_epoch)
    if not paths and best_epoch:
        paths = [path for path in [checkpoints.best()] if path]
    if not paths:
        raise FileNotFoundError(
            f"{checkpoints.folder} holds no complete checkpoint. Train first."
        )
    model = training.average_checkpoints(paths)
    run.translator_of(model).save(run.translator_path)
    return paths


def check_precision(precision: str, num_replicas: int) -> None:
    """Raises `ValueError` if models cannot be trained in such a precision.

    On several devices, Keras 3.15 looks for overflows of float16 on the first alone.
    """
    if precision == "mixed_float16" and num_replicas > 1:
        raise ValueError(
            "`training.precision` must be float32 or mixed_bfloat16 on "
            f"{num_replicas} devices. Received: {precision!r}."
        )


def _fit(asked, state, workers):
    """Trains a run from its state to its last epoch; `asked` is what was set."""
    run, recipe = state.run, state.run.settings
    settings, record, tokenizers = recipe.training, run.record, run.tokenizers()
    if recipe.data.prepared:
        data = prepared_dataset(
            Run(recipe.data.prepared).ids_path,
            settings.tokens_per_batch,
            settings.seed,
            passes=settings.passes_per_epoch,
            num_shards=workers.count,
            shard_index=workers.index,
        )
    else:
        counted = Counted(record.pairs, record.batches_per_epoch)
        text = _training_text(run)
        data = parallel_dataset(**text, seed=settings.seed, counted=counted)
    sizes = settings.tokens_per_batch, settings.max_length
    num_steps = settings.validate_every
    sides = run.validation_files(recipe.data)
    validation = parallel_dataset(*sides, *tokenizers, *sizes, shuffle=False)
    position = training.KeepPosition(data, num_steps)
    steps_per_epoch = num_steps or int(data.cardinality())
    schedule = learning_rate(settings, steps_per_epoch)
    keras.utils.set_random_seed(settings.seed)
    recomputed = keras.RematScope("full" if settings.recompute else None)
    with workers.strategy.scope(), recomputed:
        model = compiled_model(state, schedule, workers.num_replicas)
    if state.checkpoint:
        position.load(model, state.checkpoint)
        if workers.is_chief:
            steps = f" and {position.batch:,} steps" * bool(position.batch)
            print(f"Resuming after epoch {position.epoch} of {settings.epochs}{steps}.")
    writers = _writers(run, model, steps_per_epoch) if workers.is_chief else []
    callbacks = [position, training.StopAtNaN(), *writers]
    how = workers.num_replicas, model.pad_id
    batches = data.repeat() if num_steps else data
    if recipe.data.prepared:
        batches = workers.own_batches(batches, model.pad_id)
    else:
        batches = training.split_evenly(batches, *how)
    with no_blocks(settings.max_length):
        history = model.fit(
            batches,
            validation_data=training.split_evenly(validation, *how),
            epochs=settings.epochs,
            steps_per_epoch=num_steps,
            initial_epoch=state.epoch,
            shuffle=False,  # the dataset does it
            verbose=0,
            callbacks=[*callbacks, training.StopTogether(workers)],
        )
    if workers.is_chief:
        guessing = unigram_perplexity((y for _, y in validation), model.pad_id)
        found = history.history["val_perplexity"][-1]
        if not found < guessing:
            names = [f"`{x}`" for x in names_from_text() if asked.get(x) is not None]
            names = [name for name in names if name.startswith("`training.")]
            remedy = f" Leave out {', '.join(names)}." if names else ""
            print(
                f"This training has learned nothing: its validation perplexity is "
                f"{found:.4g}, and guessing subwords by their frequency has "
                f"{guessing:.4g}.{remedy} "
                'See "It learns nothing" in docs/when_it_goes_wrong.md.'
            )


def unigram_perplexity(labels: Iterable, pad_id: int) -> float:
    """Returns the perplexity of guessing each label of batches by its frequency."""
    counts: Counter[int] = Counter()
    for batch in labels:
        counts.update(keras.ops.convert_to_numpy(batch).ravel().tolist())
    del counts[pad_id]
    total = counts.total()
    return math.exp(-sum(n / total * math.log(n / total) for n in counts.values()))


def compiled_model(state, schedule, num_replicas):
    """Returns the model of the checkpoint, or a new one."""
    run, recipe = state.run, state.run.settings
    settings = recipe.training
    # With TensorFlow, XLA compiles the step for one device, and cannot sum gradients
    # over several; in a loop of steps, TensorFlow 2.21 cannot either.
    is_one_program = IS_JAX or num_replicas == 1
    jit_compile = settings.jit_compile
    if jit_compile is None:
        jit_compile = IS_JAX or bool(keras.distribution.list_devices("gpu"))
    jit_compile = jit_compile and is_one_program
    steps = settings.steps_per_execution if is_one_program else 1
    if state.checkpoint:
        model = run.checkpoints().load(state.checkpoint)
        # The number of epochs may have changed, on which the schedule depends.
        model.optimizer.learning_rate = schedule
        model.jit_compile = jit_compile
        model.steps_per_execution = steps
        return model
    if recipe.model.pretrained:
        model = pretrained_model(run)
    else:
        source, target = run.tokenizers()
        model = Transformer(
            source.vocabulary_size,
            None if recipe.tokenizer.shared else target.vocabulary_size,
            pad_id=target.pad_id,
            start_id=target.start_id,
            end_id=target.end_id,
            dtype=settings.precision,
            **recipe.model.arguments(),
        )
    model.compile(
        optimizer(settings, schedule),
        training.TokenCrossentropy(settings.label_smoothing, model.pad_id),
        metrics=[
            training.TokenAccuracy(model.pad_id),
            training.Perplexity(model.pad_id),
            training.Padding(model.pad_id),
        ],
        jit_compile=jit_compile,
        steps_per_execution=steps,
    )
    return model


def pretrained_model(run: Run) -> Transformer:
    """Returns the model that training continues from, with the settings' dropout.

    What the settings do not want to be trained is frozen.
    """
    settings = run.settings.model
    arguments = {k: v for k, v in settings.arguments().items() if k in FREE_SETTINGS}
    arguments["dtype"] = run.settings.training.precision
    model = Transformer.from_preset(run.pretrained_path, **arguments)
    if settings.lora_rank:
        model = model.merge_lora()  # of an adaptation before this one
        model.enable_lora(settings.lora_rank)
    layers = {layer.path: layer for layer in all_layers(model) if layer.weights}
    for name in settings.frozen:
        if name not in layers:
            known = ", ".join(x.name for x in model.layers if x.weights)
            raise ValueError(
                f"`model.frozen` must name layers, such as {known}, or layers inside "
                f"of these. Received: {name!r}."
            )
        layers[name].trainable = False
    return model


def optimizer(settings, schedule) -> keras.optimizers.Optimizer:
    """Returns the optimizer of `TrainingSettings`, not built."""
    both = {
        "weight_decay": settings.weight_decay or None,
        "global_clipnorm": settings.global_clipnorm,
    }
    if settings.optimizer == "adam":
        steps = settings.batches_per_update
        return training.Adam(schedule, gradient_accumulation_steps=steps, **both)
    # Weights that are not matrices are trained as with `training.Adam`.
    adam = {"adam_beta_2": 0.98, "adam_lr_ratio": 0.5, "adam_weight_decay": None}
    return training.Muon(schedule, epsilon=1e-9, **adam, **both)


def learning_rate(settings, steps_per_epoch: int):
    """Returns the schedule of `TrainingSettings`."""
    # With the peak given, the width cancels out.
    schedule = training.InverseSquareRootSchedule.with_peak(
        settings.learning_rate, hidden_dim=1, warmup_steps=settings.warmup_steps
    )
    if not settings.cooldown_epochs:
        return schedule
    cooldown_epochs = min(settings.cooldown_epochs, settings.epochs)
    start = (settings.epochs - cooldown_epochs) * steps_per_epoch
    return training.Cooldown(schedule, start, cooldown_epochs * steps_per_epoch)


def _writers(run, model, steps_per_epoch):
    """Returns the callbacks that measure the model and write to the folder."""
    settings = run.settings.training
    board = run.folder / "tensorboard"
    writers = [
        training.ShowProgress(steps_per_epoch),
        WriteLog(run.log, settings.early_stopping),
        training.SaveCheckpoints(
            run.checkpoints(),
            settings.checkpoint_every,
            settings.checkpoint_minutes,
            on_save=lambda epoch, batch: run.update(epoch=epoch, batch=batch),
        ),
        # Keras cannot write a graph of such a model.
        WriteTensorBoard(board, write_graph=False),
    ]
    if settings.bleu_every is not None:
        translator = run.translator_of(model)
        search = with_beam(translator.search, beam_width=1)
        sides = (
            itertools.chain.from_iterable(map(read_lines, files))
            for files in run.validation_files(run.settings.data)
        )
        bleu = training.BleuCallback(
            lambda texts: translator.translate(texts, search),
            *(list(itertools.islice(x, settings.bleu_sentences)) for x in sides),
            every=settings.bleu_every,
            language=run.settings.data.target,
        )
        writers.insert(0, bleu)  # The others write what it adds to the logs.
    return writers
