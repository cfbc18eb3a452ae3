"""How long a kernel takes by the cost model, and what leaving out a part of it would save."""

from __future__ import annotations

from whence.attribution.cost_model import CostModel, Traffic


class KernelModel:
    """With this traffic and arithmetic. In a convolution or product, `others_read` are the bytes
    that other operators in it read, and `busy_ps` is what all threads together spent on it, 0 where
    that is not known.
    """

    def __init__(
        self,
        model: CostModel,
        traffic: Traffic,
        computing: int,
        others_read: int | None = None,
        busy_ps: int = 0,
    ) -> None:
        self._model, self._traffic = model, traffic
        self._moving, self._computing, self._alone = model.moving_ps(traffic), computing, 0
        if others_read is not None:
            # What others read, they read between the sums of one tile and those of the next, where
            # there is no arithmetic for it to hide behind.
            self._alone = min(self._moving, round(others_read * model.byte_ps(traffic)))
            self._moving -= self._alone
            # How far a product or convolution stays below the peak rate depends on its shape. How
            # long the kernel took tells: what it took longer than by this model is the anchor's.
            spent = max(0, busy_ps - self._alone)
            within = model.arithmetic_within(spent, self._moving, traffic)
            self._computing = max(computing, within)
        self.whole = self._alone + model.overlapped_ps(self._computing, self._moving, traffic)
        """Picoseconds."""

    def saved(self, arithmetic: int, read: int) -> int:
        """By an operator with this arithmetic that reads so many bytes beside its main operand."""
        without = round(read * self._model.byte_ps(self._traffic))
        apart = min(self._alone, without)
        left = max(0, self._computing - arithmetic), max(0, self._moving - (without - apart))
        overlapped = self._model.overlapped_ps(*left, self._traffic)
        return self.whole - (self._alone - apart) - overlapped
