"""Makes the toy environments importable by name, in this process and in the workers it starts."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "toys"))
