"""The page for coming in. It needs no session, so it has nothing of NiceGUI in it."""

from __future__ import annotations

from fastapi.responses import HTMLResponse

from holdfast.server.access.headers import LOGIN_POLICY

_ANCHOR = "M12 7v14M12 3a2 2 0 1 0 .01 0M5 12H3a9 9 0 0 0 18 0h-2M8 11h8"
_PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in · holdfast</title>
<link rel="icon" href="/ui/mark.svg">
<link rel="stylesheet" href="/ui/theme.css">
<link rel="stylesheet" href="/ui/login.css">
</head>
<body>
<main>
<h1><svg viewBox="0 0 24 24" aria-hidden="true"><path d="{_ANCHOR}"/></svg>holdfast</h1>
<p>On the server's machine, <code>holdfast server login</code> prints a link that logs you in.
Or use a token:</p>
<form>
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required
autofocus>
<button type="submit">Log in</button>
</form>
<p id="said" role="alert">{{said}}</p>
</main>
<script src="/ui/login.js"></script>
</body>
</html>
"""
REFUSED = "That link is not valid, or not any more. Ask for a new one."


def login_page(said: str = "", status: int = 200) -> HTMLResponse:
    return HTMLResponse(
        _PAGE.format(said=said),
        status_code=status,
        headers={"Content-Security-Policy": LOGIN_POLICY, "Cache-Control": "no-store"},
    )
