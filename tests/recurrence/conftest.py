import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Tensors here are tiny: a second thread only waits, and on a busy machine for long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
