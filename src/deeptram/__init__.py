"""deeptram: deep transformation models and interpretable deep ensembles.

Every public name is loaded when it is first used, so ``import deeptram`` is quick;
``__init__.pyi`` beside this file says where each name lives.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
