"""The strategy "paper", for comparison."""
