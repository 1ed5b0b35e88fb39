# %% [markdown]
# # Many GPUs and many machines
#
# A larger batch gives a better gradient, but takes longer. *Data parallelism* splits
# each batch among several devices. Every device holds a copy of the model (a *replica*)
# and computes the gradient of its slice of the batch; the gradients are added, and all
# copies take the same step. If the sums are right, the result does not depend on the
# number of devices.
#
# This tutorial shows that two devices learn the same as one, if the loss is divided
# correctly. Then it shows how to start the same program on many machines. It needs no
# GPU, because one processor can act as two devices. It takes about a minute on two
# cores.

# %%
import json
import os
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import keras_transformer as kt

EPOCHS = int(os.environ.get("TUTORIAL_EPOCHS", "8"))
FOLDER = Path(os.environ.get("TUTORIAL_FOLDER") or tempfile.mkdtemp())


def show(figure, name):
    """Saves a figure to FOLDER and returns it, so that a notebook displays it."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## Two devices
# A TensorFlow *strategy* says which devices take part. `kt.training.pick_strategy`
# picks one to suit the machine. Here we split the processor into two logical devices,
# which has to happen before TensorFlow does anything else.

# %%
(cpu,) = tf.config.list_physical_devices("CPU")
half = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpu, [half, half])
one_device = kt.training.pick_strategy("default")
two_devices = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print("replicas:", one_device.num_replicas_in_sync, two_devices.num_replicas_in_sync)

# %% [markdown]
# ## What has to be right
# The task is to reverse a sequence. Sequences have different lengths, so batches are
# padded, and unevenly: here the first half of each batch is long and the second half
# short. One device divides the sum of the losses by the number of real tokens, `n`. If
# two devices each divide by their own number and the results are averaged, a token of
# the short half counts more than one of the long half:
#
#     one device      (loss₁ + loss₂) / (n₁ + n₂)
#     two, naively    (loss₁ / n₁ + loss₂ / n₂) / 2
#
# `kt.training.TokenCrossentropy` divides by the tokens of *all* devices. On each
# device, Keras's own losses divide by the tokens of that device.

# %%
ROWS, BATCHES, LENGTH, SYMBOLS = 32, 16, 12, 20
rng = np.random.default_rng(1)
source = rng.integers(4, SYMBOLS, (BATCHES * ROWS, LENGTH), dtype="int32")
is_short = np.arange(len(source)) % ROWS >= ROWS // 2
source[is_short, 3:] = 0
labels = np.where(
    is_short[:, None], np.roll(source[:, ::-1], 3, axis=1), source[:, ::-1]
)
starts = np.full((len(source), 1), 2, "int32")
targets = np.concatenate([starts, labels[:, :-1]], axis=1) * (labels != 0)
inputs = {"source_ids": source, "target_ids": targets}
data = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(ROWS)


def train(strategy, loss):
    """Returns the weights and the loss after every epoch."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = kt.models.Transformer(
            SYMBOLS,
            num_layers=1,
            hidden_dim=32,
            num_heads=2,
            intermediate_dim=64,
            dropout=0,
        )
        model.compile(keras.optimizers.SGD(0.2), loss)
    weights = []
    keep_weights = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: weights.append(
            np.concatenate([weight.ravel() for weight in model.get_weights()])
        )
    )
    history = model.fit(
        data, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[keep_weights]
    )
    return np.array(weights), history.history["loss"]


losses = {
    "TokenCrossentropy": kt.training.TokenCrossentropy(),
    "Keras": keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=0
    ),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
epochs = np.arange(EPOCHS) + 1
for name, loss in losses.items():
    weights_of_one, losses_of_one = train(one_device, loss)
    weights_of_two, losses_of_two = train(two_devices, loss)
    difference = np.abs(weights_of_two - weights_of_one).max(axis=1)
    print(f"{name}: weights differ by at most {difference[-1]:.1e} at the end")
    right.plot(epochs, difference, ".-", label=name)
    if name == "TokenCrossentropy":
        left.plot(epochs, losses_of_one, "-", label="one device")
        left.plot(epochs, losses_of_two, "o", mfc="none", label="two devices")
left.set(title="loss (TokenCrossentropy)", xlabel="epoch")
right.set(title="largest difference between weights", xlabel="epoch", yscale="log")
for axes in (left, right):
    axes.legend(frameon=False)
show(figure, "replicas")

# %% [markdown]
# With `TokenCrossentropy` the weights differ only by rounding errors, because the same
# numbers are added in a different order. With the Keras loss, averaged on each device,
# the two trainings end with different weights.
#
# Every replica must get the same number of rows. The size of a
# `kt.text.parallel_dataset` batch is counted in tokens, so its number of rows may be
# odd. `split_evenly` adds rows of padding, which the loss ignores:
#
#     strategy = kt.training.pick_strategy()
#     with strategy.scope():
#         model = kt.models.Transformer.from_preset("base", 8000)
#         model.compile(...)
#     model.fit(kt.training.split_evenly(dataset, strategy.num_replicas_in_sync))
#
# ## Many machines
# Each machine starts the same program, called a *worker*. Only the environment variable
# `TF_CONFIG` differs: it lists all workers, and identifies this one. The first worker
# is the *chief*. Only the chief writes checkpoints and logs.

# %%
hosts = ["gpu-0:2222", "gpu-1:2222"]
for index in range(len(hosts)):
    task = {"type": "worker", "index": index}
    config = json.dumps({"cluster": {"worker": hosts}, "task": task})
    print(f"TF_CONFIG='{config}' keras-transformer train recipe.yaml --run runs/en-de")

# %% [markdown]
# All workers need access to the same data and the same run folder, for example on a
# shared disk. `pick_strategy()` reads the variable and waits until all workers have
# started. In a script, call it before any other use of TensorFlow.
# `kt.training.Workers` tells whether this worker is the chief:
#
#     strategy = kt.training.pick_strategy()
#     workers = kt.training.Workers(strategy)
#     callbacks = [kt.training.SaveCheckpoints(checkpoints)] if workers.is_chief else []
#
# On Kubernetes, the operators of Kubeflow set `TF_CONFIG`; under Slurm,
# `--set training.strategy=slurm` reads the variables of the job. The
# page on [clusters](../docs/clusters.md) shows both.
#
# If a worker is lost, the others cannot add up their gradients, so they stop with an
# error message. Start the same command on all machines again, and training continues
# from the last checkpoint.

# %% [markdown]
# ## What to try next
# - Make all sequences equally long. What happens to the difference with the Keras loss,
#   and why?
# - Train with `kt.training.Adam(0.01)` instead. Adam divides each gradient by its
#   magnitude: which weights differ first? (`epsilon=1e-4` brings them together again.)
# - Start two workers on this machine, in two terminals, with `localhost:2222` and
#   `localhost:2223` as hosts. Kill one.
#
# Sources: [Dean et al., 2012](https://research.google/pubs/pub40565/) train on many
# machines; [Goyal et al., 2017](https://arxiv.org/abs/1706.02677) keep the accuracy as
# the batch grows, and list the division above among the pitfalls;
# [Ott et al., 2018](https://arxiv.org/abs/1806.00187) do both for translation.
