"""Prediction of new rows: a saved preparation, a model's parameters, and nothing of how they were trained."""
