"""The program: operations, and the builder with which a model recipe emits them."""
