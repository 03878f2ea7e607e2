"""One thread per test process: tests run in parallel, and threads that wait for a busy core cost more than they bring."""

import os
import signal

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported here, and for every process a test starts
# A shell starts jobs in the background with Ctrl-C switched off; tests of Ctrl-C need it there too.
signal.signal(signal.SIGINT, signal.default_int_handler)
