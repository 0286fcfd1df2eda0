"""The console: one page for people, made of the files in static/. No build step, no outside hosts: what is in the
package is what the browser gets, and a strict policy keeps it at that."""

from dibs.service import schemas
from dibs.service.routes import Route

PAGES = "dibs.service.console.pages"
ROUTES = (
    Route("GET", "/", f"{PAGES}:start", "nobody", "To the console", answer=schemas.HTML, status=303, local=True),
    Route(
        "GET", "/console/", f"{PAGES}:start", "nobody", "To the console", answer=schemas.HTML, status=303, local=True
    ),
    Route("GET", "/console", f"{PAGES}:page", "nobody", "The console", answer=schemas.HTML, local=True),
    Route(
        "GET", "/console/{file}", f"{PAGES}:file", "nobody", "A file of the console", answer=schemas.TEXT, local=True
    ),
)
