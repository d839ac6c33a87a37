"""Reports: one self-contained HTML file each. Needs `pip install "rankwise[report]"`."""

from rankwise.report.content import Figure, Listing, Report, Section, Table
from rankwise.report.write import render_report, write_report, write_text

__all__ = ["Figure", "Listing", "Report", "Section", "Table", "render_report", "write_report", "write_text"]
