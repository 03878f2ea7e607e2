import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Tensors here are tiny, so a second thread would only wait, on a busy machine for long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
