"""Around every handler: whatever goes wrong is told in OpenAI's shape, and every answer is counted."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from afd_runtime.metrics.gateway import GatewayMetrics
from afd_runtime.server.errors import ApiError, internal, no_path

log = logging.getLogger(__name__)

CLIENT_GONE = 499
"""nginx's code for it: nobody sees this one but the metric."""


def answer_errors(metrics: GatewayMetrics) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        code = CLIENT_GONE
        try:
            try:
                response = await handler(request)
            except ConnectionResetError:
                # A stream whose client hung up: there is nobody to answer.
                return web.Response(status=CLIENT_GONE)
            except ApiError as error:
                response = _told(error)
            except web.HTTPException as error:
                response = _told(_of_aiohttp(error, request))
            except Exception:
                log.exception("internal error", extra={"path": request.path})
                response = _told(internal())
            code = response.status
            return response
        finally:
            metrics.answered(_route(request), code)

    return middleware


def _told(error: ApiError) -> web.Response:
    return web.json_response(error.body, status=error.status, headers=error.headers)


def _of_aiohttp(error: web.HTTPException, request: web.Request) -> ApiError:
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return ApiError(413, error.text or "the body is too large", code="request_too_large")
    if isinstance(error, web.HTTPNotFound):
        return no_path(request.path)
    return ApiError(error.status, f"{request.method} {request.path}: {error.reason}")


def _route(request: web.Request) -> str:
    """The route's pattern, so that clients cannot make up label values."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "other"
