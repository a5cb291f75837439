"""The engine: requests, block bookkeeping, scheduling. No tensors but the numpy arrays of a step."""
