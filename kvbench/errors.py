"""Every error a user can meet. Each is one line: what, why, and what to try.

KvbenchError
├── UsageError        2    usage error, or things that cannot be compared
├── RunFailed         1    it could not be done
│   └── OutOfMemory   1    the machine or the device has too little memory
├── ThresholdFailed   3    a threshold or a comparison failed
├── Untrusted         4    invalid measurement
└── Interrupted     130    stopped by the user; what was measured is on disk
"""


class KvbenchError(Exception):
    """Base of all errors that end a command with one line and :attr:`exit_code`."""

    exit_code = 1


class UsageError(KvbenchError):
    """The request itself is wrong: an option, a file, or a combination of them."""

    exit_code = 2


class RunFailed(KvbenchError):
    """The request was right and could not be done."""


class OutOfMemory(RunFailed):
    """Weights, device pool and host tier do not fit the memory there is."""


class ThresholdFailed(KvbenchError):
    """A comparison or a threshold the user set was not met."""

    exit_code = 3


class Untrusted(KvbenchError):
    """The run was measured, and its own checks say not to believe it."""

    exit_code = 4


class Interrupted(KvbenchError):
    """The user stopped the run; the run folder holds what was measured."""

    exit_code = 130
