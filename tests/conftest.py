"""One thread per test process: tests run in parallel, and threads that wait for a busy core cost more than they bring."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported here, and for every process a test starts
