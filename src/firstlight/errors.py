"""Every exception that firstlight raises on purpose.

::

    FirstlightError
    ├── ConfigError                a field of the configuration, or two that do not go together
    ├── ContractError              what a model declares about its inputs is wrong
    │   └── ProbeError             ... or is not what the model really writes
    ├── ModelLoadError             a checkpoint cannot be loaded
    │   └── UnknownArchitectureError
    ├── RequestError               one request cannot be served; the others go on
    │   ├── PromptTooLongError     ... because its prompt leaves no room for an answer
    │   ├── MediaError             ... because of a picture it brought
    │   └── LogitsError            ... because the model's logits for it are not finite
    ├── ArtifactError              what prepares pictures broke its contract; no request is to blame
    ├── ClosedError                an engine is asked after it was closed
    ├── BusyError                  two threads use one engine at the same time
    ├── ServingError               an engine that serves many did not answer this request
    │   ├── OverloadedError        ... as too much is waiting already
    │   ├── DeadlineError          ... in the time that a request may take
    │   ├── DrainingError          ... as it is shutting down
    │   ├── RequestFailedError     ... as this one request failed on its way
    │   └── EngineFaultError       ... as the engine itself failed; others were lost with it
    ├── CapacityError              memory for the request is not there now
    ├── SchedulerError             requests exist and none can run: a fault of the engine itself
    ├── IntegrityError             the memory's own books contradict each other
    ├── SlotError                  a static buffer was declared or written wrongly
    └── CaptureError               a body cannot be captured; names the op and the source line
        ├── HostReadError          it reads a tensor's value on the host
        ├── DynamicShapeError      the shape of a result depends on data
        ├── UnownedTensorError     it touches memory that nobody keeps alive
        └── CaptureMemoryError     the device has no room for it; a smaller one may fit
"""

from __future__ import annotations

from collections.abc import Sequence


class FirstlightError(Exception):
    """Base of all errors that a user of firstlight may want to catch."""


class ConfigError(FirstlightError):
    """A configuration field is out of range, or two fields contradict each other."""


class ContractError(FirstlightError):
    """A model's declaration of its inputs is malformed."""


class ProbeError(ContractError):
    """The declared width is not the width that the model's own merge writes."""


class ModelLoadError(FirstlightError):
    """A checkpoint is missing, incomplete or of a kind that cannot be loaded."""


class UnknownArchitectureError(ModelLoadError):
    """No adapter knows this architecture."""


class RequestError(FirstlightError):
    """One request is invalid; no other request is touched.

    Attributes:
        where: the field at fault, where the message does not begin with it.
    """

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(message)
        self.where = where


class FormError(RequestError):
    """The form that an answer must keep is beyond what can be followed, as its tokens show."""


class PromptTooLongError(RequestError):
    """The prompt of a request leaves no token of the context for its answer."""


class MediaError(RequestError):
    """A picture of a request cannot be read, decoded or encoded."""


class LogitsError(RequestError):
    """The logits of a request hold no usable maximum: NaN, an infinity, or nothing allowed."""


class ArtifactError(FirstlightError):
    """An adapter made another artifact than it was asked for, or failed in an unforeseen way."""


class ClosedError(FirstlightError):
    """An engine was closed; nothing can be asked of it any more."""


class BusyError(FirstlightError):
    """An engine is in the middle of a step for another thread; nothing was mixed up."""


class ServingError(FirstlightError):
    """A well-formed request got no answer, or no whole one, and may be sent again.

    Attributes:
        retry_after: seconds after which another try makes sense; None if that is not known.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class OverloadedError(ServingError):
    """As many requests wait as may, or their bytes fill what they may."""


class DeadlineError(ServingError):
    """A request took longer than it may; it was taken out."""


class DrainingError(ServingError):
    """The engine is shutting down: it takes no new requests, or ran out of time for this one."""


class RequestFailedError(ServingError):
    """One request failed inside the engine; the others went on."""


class EngineFaultError(ServingError):
    """The engine failed, and every request in flight with it.

    Attributes:
        fault_id: what the log calls it by.
    """

    def __init__(self, fault_id: str, *, retry_after: float | None = None) -> None:
        super().__init__(
            f"the engine failed and what was in flight is lost (fault {fault_id})",
            retry_after=retry_after,
        )
        self.fault_id = fault_id


class CapacityError(FirstlightError):
    """The memory that a request needs is not available now."""


class SchedulerError(FirstlightError):
    """Requests exist and none of them can run, or a plan is not one of the scheduler's."""


class IntegrityError(FirstlightError):
    """The books of the KV memory contradict each other: a fault of firstlight, never of a request.

    Attributes:
        findings: everything that does not add up, one sentence each.
    """

    def __init__(self, findings: Sequence[str]) -> None:
        shown = "; ".join(findings[:5])
        more = f"; and {len(findings) - 5} more" if len(findings) > 5 else ""
        super().__init__(f"KV memory: {shown}{more}")
        self.findings = tuple(findings)


class SlotError(FirstlightError):
    """A static buffer was declared, bound or written against its own rules."""


class CaptureError(FirstlightError):
    """A body cannot be captured.

    Attributes:
        op: name of the operation at fault, e.g. ``aten._local_scalar_dense``.
        where: ``file:line`` of the model's code that called it, if known.
    """

    def __init__(self, message: str, *, op: str = "", where: str = "") -> None:
        super().__init__(f"{message} ({op} at {where})" if op else message)
        self.op = op
        self.where = where


class HostReadError(CaptureError):
    """The body asks the device for a value while it is being captured."""


class DynamicShapeError(CaptureError):
    """The body calls an operation whose result shape depends on the data."""


class UnownedTensorError(CaptureError):
    """The body reads or writes a tensor that is no weight, slot, KV pool or own intermediate."""


class CaptureMemoryError(CaptureError):
    """The device has no memory for the graph; smaller buckets may still fit."""
