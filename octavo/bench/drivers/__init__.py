"""Programs for other interpreters, which run them by their paths: nothing else may lie beside them."""
