"""A collector without learning."""

from holdfast.evaluate.evaluation import EvaluationResult, evaluate, evaluate_run

__all__ = ["EvaluationResult", "evaluate", "evaluate_run"]
