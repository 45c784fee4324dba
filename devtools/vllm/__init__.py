"""A real vLLM on CPU, for tests and benchmarks: its environment, its model, its server."""
