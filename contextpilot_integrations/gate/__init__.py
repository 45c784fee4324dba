"""Does reordering, annotating or de-duplicating cost answers? Paired questions to a model, with intervals."""
