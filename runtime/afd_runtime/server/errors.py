"""What a client is told when it cannot be served: OpenAI's error object and its status codes.

Shape: https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """Ends a request with an HTTP status and OpenAI's error body."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }

    @property
    def headers(self) -> dict[str, str]:
        if self.retry_after_s is None:
            return {}
        return {"Retry-After": str(max(1, round(self.retry_after_s)))}


def invalid(param: str | None, message: str) -> ApiError:
    return ApiError(400, message, param=param)


def too_long(param: str, message: str) -> ApiError:
    return ApiError(400, message, param=param, code="context_length_exceeded")


def no_model(model: str, served: str) -> ApiError:
    message = f"The model `{model}` does not exist; this server has `{served}`"
    return ApiError(404, message, param="model", code="model_not_found")


def no_path(path: str) -> ApiError:
    return ApiError(404, f"Unknown path {path}", code="unknown_url")


def busy(message: str, retry_after_s: float | None) -> ApiError:
    return ApiError(
        429, message, kind="rate_limit_error", code="queue_full", retry_after_s=retry_after_s or 1.0
    )


def not_serving(message: str) -> ApiError:
    return ApiError(503, message, kind="server_error", code="not_serving", retry_after_s=1.0)


def failed(message: str) -> ApiError:
    return ApiError(500, message, kind="server_error", code="request_failed")


def internal() -> ApiError:
    return ApiError(500, "internal error; see the gateway's log", kind="server_error")
