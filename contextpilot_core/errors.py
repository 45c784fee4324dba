"""The exceptions of both packages. Every class is also a builtin kind, so that callers may catch either.

    ContextPilotError
    |-- ConfigError (ValueError)               a configuration value breaks its rule
    |-- RequestError (ValueError)              a request cannot be planned as given
    |   |-- RequestTypeError (TypeError)       ... because a value has the wrong type
    |   `-- DuplicateRequestError              ... because its request id is already live
    |-- AnswerError (ConnectionError)          what a model server answered is no answer
    |-- TooManyContextsError (ValueError)      more contexts than an N x N method may hold
    |-- TraceError (ValueError)                a trace or corpus file cannot be read
    |-- IntegrityError (AssertionError)        an internal structure contradicts itself (a defect of ours)
    |-- MissingExtraError (ImportError)        an optional package is absent; the message holds the pip line
    `-- MissingModelError (FileNotFoundError)  a model file is absent or damaged; the message holds the pip line

Messages name the value, the rule it breaks and the fix. They never hold the text of a document.
"""


class ContextPilotError(Exception):
    """Base of every error that this project raises on purpose."""


class ConfigError(ContextPilotError, ValueError):
    """A configuration value breaks its rule."""


class RequestError(ContextPilotError, ValueError):
    """A request cannot be planned as given; nothing was changed."""


class RequestTypeError(RequestError, TypeError):
    """A value of a request has the wrong type; nothing was changed."""


class DuplicateRequestError(RequestError):
    """A request id is already live in its namespace."""


class AnswerError(ContextPilotError, ConnectionError):
    """What a model server answered is no answer: the turn leaves no trace."""


class TooManyContextsError(ContextPilotError, ValueError):
    """More contexts than a method with N x N distances may hold."""


class TraceError(ContextPilotError, ValueError):
    """A trace or corpus file cannot be read."""


class IntegrityError(ContextPilotError, AssertionError):
    """An internal structure contradicts itself: a defect of this project, never of the caller."""


class MissingExtraError(ContextPilotError, ImportError):
    """An optional package is absent; the message holds the ``pip install`` line that brings it."""


class MissingModelError(ContextPilotError, FileNotFoundError):
    """A model file is absent or damaged; the message holds the line that brings it."""
