"""What tests and benchmarks share, and what is no part of the product: never in the wheel."""
