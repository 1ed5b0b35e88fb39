"""Every use of a private interface of Keras, in one place.

Each function says what it needs and why no public interface gives it;
`tests/kernels/test_keras_private.py` fails when Keras changes.
"""


def variable_index(optimizer, variable) -> int:
    """Returns the place of a model's variable among those of its optimizer.

    Keras passes `update_step` a `keras.Variable` or, on TensorFlow, the copy of it
    that one replica holds. Only the optimizer can tell which variable that is, by
    `_get_variable_index`, which the update steps of Keras's own optimizers call.
    """
    try:
        return optimizer._get_variable_index(variable)
    except KeyError:
        raise ValueError(
            "The optimizer was built for other variables; compile the model again with "
            f"a new one. Received: variable={variable.name}."
        ) from None


def trainable_variables(optimizer):
    """Returns the model's variables that an optimizer was built with, in their order.

    `Optimizer.apply` may be called with gradients alone, as `stateless_apply` does, and
    then updates these. Publicly an optimizer has only `variables`, which are its own.
    """
    return optimizer._trainable_variables


def adam_moments(optimizer, variable):
    """Returns the two moments that `keras.optimizers.Adam` keeps of a variable.

    Both are a `keras.Variable`: the running mean of the gradient and that of its
    square. Publicly they are only in `optimizer.variables`, unnamed among others.
    """
    index = variable_index(optimizer, variable)
    return optimizer._momentums[index], optimizer._velocities[index]
