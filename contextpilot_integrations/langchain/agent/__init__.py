"""For agents: a retrieval tool, and a middleware that works with its results."""
