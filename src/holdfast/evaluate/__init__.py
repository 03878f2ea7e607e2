"""Evaluate trained policies."""

from holdfast.evaluate.evaluation import EvaluationResult, evaluate, evaluate_run
