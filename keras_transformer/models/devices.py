"""Whether the devices that train a model hold its weights as they should."""

import math
import re

from keras_transformer.keras_private import all_layers, layout_rules

LARGE_WEIGHT = 2**16  # elements


def check_strategy(model) -> None:
    """Raises `ValueError` unless its `tf.distribute` strategy can train a model."""
    strategy = model.distribute_strategy
    if model.jit_compile and strategy.num_replicas_in_sync > 1:
        raise ValueError(
            "`jit_compile` must be False under a strategy of several devices: XLA "
            "compiles for one. Compile the model again. Received: jit_compile=True, "
            f"with {strategy.num_replicas_in_sync} devices."
        )
    is_created_in_scope = strategy.extended.variable_created_in_scope
    if not all(is_created_in_scope(variable.value) for variable in model.variables):
        raise ValueError(
            "The model must be built within the strategy's scope, in which it is "
            "trained. Make or load it after `with strategy.scope():`."
        )


def check_layout(model) -> None:
    """Raises `ValueError` unless the rules of a `ModelParallel` fit a model's weights.

    Keras would put a whole copy of a weight that no rule fits on every device.
    """
    rules = layout_rules()
    if not rules:
        return
    paths = [weight.path for weight in model.weights]
    # Rules may also say how the outputs of layers are split.
    paths_and_outputs = [*paths, *(f"{x.path}/output" for x in all_layers(model))]
    for rule in rules:
        if not any(re.fullmatch(rule, path) for path in paths_and_outputs):
            raise ValueError(
                "Every rule of the `layout_map` must fit a weight of the model. "
                f"Received: {rule!r}, which fits none; its weights are such as "
                f"{paths[0]!r}."
            )
    for weight in model.weights:
        is_large = len(weight.shape) > 1 and math.prod(weight.shape) >= LARGE_WEIGHT
        if is_large and rules[weight.path] is None:
            raise ValueError(
                "The `layout_map` must have a rule for every large weight, or every "
                f"device holds a whole copy of it. Received: none for {weight.path!r} "
                f"of shape {tuple(weight.shape)}. Add one, such as "
                f"layout_map[{weight.path!r}] = (None, 'model')."
            )
