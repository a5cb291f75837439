"""The engine behind HTTP: an OpenAI-compatible API, and the page that shows its memory."""
