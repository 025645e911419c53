"""Pages: figures as SVG, tables and sentences in one HTML file that needs nothing from elsewhere."""
