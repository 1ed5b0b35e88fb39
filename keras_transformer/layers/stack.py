"""What the stacks of encoders and decoders share: blocks, one after the other."""

from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.layer_norm import LayerNormalization
from keras_transformer.layers.block import TransformerBlock
from keras_transformer.layers.layer_arguments import Positions
from keras_transformer.layers.positions import (
    acts_on_inputs,
    merge_positions,
    merge_positions_at,
    position_layer,
)
from keras_transformer.layers.weight_options import sub_seed


class TransformerStack(TransformerBlock):
    """Base class of stacks of blocks, with the arguments of `Encoder`."""

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        positions: Positions = None,
        **kwargs,
    ):
        super().__init__(num_heads, intermediate_dim, **kwargs)
        check_positive_integers(num_layers=num_layers)
        self.num_layers = num_layers
        self.positions = position_layer(positions, self.dtype_policy)
        self._merges_positions = acts_on_inputs(self.positions)

    def _build_stack(self, block_class, inputs_shape, *other_shapes):
        settings, dtype = self._block_settings(), self.dtype_policy
        if self._merges_positions:
            settings["positions"] = None
            self.positions.build(inputs_shape)
            inputs_shape = self.positions.compute_output_shape(inputs_shape)
        seed = sub_seed(self.seed, "dropout")
        self._dropout = Dropout(self.dropout, seed, dtype=dtype)
        self.blocks = [
            block_class(
                **{**settings, **self._sublayer_settings(f"block_{i}")},
                **self.weight_options,
            )
            for i in range(self.num_layers)
        ]
        for block in self.blocks:
            block.build(inputs_shape, *other_shapes)
        if self.positions is not None:
            self.positions.built = True  # The blocks have copies; Keras checks all.
        self._norm = None
        if self.normalize_first:  # the last block leaves its sum unnormalised
            name = "final_norm"
            self._norm = LayerNormalization(self.epsilon, name=name, dtype=dtype)
            self._norm.build(inputs_shape)

    def _call_blocks(
        self, inputs, *memory, positions, return_attention_scores, **settings
    ):
        """Calls all blocks; scores get the layers as their first axis."""
        merged = self._merge_positions(inputs, settings["training"], positions)
        states, all_scores = merged, []
        settings["return_attention_scores"] = return_attention_scores
        if not self._merges_positions:
            settings["positions"] = positions
        for block in self.blocks:
            outputs = block(states, *memory, **settings)
            states, *scores = outputs if return_attention_scores else (outputs,)
            all_scores.append(scores)
        states = self._normalize(states)
        if not return_attention_scores:
            return states
        return (states, *map(ops.stack, zip(*all_scores, strict=True)))

    def _merge_positions(self, inputs, training=None, positions=None):
        if self._merges_positions:
            inputs = merge_positions(self.positions, inputs, positions)
        return self._dropout(inputs, training=training)

    def _normalize(self, states):
        return states if self._norm is None else self._norm(states)

    def _step(self, position, states, memories, memory_mask, caches, index, visible):
        """Merges the `position` of the step and calls the `step` of every block."""
        if self._merges_positions:
            states = merge_positions_at(self.positions, states, position)
        new_cache, blocks = [], zip(self.blocks, memories, caches, strict=True)
        for block, memory, cache in blocks:
            states, cache = block.step(
                states, memory, memory_mask, cache, index, visible
            )
            new_cache.append(cache)
        return self._normalize(states), new_cache

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        if not self._merges_positions:
            return inputs_shape
        return self.positions.compute_output_shape(inputs_shape)

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers}
