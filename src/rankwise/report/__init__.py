"""Reports: one self-contained HTML file each. Needs `pip install "rankwise[report]"`."""

from rankwise.report.content import Figure, Report, Section, Table
from rankwise.report.write import render_report, write_report, write_text

__all__ = ["Figure", "Report", "Section", "Table", "render_report", "write_report", "write_text"]
