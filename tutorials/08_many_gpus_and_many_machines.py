# %% [markdown]
# # Many GPUs and many machines
#
# A large batch makes a better step, and takes longer. Data parallelism cuts the batch
# in parts: every device holds a copy of the model, learns from its part, adds its
# gradient to those of the others, and all copies take the same step. Nobody has to
# know how many devices there were, if the sums are right.
#
# This tutorial shows that two devices learn what one does, and the division that has
# to be right for it; then how to start the same program on many machines. There is
# no GPU needed: a processor can pretend to be two. On two cores it takes a minute.

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
    """Keeps a figure in FOLDER; a notebook shows it, too."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## Two devices
# A *strategy* of TensorFlow says which devices take part. `kt.training.pick_strategy`
# picks the one that suits the machine; here we name two halves of the processor, which
# must be set up before TensorFlow does anything else.

# %%
(cpu,) = tf.config.list_physical_devices("CPU")
half = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpu, [half, half])
one = kt.training.pick_strategy("default")
two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print(one.num_replicas_in_sync, "and", two.num_replicas_in_sync, "replicas")

# %% [markdown]
# ## What has to be right
# The task is to write a sequence backwards. Sequences differ in length, so batches are
# filled up with padding, and it falls unevenly: here the first half of each batch is
# long, the second short. One device divides the sum of the losses by the number of
# real tokens `n`. Two devices that each divide by their own number, and then take the
# mean, weigh a token of the short half more than one of the long half:
#
#     one device      (loss₁ + loss₂) / (n₁ + n₂)
#     two, naively    (loss₁ / n₁ + loss₂ / n₂) / 2
#
# `kt.training.TokenCrossentropy` divides by the tokens of *all* devices. The losses of
# Keras divide by their own.

# %%
ROWS, BATCHES, LENGTH, SYMBOLS = 32, 16, 12, 20
draw = np.random.default_rng(1)
source = draw.integers(4, SYMBOLS, (BATCHES * ROWS, LENGTH), dtype="int32")
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
    """Returns the weights after every epoch, and the losses."""
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
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: weights.append(
            np.concatenate([weight.ravel() for weight in model.get_weights()])
        )
    )
    history = model.fit(data, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[keep])
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
    alone, loss_alone = train(one, loss)
    shared, loss_shared = train(two, loss)
    apart = np.abs(shared - alone).max(axis=1)
    print(f"{name}: weights at most {apart[-1]:.1e} apart after {EPOCHS} epochs")
    right.plot(epochs, apart, ".-", label=name)
    if name == "TokenCrossentropy":
        left.plot(epochs, loss_alone, "-", label="one device")
        left.plot(epochs, loss_shared, "o", mfc="none", label="two devices")
left.set(title="loss, TokenCrossentropy", xlabel="epoch")
right.set(title="largest difference of a weight", xlabel="epoch", yscale="log")
for axes in (left, right):
    axes.legend(frameon=False)
show(figure, "replicas")

# %% [markdown]
# The weights part by rounding errors: the same sums, added up in another order. With a
# loss that each device averages for itself they are other weights, of another training.
#
# Every batch must give each replica equally many rows. `kt.text.parallel_dataset` cuts
# batches by tokens, so their rows may be odd; `split_evenly` fills them up with
# padding, which counts for nothing:
#
#     strategy = kt.training.pick_strategy()
#     with strategy.scope():
#         model = kt.models.Transformer.from_preset("base", 8000)
#         model.compile(...)
#     model.fit(kt.training.split_evenly(dataset, strategy.num_replicas_in_sync))
#
# ## Many machines
# Each machine starts the same program: a *worker*. What differs is one environment
# variable, `TF_CONFIG`, which tells a worker where the others are and which of them it
# is. The first one is the chief, which alone writes checkpoints and logs.

# %%
hosts = ["gpu-0:2222", "gpu-1:2222"]
for index in range(len(hosts)):
    task = {"type": "worker", "index": index}
    config = json.dumps({"cluster": {"worker": hosts}, "task": task})
    print(f"TF_CONFIG='{config}' keras-transformer train recipe.yaml --run runs/en-de")

# %% [markdown]
# Folder and data must be on a disk that all of them see. `pick_strategy()` finds the
# variable, and waits until all workers are there. In a script, call it before anything
# else of TensorFlow, and let `kt.training.Workers` tell who is the chief:
#
#     strategy = kt.training.pick_strategy()
#     workers = kt.training.Workers(strategy)
#     callbacks = [SaveCheckpoints(checkpoints)] if workers.is_chief else []
#
# Kubernetes writes `TF_CONFIG` for you; under Slurm, `--set training.strategy=slurm`
# reads the job's own variables. The [README](../README.md) shows both.
#
# When a worker is lost, the others cannot add up their gradients. They end with a line
# that says so, and the same command, started on all machines again, goes on after the
# last checkpoint.

# %% [markdown]
# ## What to try next
# - Make all sequences equally long. What becomes of the difference under the loss of
#   Keras, and why?
# - Train with `kt.training.Adam(0.01)` instead. Adam divides by the size of a gradient:
#   which weights part first? (`epsilon=1e-4` brings them together again.)
# - Start two workers on this machine, in two terminals, with `localhost:2222` and
#   `localhost:2223` as hosts. Kill one.
#
# Sources: [Dean et al., 2012](https://research.google/pubs/pub40565/) train on many
# machines; [Goyal et al., 2017](https://arxiv.org/abs/1706.02677) keep what is learned
# as the batch grows, and name the division above among the pitfalls;
# [Ott et al., 2018](https://arxiv.org/abs/1806.00187) do both for translation.
