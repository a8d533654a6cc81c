"""Headers that every answer carries, and the content security policies, in one place."""

from __future__ import annotations

API_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""For answers that are data: a browser must not run anything of them."""

PAGE_POLICY = (
    "default-src 'self'; "
    # NiceGUI starts its pages by a script inside of them, and Vue makes templates by eval.
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
"""For web pages: as strict as NiceGUI allows. Nothing may come from another origin."""

ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_DATA = ("/api/", "/livez", "/readyz", "/metrics")


def headers_for(path: str, *, tls: bool) -> dict[str, str]:
    is_data = path.startswith(_DATA)
    found = ALWAYS | {"Content-Security-Policy": API_POLICY if is_data else PAGE_POLICY}
    if is_data:
        found["Cache-Control"] = "no-store"
    if tls:
        found["Strict-Transport-Security"] = "max-age=31536000"
    return found
