"""The files that pages show and nobody wrote: drawings and charts."""

from __future__ import annotations

from publish import charts, drawings
from publish.project import Project


def generated(project: Project) -> dict[str, str]:
    """Return what belongs beside the pages, by its path below `docs/`."""
    files = {
        "assets/resume.svg": drawings.draw(drawings.RESUME),
        "assets/logins.svg": drawings.draw_grid(drawings.LOGINS),
    }
    if charts.PAGE in project.pages:
        files[charts.CHART] = charts.draw_bars(charts.read_bars(project.pages[charts.PAGE].text))
    return files
