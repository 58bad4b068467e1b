"""The agent itself: one turn from the prompt to its stop reason."""
