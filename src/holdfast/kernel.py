"""The one door to the compiled module; no logic.

Whoever needs the kernel imports it from here, so that one file knows that it is compiled. The
specification of everything that passes through is `_kernel.pyi`.
"""

from holdfast._kernel import *  # noqa: F403 - all of it, and nothing else.
