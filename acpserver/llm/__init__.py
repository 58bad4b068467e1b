"""Language models: the neutral types of a turn, one module per dialect, and the HTTP that carries them."""
