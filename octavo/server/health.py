"""GET /health/live and /health/ready"""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from octavo.server.context import ServerContext


def live() -> Response:
    """The process answers."""
    return JSONResponse({"status": "live"})


def ready(context: ServerContext) -> Response:
    """200 where new requests will get tokens, else 503 with the reason."""
    progress = context.llm.progress()
    reason = not_ready_reason(context)
    body = {
        "status": "ready" if reason is None else "not ready",
        "reason": reason,
        "unfinished": progress.unfinished,
        "seconds_since_step": round(progress.seconds_since_step, 3),
    }
    return JSONResponse(body, 200 if reason is None else 503)


def not_ready_reason(context: ServerContext) -> str | None:
    """Why the server should get no new requests now; None where it should."""
    progress, limit = context.llm.progress(), context.options.stall_seconds
    if context.admission.draining:
        return "shutting down"
    if not progress.alive:
        return "the engine's thread has ended"
    if progress.seconds_since_step > limit:
        waited = progress.seconds_since_step
        return f"no step has ended for {waited:.1f} s (limit {limit:g} s), and {progress.unfinished} requests wait"
    return None
