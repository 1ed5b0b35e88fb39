"""Trains with two workers of Ray Train: `ray_train.py FOLDER` writes their weights."""

import json
import sys
from pathlib import Path


def fit(path):
    """Trains as `TF_CONFIG` says; writes the number of replicas and all weights."""
    import keras
    import numpy as np
    import tensorflow as tf

    import keras_transformer as kt

    strategy = kt.training.pick_strategy()
    keras.utils.set_random_seed(7)
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 12}
    with strategy.scope():
        model = kt.models.LanguageModel(24, dropout=0.0, **sizes)
        # Adam divides by the size of a gradient, which may be a rounding error.
        optimizer = kt.training.Adam(0.01, epsilon=1e-4)
        loss = kt.training.TokenCrossentropy()
        model.compile(optimizer, loss, jit_compile=False)
    ids = np.random.default_rng(3).integers(4, 24, (13, 7)).astype("int32")
    batches = tf.data.Dataset.from_tensor_slices((np.roll(ids, 1, 1), ids)).batch(7)
    batches = kt.training.split_evenly(batches, strategy.num_replicas_in_sync)
    model.fit(batches, epochs=2, shuffle=False, verbose=0)
    weights = [weight.tolist() for weight in model.get_weights()]
    if kt.training.Workers(strategy).is_chief:
        found = {"replicas": strategy.num_replicas_in_sync, "weights": weights}
        Path(path).write_text(json.dumps(found))


if __name__ == "__main__":
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.tensorflow import TensorflowTrainer

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    TensorflowTrainer(
        lambda settings: fit(**settings),
        train_loop_config={"path": f"{sys.argv[1]}/ray.json"},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=sys.argv[1]),
    ).fit()
