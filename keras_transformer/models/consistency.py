"""Models whose `compile` takes a further term for the training loss."""

import keras


class ConsistencyMixin:
    """Adds `consistency` to `compile`: a loss term computed by a second forward pass.

    It comes before `keras.Model` among the bases of a class.
    """

    consistency = None
    consistency_seed = None

    def compile(self, *args, consistency=None, **kwargs):
        """Configures training, as `keras.Model.compile` does.

        Args:
            *args: Arguments of `keras.Model.compile`.
            consistency: `kt.training.RDrop`, `kt.training.SimCut` or
                `kt.training.Distillation`. It needs a loss with a method
                `weights(y_true, sample_weight)`, such as
                `kt.training.TokenCrossentropy`. None: one forward pass a step.
            **kwargs: Further arguments of `compile`.

        Raises:
            ValueError: If the loss has no such method, or there are `loss_weights`.
        """
        super().compile(*args, **kwargs)
        if consistency is not None:
            if not hasattr(self.loss, "weights"):
                raise ValueError(
                    "`loss` must have a method `weights`, as `TokenCrossentropy` has, "
                    f"to train with `consistency`. Received: loss={self.loss!r}."
                )
            if kwargs.get("loss_weights") is not None:
                raise ValueError(
                    "`loss_weights` must be left out with `consistency`, whose term "
                    "they would not weigh. Received: "
                    f"loss_weights={kwargs['loss_weights']}."
                )
            if self.consistency_seed is None:
                # An attribute of the model, so that checkpoints hold its state.
                self.consistency_seed = keras.random.SeedGenerator()
        self.consistency = consistency

    def get_compile_config(self):
        config = super().get_compile_config()
        # A `Distillation` has no config: its teacher is not saved with the model.
        if config and hasattr(self.consistency, "get_config"):
            consistency = keras.saving.serialize_keras_object(self.consistency)
            config["consistency"] = consistency
        return config

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training=training)
        if training and self.consistency is not None:
            loss = loss + self.consistency(self, x, y, y_pred, sample_weight)
        return loss
