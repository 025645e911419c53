"""Everything that concerns gradient training, as one small frozen value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import torch

from deeptram._validation import check_choice, check_flag, check_integer, check_number
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.fitting.deep.hooks import WarmUp, check_callbacks

OPTIMIZERS = ("adam", "adamw")
SCHEDULES = ("cosine", "plateau", "warm-up")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
_LEAST = {
    **dict.fromkeys(("epochs", "batch_size", "patience", "micro_batch"), 1),
    **dict.fromkeys(("min_epochs", "adam_start", "workers"), 0),
}


@dataclasses.dataclass(frozen=True)
class Training:
    r"""How networks are trained.

    Parameters
    ----------
    epochs : int
        Passes through the training data.
    batch_size : int
        Rows per step; more than there are rows means all of them.
    learning_rate : float
        Step size of the optimiser.
    weight_decay : float
        Shrinks the networks' weights; coefficients and baselines are never shrunk.
    patience : int, optional
        Stop when the validation loss has not improved for so many epochs.
    validation : float, optional
        Share of the training rows held out to choose the best epoch, where
        ``fit`` is not given validation data.
    warm_start : bool
        Start SI and LS (and a constant added to CI's raw output) at the exact
        fit of the model without networks. Without it CI is its network alone.
    device : str
        ``"auto"`` (a CUDA GPU if there is one), ``"cpu"``, ``"cuda"``, ``"cuda:1"``, or ``"mps"`` (Apple's,
        without float64: what is read is computed on the CPU, ``dtype`` must be float32).
    dtype : {"float32", "float64"}
        Precision of the networks; everything reported is computed in float64.
    optimizer : {"adam", "adamw"} or callable
        A function of parameter groups that returns a ``torch.optim.Optimizer``, for
        example ``lambda groups: torch.optim.SGD(groups, momentum=0.9)``. The groups are dicts
        with ``params``, ``lr``, ``weight_decay`` and ``name``, ``"networks"`` or ``"structured"``
        (coefficients and baselines); their learning rates may be changed there. ``adam_start`` and
        ``adam_epsilon`` are for those with a name.
    schedule : {None, "cosine", "plateau", "warm-up"} or callable
        ``"cosine"`` lowers the learning rate to zero along half a cosine, epoch by epoch;
        ``"plateau"`` halves it when the loss has not improved for 5 epochs; ``"warm-up"`` raises it step by
        step from zero in the first tenth of the training and then lowers it as "cosine" does
        (``dt.hooks.WarmUp()``), for networks that a first long step may silence for good. A function gets
        the share of the training that is done before each step and returns a factor of the learning rate:
        ``dt.hooks.WarmUp(0.05)``, ``dt.hooks.OneCycle()``.
    clip_norm : float, optional
        Largest allowed norm of the gradient of all parameters.
    mixed_precision : {"auto", "native", True, False}
        Networks in bfloat16 during training; sums, structured parts and
        everything reported stay in full precision. "auto": where a GPU supports
        it. "native": also on CPUs that have instructions for it (AMX or AVX-512 BF16; about twice as
        fast for convolutions). True: everywhere, though CPUs without them are about three times slower than
        in float32.
    augment : callable, optional
        ``augment(images) -> images`` on training batches ``(b, C, H, W)``; draw
        random numbers from torch's global generator, which is seeded.
    restore_best : bool
        Whether to go back to the epoch with the smallest validation loss.
    progress : {"auto", True, False}
        Progress bar with losses on stderr; "auto" on terminals and in notebooks.
    min_epochs : int
        ``patience`` does not stop before.
    adam_start : int
        Where Adam's count of steps begins while its moments begin at zero. Step
        t of a training is divided by the bias corrections of step
        ``adam_start + t``; from some thousands on there is practically none, and
        the first steps are up to :math:`(1 - b_1) / \sqrt{1 - b_2}`, about 3.2,
        times as long. This is what happens where one optimiser object trains
        member after member, as in the paper's experiments (docs/results/mnist.md).
    adam_epsilon : float
        Added to the root of Adam's second moment; Keras has 1e-7.
    standardize : bool
        Whether Adam sees the columns of LS centred and scaled. Coefficients are
        those of the columns as given either way.
    callbacks : callable, object with ``on_epoch_end(state)``, or sequence of them
        Called after every epoch of every member with a ``dt.hooks.EpochState``, where the member is trained
        (with ``strategy="parallel"`` in a worker process). Returning True ends the member.
    average : float or "swa", optional
        Averages of the weights along the way are what is validated, kept and predicted with: a decay such as
        0.999 of an exponential moving average over steps, or ``"swa"``, the plain mean of the weights after
        each of the last epochs (stochastic weight averaging; let the learning rate stay high in these).
    average_from : float
        Share of ``epochs`` after which ``"swa"`` begins.
    label_smoothing : float
        Share of every label that is spread over all classes in training (classes and NLL only).
    mixup : float
        Parameter of the Beta distribution by which rows of a batch are mixed, inputs and losses; 0: not.
    class_weight : {None, "balanced"} or dict
        Factors of the weights of rows by level, in training, warm start and validation, as
        ``sample_weight`` would have them; ``"balanced"`` gives all classes the same total in training.
    workers : int
        Processes that read and decode the next batches of entries that are not in memory (files, data sets,
        memory maps) while the networks compute; 0: the training itself does.
    micro_batch : int, optional
        Rows that go through the networks at once: a batch is taken in pieces of so many rows, whose gradients
        are added up, so that the step is that of the whole batch (but for rounding, for layers that look at
        the other rows such as BatchNorm, and for ``mixup``, which mixes within a piece). Needs less memory,
        and depends less on caches that other processes use too.

    Examples
    --------
    >>> Training(epochs=20, patience=5, validation=0.1).replace(epochs=30).epochs
    30
    """

    epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    patience: int | None = None
    validation: float | None = None
    warm_start: bool = True
    device: str = "auto"
    dtype: str = "float32"
    optimizer: str | Callable[..., Any] = "adam"
    schedule: str | Callable[[float], float] | None = None
    clip_norm: float | None = None
    mixed_precision: bool | str = "auto"
    augment: Callable[[torch.Tensor], torch.Tensor] | None = None
    restore_best: bool = True
    progress: bool | str = "auto"
    min_epochs: int = 0
    adam_start: int = 0
    adam_epsilon: float = 1e-8
    standardize: bool = True
    callbacks: Any = ()
    average: float | str | None = None
    average_from: float = 0.75
    label_smoothing: float = 0.0
    mixup: float = 0.0
    class_weight: str | Mapping[Any, float] | None = None
    workers: int = 0
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        """Check every setting once."""
        for name, least in _LEAST.items():
            if name not in ("patience", "micro_batch") or getattr(self, name) is not None:
                check_integer(getattr(self, name), name, least)
        for name in ("learning_rate", "adam_epsilon", *(["clip_norm"] if self.clip_norm is not None else [])):
            if check_number(getattr(self, name), name, 0.0) == 0:
                raise InvalidInputError(f"{name} must be a positive number, got {getattr(self, name)!r}")
        for name in ("weight_decay", "mixup"):
            check_number(getattr(self, name), name, 0.0)
        if self.validation is not None:
            _check_fraction(self.validation)
        check_choice(self.dtype, DTYPES, "dtype")
        self._check_optimizer()
        if callable(self.schedule):
            _check_schedule(self.schedule)
        elif self.schedule is not None:
            check_choice(self.schedule, SCHEDULES, "schedule")
        if not isinstance(self.callbacks, tuple) or self.callbacks:
            object.__setattr__(self, "callbacks", check_callbacks(self.callbacks))
        if isinstance(self.average, str):
            check_choice(self.average, ("swa",), "average")
        for name in ("average_from", "label_smoothing", *(["average"] if self.average != "swa" else [])):
            if not 0 <= check_number(getattr(self, name) or 0.0, name) < 1:
                raise InvalidInputError(f"{name} must lie in [0, 1), got {getattr(self, name)!r}; try 0.99")
        if not isinstance(self.class_weight, Mapping) and self.class_weight is not None:
            check_choice(self.class_weight, ("balanced",), "class_weight")
        for name in ("warm_start", "restore_best", "standardize"):
            check_flag(getattr(self, name), name)
        check_flag(self.progress, "progress", also=("auto",))
        check_flag(self.mixed_precision, "mixed_precision", also=("auto", "native"))
        if self.augment is not None and not callable(self.augment):
            raise InvalidTypeError(
                f"augment must be a function of image batches, got {type(self.augment).__name__}; "
                "pass augment(images) -> images, or None"
            )
        if self.device == "mps" and self.dtype == "float64":
            raise UnsupportedError("device='mps' has no float64, got dtype='float64'; use dtype='float32'")
        if not isinstance(self.device, str):
            raise InvalidTypeError(
                f"device must be a name such as 'auto', 'cpu' or 'cuda', got {self.device!r}; pass its name"
            )

    def _check_optimizer(self) -> None:
        if not callable(self.optimizer):
            check_choice(self.optimizer, OPTIMIZERS, "optimizer")
            return
        for name in ("adam_start", "adam_epsilon"):
            value = getattr(self, name)
            if value != self.__dataclass_fields__[name].default:
                raise InvalidInputError(
                    f"{name} must be left out with an optimizer of your own, got {value!r}; leave it out, or "
                    "use optimizer='adam'"
                )

    def __repr__(self) -> str:
        """Return the settings that are not the defaults, as scikit-learn does."""
        own = {one: getattr(self, one.name) for one in dataclasses.fields(self)}
        changed = [f"{one.name}={value!r}" for one, value in own.items() if value != one.default]
        return f"Training({', '.join(changed)})"

    def replace(self, **changes: Any) -> Training:
        """Return the same settings with some changed.

        Examples
        --------
        >>> Training().replace(learning_rate=0.01).learning_rate
        0.01
        """
        return dataclasses.replace(self, **changes)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The precision as torch knows it."""
        return DTYPES[self.dtype]

    @property
    def step_schedule(self) -> Callable[[float], float] | None:
        """The schedule that decides before every step, if it is one of these."""
        if self.schedule == "warm-up":
            return WarmUp()
        return self.schedule if callable(self.schedule) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON-able values; functions and unused smoothing are left out.

        Examples
        --------
        >>> Training.from_dict(Training(epochs=3).to_dict()) == Training(epochs=3)
        True
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {name: value for name, value in values.items() if name not in _HOOKS and not callable(value)}
        return {name: value for name, value in plain.items() if name not in _LATER or value != _LATER[name]}

    def hooks(self) -> dict[str, Any]:
        """Return the functions among the settings, which :meth:`to_dict` leaves out."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if name in _HOOKS or callable(value)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Training:
        """Rebuild settings from :meth:`to_dict`."""
        if not isinstance(state, Mapping):
            raise InvalidTypeError(f"settings must be a dict made by to_dict, got {type(state).__name__}")
        known = [field.name for field in dataclasses.fields(cls) if field.name not in _HOOKS]
        unknown = sorted(str(name) for name in set(state) - set(known))
        if unknown:
            raise InvalidInputError(
                f"Training has no setting {', '.join(unknown)}; it has {', '.join(known)}"
            )
        return cls(**state)


_HOOKS = ("augment", "callbacks")
_LATER = {
    "average": None,
    "average_from": 0.75,
    "label_smoothing": 0.0,
    "mixup": 0.0,
    "class_weight": None,
    "workers": 0,
    "micro_batch": None,
}


def resolve_device(name: str) -> torch.device:
    """Return the device of that name, or say that this machine has none.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidInputError(
            f"device must be 'auto', 'cpu', 'mps', 'cuda' or 'cuda:0', 'cuda:1', ..., got {name!r}; "
            "correct the name"
        ) from error
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if device.type not in there:
        raise UnsupportedError(f"device must be a CPU, 'cuda' or 'mps', got {name!r}; use device='cpu'")
    if (device.index or 0) >= there[device.type]:
        raise UnsupportedError(
            f"device={name!r} needs a GPU that torch can use, got {there[device.type]} of them on "
            "this machine; use device='auto' or 'cpu'"
        )
    return device


def autocast_dtype(training: Training, device: torch.device) -> torch.dtype | None:
    """Return the half precision of the networks, or None for full precision.

    Examples
    --------
    >>> autocast_dtype(Training(), torch.device("cpu")) is None
    True
    """
    if training.mixed_precision is False or training.dtype == "float64":
        return None
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else None
    native = training.mixed_precision == "native" and device.type == "cpu" and cpu_has_bfloat16()
    return torch.bfloat16 if native or training.mixed_precision is True else None


def cpu_has_bfloat16() -> bool:
    """Whether the processor multiplies in bfloat16; without such instructions it is slower than float32."""
    told = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("amx_tile", "avx512_bf16"))
    return any(is_supported() for is_supported in told if is_supported is not None)


def _check_schedule(schedule: Callable[[float], Any]) -> None:
    """Raise unless a function of a share gives a number (a scheduler of torch takes an optimiser)."""
    try:
        found, why = schedule(0.0), ""
    except (TypeError, ValueError, AttributeError) as error:
        found, why = None, f" ({error})"
    if not isinstance(found, Real) or isinstance(found, bool):
        raise InvalidInputError(
            "schedule must be a function of the share of the training that is done (0 to 1) that returns "
            f"a factor of the learning rate, got {schedule!r}{why}; for example dt.hooks.OneCycle() or "
            "lambda done: 0.1 ** done"
        )


def _check_fraction(value: Any) -> None:
    if not (
        isinstance(value, Real) and not isinstance(value, bool) and 0 < check_number(value, "validation") < 1
    ):
        raise InvalidInputError(
            f"validation must be a share strictly between 0 and 1, got {value!r}; "
            "pass data as fit(X, y, validation=(X_val, y_val))"
        )
