"""Headers that every answer carries, and the content security policies, in one place."""

from __future__ import annotations

API_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""For answers that are data: a browser must not run anything of them."""

LOGIN_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""For the login page, which is plain HTML."""


def page_policy(nonce: str = "") -> str:
    """For web pages: as strict as NiceGUI allows. Nothing may come from another origin, and a
    script inside of a page runs only with this answer's nonce. Vue makes templates by eval, and
    Quasar sets styles of elements."""
    inside = f" 'nonce-{nonce}'" if nonce else ""
    return (
        f"default-src 'self'; script-src 'self'{inside} 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; worker-src 'none'; "
        "object-src 'none'; frame-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'self'"
    )


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
    found = ALWAYS | {"Content-Security-Policy": API_POLICY if is_data else page_policy()}
    if is_data:
        found["Cache-Control"] = "no-store"
    if tls:
        found["Strict-Transport-Security"] = "max-age=31536000"
    return found
