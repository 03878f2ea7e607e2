"""Evaluate trained policies."""

from holdfast.evaluate.certificate import Certificate, Estimate, certify, certify_run
from holdfast.evaluate.evaluation import EvaluationResult, evaluate, evaluate_run
