"""Vectors of texts, as embedders give them."""

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]


def normalize(vector: Vector) -> Vector | None:
    """Return the vector with length 1; None for one without a length."""
    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if np.isfinite(length) and length > 0 else None
