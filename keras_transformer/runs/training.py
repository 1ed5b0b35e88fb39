"""Training what a recipe describes: a plan that writes nothing, and its execution."""

import itertools
import math
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import keras

from keras_transformer import training
from keras_transformer.keras_private import all_layers
from keras_transformer.kernels import target
from keras_transformer.kernels.attention import no_blocks
from keras_transformer.models import Transformer
from keras_transformer.runs.defaults import TextSize, measure, settings_for, table_of
from keras_transformer.runs.folder import Run, with_beam
from keras_transformer.runs.log import WriteLog
from keras_transformer.runs.preparing import open_prepared
from keras_transformer.runs.recipe import Recipe
from keras_transformer.runs.start import (
    FREE_SETTINGS,
    begin,
    check_new,
    join,
    resumed,
)
from keras_transformer.text import parallel_dataset, prepared_dataset, read_lines
from keras_transformer.text_files import TextFile

IS_JAX = target.BACKEND == "jax"


@dataclass(frozen=True)
class Plan:
    """What `fit` will do.

    Attributes:
        named: The recipe as it was given.
        recipe: The same with all settings: what it did not name follows from the
            training text or, for a run that is resumed, is as it was.
        text: Size of the training text; None for a run that is resumed.
        run: The folder.
        files: For `"train"` and `"validation"`, the source and the target files;
            without `"train"` if its text is prepared.
        checkpoint: The checkpoint to resume from; None for a new run.
        epochs_done: Complete epochs that it was trained for.
        is_finished: Whether there is nothing left to train.
    """

    named: Recipe
    recipe: Recipe
    text: TextSize | None
    run: Run
    files: dict[str, tuple[list[TextFile], list[TextFile]]]
    checkpoint: Path | None
    epochs_done: int
    is_finished: bool


def plan(recipe: Recipe, run: Run) -> Plan:
    """Decides what there is to train. Writes nothing, and builds no model.

    Args:
        recipe: Files and settings.
        run: A new folder, or one to resume. If it holds checkpoints of the same recipe,
            training resumes after the last complete one.

    Returns:
        The `Plan`, for `fit`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If the folder holds something else.
    """
    splits = ["validation"] if recipe.data.prepared else ["train", "validation"]
    files = {split: recipe.data.check_files(split) for split in splits}
    named, text = recipe, None
    if recipe.data.prepared:
        recipe, text = open_prepared(recipe)
    checkpoint, epochs_done, has_stalled = None, 0, False
    if run.has_trained():
        recipe, text = resumed(recipe, run), None
        checkpoints = run.checkpoints()
        checkpoint = checkpoints.latest()
        if checkpoint is None:
            raise ValueError(
                f"{checkpoints.folder} holds no complete checkpoint to resume from. "
                "Name another run folder."
            )
        epochs_done = checkpoints.epoch_of(checkpoint)
        waited = run.log.epochs_without_improvement(epochs_done)
        has_stalled = waited >= (recipe.training.early_stopping or math.inf)
    else:
        check_new(run)
        text = text or measure(*files["train"])
        recipe = recipe.completed(settings_for(recipe, text))
    is_finished = has_stalled or epochs_done >= (recipe.training.num_epochs or 0)
    return Plan(named, recipe, text, run, files, checkpoint, epochs_done, is_finished)


def fit(plan: Plan) -> Run:
    """Trains a translator, or resumes a training that was interrupted.

    A resumed training ends with the weights, the optimizer and the order of sentences
    of an uninterrupted one. Workers on several machines share the folder; only the
    chief writes to it.

    Args:
        plan: What `plan` returned; each worker makes its own.

    Returns:
        The run; its `translator()` is the result.

    Raises:
        ValueError: If the text is invalid or has changed, or settings contradict each
            other.
        FloatingPointError: If the loss becomes NaN.
        ConnectionError: If another worker is lost.

    Example:
        >>> from keras_transformer.runs import Recipe, Run, fit, plan
        >>> recipe = Recipe.load("demo", {"data.folder": "runs/demo-data"})
        >>> fit(plan(recipe, Run("runs/demo")))
        Traceback (most recent call last):
        FileNotFoundError: runs/demo-data/train.en does not exist, ...
    """
    recipe, run = plan.recipe, plan.run
    # Workers must connect before TensorFlow does anything else.
    workers = training.Workers(training.pick_strategy(recipe.training.strategy))
    with (
        workers.watched(),
        training.all_devices(recipe.training.model_devices) as copies,
    ):
        workers.num_replicas *= copies
        check_precision(recipe.training.precision, workers.num_replicas)
        if workers.is_chief:
            is_free = plan.named.tokenizer.vocabulary_size is None
            begin(recipe, run, plan.epochs_done, is_free)
            if plan.text is not None:
                print(table_of(plan.named, run.recipe, plan.text))
        found = workers.gather(plan.epochs_done)
        if len(set(found)) > 1:
            raise ValueError(
                f"{run.folder} must be on a disk that all workers share. Received: "
                f"checkpoints of {found} epochs."
            )
        if not workers.is_chief:
            join(plan.named, run)
        if not plan.is_finished:
            _train(plan, workers)
        if workers.is_chief:
            save_average(run, recipe.decoding.average)
        workers.wait()
    return run


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


def check_precision(precision: str, num_replicas: int) -> None:
    """Raises `ValueError` if models cannot be trained in such a precision.

    On several devices, Keras 3.15 looks for overflows of float16 on the first alone.
    """
    if precision == "mixed_float16" and num_replicas > 1:
        raise ValueError(
            "`training.precision` must be float32 or mixed_bfloat16 on "
            f"{num_replicas} devices. Received: {precision!r}."
        )


def _train(plan, workers):
    recipe, settings = plan.recipe, plan.recipe.training
    tokenizers = plan.run.tokenizers()
    sizes = settings.tokens_per_batch, settings.max_length
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
        data = parallel_dataset(
            *(side * settings.passes_per_epoch for side in plan.files["train"]),
            *tokenizers,
            *sizes,
            seed=settings.seed,
            sampling=recipe.tokenizer.sampling,
        )
    validation = parallel_dataset(
        *plan.files["validation"], *tokenizers, *sizes, shuffle=False
    )
    num_steps = settings.validate_every
    position = training.KeepPosition(data, num_steps)
    schedule = learning_rate(settings, num_steps or int(data.cardinality()))
    keras.utils.set_random_seed(settings.seed)
    recomputed = keras.RematScope("full" if settings.recompute else None)
    with workers.strategy.scope(), recomputed:
        model = compiled_model(plan, tokenizers, schedule, workers.num_replicas)
    if plan.checkpoint:
        position.load(model, plan.checkpoint)
    callbacks = [
        position,
        training.StopAtNaN(),
        *(_writers(plan, model) if workers.is_chief else []),
        training.StopTogether(workers),
    ]
    batches = data.repeat() if num_steps else data
    if recipe.data.prepared:
        batches = workers.own_batches(batches, model.pad_id)
    else:
        batches = training.split_evenly(batches, workers.num_replicas, model.pad_id)
    with no_blocks(settings.max_length):
        history = model.fit(
            batches,
            validation_data=training.split_evenly(
                validation, workers.num_replicas, model.pad_id
            ),
            epochs=settings.num_epochs,
            steps_per_epoch=num_steps,
            initial_epoch=plan.epochs_done,
            shuffle=False,  # the dataset does it
            verbose=(1 if sys.stdout.isatty() else 2) if workers.is_chief else 0,
            callbacks=callbacks,
        )
    if workers.is_chief:
        guessing = unigram_perplexity((y for _, y in validation), model.pad_id)
        found = history.history["val_perplexity"][-1]
        if not found < guessing:
            print(
                f"This training has not learned: its validation perplexity is "
                f"{found:.4g}, and guessing subwords by their frequency has "
                f"{guessing:.4g}. Leave out `training.warmup_steps`, `learning_rate` "
                "and `tokens_per_batch`, so that they follow from the text, or raise "
                "`training.epochs`."
            )


def unigram_perplexity(labels: Iterable, pad_id: int) -> float:
    """Returns the perplexity of guessing each label by its frequency in the labels.

    Args:
        labels: Batches of labels, integer tensors of shape `(batch, length)`.
        pad_id: Label of padding, which does not count.
    """
    counts: Counter[int] = Counter()
    for batch in labels:
        counts.update(keras.ops.convert_to_numpy(batch).ravel().tolist())
    del counts[pad_id]
    total = counts.total()
    return math.exp(-sum(n / total * math.log(n / total) for n in counts.values()))


def compiled_model(plan, tokenizers, schedule, num_replicas):
    """Returns the model of the checkpoint, or a new one."""
    settings = plan.recipe.training
    jit_compile = settings.jit_compile
    if jit_compile is None:
        jit_compile = IS_JAX or bool(keras.distribution.list_devices("gpu"))
    # With TensorFlow, XLA compiles the step for one device, and cannot sum gradients
    # over several; in a loop of steps, TensorFlow 2.21 cannot either.
    is_one_program = IS_JAX or num_replicas == 1
    jit_compile = jit_compile and is_one_program
    steps = settings.steps_per_execution if is_one_program else 1
    if plan.checkpoint:
        model = plan.run.checkpoints().load(plan.checkpoint)
        # The number of epochs may have changed, on which the schedule depends.
        model.optimizer.learning_rate = schedule
        model.jit_compile = jit_compile
        model.steps_per_execution = steps
        return model
    recipe, (source, target) = plan.recipe, tokenizers
    if recipe.model.pretrained:
        model = pretrained_model(recipe, plan.run)
    else:
        model = Transformer.from_preset(
            recipe.model.preset,
            source.vocabulary_size,
            target_vocabulary_size=(
                None if recipe.tokenizer.shared else target.vocabulary_size
            ),
            pad_id=target.pad_id,
            start_id=target.start_id,
            end_id=target.end_id,
            dtype=settings.precision,
            **recipe.model.overrides(),
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


def pretrained_model(recipe: Recipe, run: Run) -> Transformer:
    """Returns the model that training continues from, with the recipe's dropout.

    What the recipe does not want to be trained is frozen.
    """
    settings = recipe.model
    arguments = {k: v for k, v in settings.overrides().items() if k in FREE_SETTINGS}
    arguments["dtype"] = recipe.training.precision
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
    weight_decay = settings.weight_decay or None
    if settings.optimizer == "muon":
        # What is no matrix is trained as by `training.Adam`.
        return training.Muon(
            schedule,
            adam_beta_2=0.98,
            adam_lr_ratio=0.5,
            adam_weight_decay=None,
            epsilon=1e-9,
            weight_decay=weight_decay,
        )
    return training.Adam(
        schedule,
        gradient_accumulation_steps=settings.batches_per_update,
        weight_decay=weight_decay,
    )


def learning_rate(settings, steps_per_epoch: int):
    """Returns the schedule of `TrainingSettings`."""
    # With the peak given, the width cancels out.
    schedule = training.InverseSquareRootSchedule.with_peak(
        settings.learning_rate, hidden_dim=1, warmup_steps=settings.warmup_steps
    )
    if not settings.cooldown_epochs:
        return schedule
    cooldown_epochs = min(settings.cooldown_epochs, settings.num_epochs)
    start = (settings.num_epochs - cooldown_epochs) * steps_per_epoch
    return training.Cooldown(schedule, start, cooldown_epochs * steps_per_epoch)


def _writers(plan, model):
    """Returns the callbacks that measure the model and write to the folder."""
    settings, run = plan.recipe.training, plan.run
    board = run.folder / "tensorboard"
    writers = [
        WriteLog(run.log, settings.early_stopping),
        training.SaveCheckpoints(
            run.checkpoints(), settings.checkpoint_every, settings.checkpoint_minutes
        ),
        # Without a graph: Keras has none to write of such a model.
        keras.callbacks.TensorBoard(board, write_graph=False),
    ]
    if settings.bleu_every is not None:
        translator = run.translator_of(model)
        search = with_beam(translator.search, beam_width=1)
        sources, references = (
            itertools.chain.from_iterable(map(read_lines, files))
            for files in plan.files["validation"]
        )
        bleu = training.BleuCallback(
            lambda texts: translator.translate(texts, search),
            list(itertools.islice(sources, settings.bleu_sentences)),
            list(itertools.islice(references, settings.bleu_sentences)),
            every=settings.bleu_every,
        )
        writers.insert(0, bleu)  # The others write what it adds to the logs.
    return writers
