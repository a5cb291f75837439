"""Function calls: how models of a family write them, the grammar that forces that, and reading them back."""
