"""Published sizes of the Transformer."""

PRESETS = {
    # Wu et al., 2021 (https://arxiv.org/abs/2105.14462): for small corpora.
    "tiny": {
        "num_layers": 4,
        "hidden_dim": 128,
        "num_heads": 4,
        "intermediate_dim": 256,
        "dropout": 0.3,
    },
    # Vaswani et al., 2017, table 3.
    "base": {
        "num_layers": 6,
        "hidden_dim": 512,
        "num_heads": 8,
        "intermediate_dim": 2048,
        "dropout": 0.1,
    },
    "big": {
        "num_layers": 6,
        "hidden_dim": 1024,
        "num_heads": 16,
        "intermediate_dim": 4096,
        "dropout": 0.3,
    },
}
