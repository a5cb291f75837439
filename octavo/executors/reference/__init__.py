"""The reference executor: numpy, float32, the oracle of the tests."""

from octavo.executors.reference.executor import ReferenceExecutor

__all__ = ["ReferenceExecutor"]
