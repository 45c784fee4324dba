"""Compares two states of the project: the commit before a change, and the working tree."""
