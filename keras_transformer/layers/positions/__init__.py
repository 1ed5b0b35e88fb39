"""The ways to tell positions apart: on the inputs, or inside attention."""
