"""Export a trained policy as ONNX or as a torch.export program, with a proof that anyone can repeat.

An exported file computes one acting step of the policy: normaliser, tokens, masks and recurrent core are inside, and the
state is an input and an output.
"""

from holdfast.export.files import check, export_onnx, export_run, export_torch
from holdfast.export.proof import Proof
