"""Other systems' models: read from their files, and written to them."""
