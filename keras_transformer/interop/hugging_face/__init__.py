"""Models in the layout of Hugging Face's transformers, a file for each family."""
