"""Where there is no GPU, Triton's interpreter runs these tests on tensors of the CPU; without Triton there are none.

Those with the shapes of real models are marked gpu. The interpreter rounds towards zero to bfloat16, as no GPU does.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("triton") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from support import interpreted

    interpreted.prepare()
