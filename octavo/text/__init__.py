"""Text in and out: tokenizers, chat templates, incremental detokenisation, stop strings."""
