"""Fails when Keras changes what `kernels.keras_private` uses, or others use more."""

import ast
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer
from keras_transformer.kernels import keras_private

PACKAGE = Path(keras_transformer.__file__).parent


@pytest.fixture
def variables():
    return [keras.Variable(np.ones(size), name=f"v{size}") for size in (2, 3, 5)]


def test_an_optimizer_knows_the_place_of_its_variables(variables):
    optimizer = keras.optimizers.Adam()
    optimizer.build(variables)
    for index, variable in enumerate(variables):
        assert keras_private.variable_index(optimizer, variable) == index
        if keras.backend.backend() == "tensorflow":
            # As `update_step` receives it.
            assert keras_private.variable_index(optimizer, variable.value) == index
    with pytest.raises(ValueError, match="built for other variables"):
        keras_private.variable_index(optimizer, keras.Variable(np.ones(2)))


def test_an_optimizer_knows_the_variables_it_was_built_with(variables):
    optimizer = keras.optimizers.Adam()
    optimizer.build(variables)
    found = keras_private.trainable_variables(optimizer)
    assert [id(x) for x in found] == [id(x) for x in variables]


def test_the_moments_of_adam_are_those_that_it_updates(variables):
    optimizer = keras.optimizers.Adam(beta_1=0.9, beta_2=0.75)
    gradients = [ops.full(variable.shape, 2.0) for variable in variables]
    optimizer.build(variables)
    optimizer.apply(gradients, variables)
    for variable in variables:
        momentum, velocity = keras_private.adam_moments(optimizer, variable)
        for moment, value in ((momentum, 0.1 * 2), (velocity, 0.25 * 4)):
            assert any(moment is x for x in optimizer.variables)
            np.testing.assert_allclose(
                ops.convert_to_numpy(moment), np.full(variable.shape, value), 1e-6
            )


def test_nothing_else_in_the_package_uses_private_names_of_keras():
    """Every private attribute that is read is one that the package itself defines."""
    # Those of named tuples and of the module `os`.
    defined, used = {"_asdict", "_fields", "_replace", "_exit"}, {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = []
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
            elif isinstance(node, ast.Attribute):
                if isinstance(node.ctx, ast.Store):
                    defined.add(node.attr)
                elif node.attr.startswith("_") and not node.attr.startswith("__"):
                    names = [node.attr]
            elif isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None) or ""
                modules = [module, *(alias.name for alias in node.names)]
                names = [name for name in modules if name.startswith("keras.src")]
            for name in names:
                used.setdefault(name, set()).add(path.relative_to(PACKAGE).as_posix())
    foreign = {name: used[name] for name in used.keys() - defined}
    home = {"kernels/keras_private.py"}
    assert foreign == dict.fromkeys(
        ("_get_variable_index", "_momentums", "_trainable_variables", "_velocities"),
        home,
    )
